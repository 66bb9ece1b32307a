"""Says whether a program does what its fetch order says, whatever the queues' timing.

Every byte of DRAM that the program writes and every unit of core memory carries who wrote it last
and who read it last in each queue.  The tokens give each command a vector of what is certainly
complete when it starts; whoever touches a unit must find its last writer there, and a writer its
last readers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from disc.config import CoreConfig
from disc.program import sizes
from disc.program.access import Access, ListState, Space, Window, column_slots
from disc.program.errors import ProgramError, failure, place
from disc.program.fields import Queue
from disc.program.load import LoadList
from disc.program.program import Buffer, Program
from disc.program.tokens import MAX_TOKENS, Clock, TokenClocks

__all__ = ["MAX_BYTES", "MAX_TOKENS", "CheckReport", "ProgramError", "check"]

MAX_BYTES = 1 << 26
"""Most bytes of written DRAM buffers that are followed."""

Tokens = NDArray[np.int64]

_UNDEFINED, _BEFORE = -1, -2
"""Last writer of what nobody wrote, and of what was there before."""


@dataclass(frozen=True)
class CheckReport:
    """What is known of a program that is well."""

    commands: dict[str, int]
    """By queue."""
    most_tokens: int
    """Most that may pile up for any pair of queues."""
    waits: int
    """Tokens taken in all."""


@dataclass
class _Units:
    """Who touched each unit of a memory or buffer last."""

    writer: NDArray[np.int32]
    readers: NDArray[np.int32]
    """[queues, units]"""

    @staticmethod
    def make(size: int, defined: bool) -> _Units:
        writer = np.full(size, _BEFORE if defined else _UNDEFINED, np.int32)
        return _Units(writer, np.full((len(Queue), size), _UNDEFINED, np.int32))


def check(
    program: Program, config: CoreConfig, image: NDArray[np.uint8] | None = None
) -> CheckReport:
    """Check a program; see `docs/program.md` for the rules.

    Parameters
    ----------
    image
        DRAM before the program, from address 0, for the row lists.  None: lists name all tokens in
        order.

    Raises
    ------
    ProgramError
        The first thing that is wrong.
    ValueError
        The program writes too much of DRAM to follow every byte.
    """
    return _Checker(program, config, image).run()


class _Checker:
    def __init__(
        self, program: Program, config: CoreConfig, image: NDArray[np.uint8] | None
    ) -> None:
        self.program, self.config, self.image = program, config, image
        self.clocks = TokenClocks(program.commands)
        self.queue, self.position = self.clocks.queue, self.clocks.position
        self.lists = ListState()
        self.tokens: dict[int, Tokens | None] = {}
        self.hash = program.bank_hash(config)
        self.core = {
            space: _Units.make(space.size(config) * self._banks(space), False)
            for space in Space
            if space is not Space.DRAM
        }
        self.dram: dict[str, _Units] = {}

    def _banks(self, space: Space) -> int:
        """Units of each of which a space has one a bank are counted bank by bank."""
        return self.config.array.banks if space in (Space.BANKS, Space.CONSTANTS) else 1

    # -- errors --------------------------------------------------------------------------------

    def _fail(self, index: int, why: str, other: int | None = None) -> ProgramError:
        return failure(self.program.commands, index, why, other)

    # -- walk ----------------------------------------------------------------------------------

    def run(self) -> CheckReport:
        commands = self.program.commands
        for index, command in enumerate(commands):
            try:
                command.validate(self.config)
            except ValueError as error:
                raise self._fail(index, str(error)) from None
        self._follow_written()
        for index, command in enumerate(commands):
            clock = self.clocks.start(index, command)
            try:
                accesses = command.accesses(self.config, self.lists.windows)
            except ValueError as error:
                raise self._fail(index, str(error)) from None
            # A command reads before it writes.
            for access in sorted(accesses, key=lambda a: a.write):
                self._touch(index, access, clock)
            command.follow(self.lists)
            if isinstance(command, LoadList):
                self.tokens[command.list] = self._list(index, self.lists.windows[command.list])
            self.clocks.finish(index, command, clock)
        self.clocks.require_none_left()
        counts = {q.name.lower(): int((self.queue == q).sum()) for q in Queue}
        return CheckReport(counts, self.clocks.most, self.clocks.waits)

    def _follow_written(self) -> None:
        """Make room for the DRAM buffers that some command writes; others cannot race."""
        lists = ListState()
        total = 0
        for index, command in enumerate(self.program.commands):
            try:
                accesses = command.accesses(self.config, lists.windows)
            except ValueError:
                return  # the walk will come here and say what is wrong, unless it stops earlier
            for access in accesses:
                if access.space is not Space.DRAM or not access.write:
                    continue
                buffer = self._buffer(index, access.start)
                if buffer.name not in self.dram:
                    total += buffer.size
                    if total > MAX_BYTES:
                        raise ValueError(
                            f"program: writes more than {MAX_BYTES} bytes of DRAM; check it at a "
                            "smaller number of tokens"
                        )
                    self.dram[buffer.name] = _Units.make(buffer.size, buffer.kind.defined)
            command.follow(lists)

    # -- memory --------------------------------------------------------------------------------

    def _buffer(self, index: int, address: int) -> Buffer:
        buffer = self.program.buffer_at(address)
        if buffer is None:
            raise self._fail(index, f"touches DRAM byte {address:#x}, which lies in no buffer")
        return buffer

    def _list(self, index: int, window: Window) -> Tokens | None:
        """Tokens of a window; None if a command made the list."""
        if window.version:
            return None
        if self.image is None:
            return np.arange(window.first, window.first + window.rows)
        words = self.image[window.list :]
        length = int(words[:4].view("<u4")[0])
        start = sizes.LIST_HEADER_BYTES + window.first * sizes.ENTRY_BYTES
        count = max(0, min(length - window.first, window.rows))
        tokens = words[start : start + count * 4].view("<u4").astype(np.int64)
        if count and tokens.max() >= window.tokens:
            raise self._fail(
                index, f"tokens: the list names {tokens.max()}, allowed below {window.tokens}"
            )
        return tokens

    def _touch(self, index: int, access: Access, clock: Clock) -> None:
        certain = True
        tokens = None
        if access.window is not None or access.per_row:
            tokens = self.tokens[self.program.commands[index].values()["list"]]
            if tokens is not None and not len(tokens):
                return
            if access.per_row and tokens is not None:
                access = replace(access, rows=len(tokens))
            elif access.window is not None and tokens is None:
                certain, tokens = False, np.arange(access.window.tokens)
        where = self._slots(access) if access.columns else access.indices(tokens)
        if access.space is Space.DRAM:
            name, units, where = self._in_buffer(index, access, where)
            if units is None:
                return
        else:
            name, units = access.space.name, self.core[access.space]
        self._ordered(index, access, name, units, where, clock, certain)

    def _slots(self, access: Access) -> NDArray[np.int64]:
        words = access.length // sizes.groups(access.columns, self.config)
        bank, word = column_slots(self.hash, access.start, access.columns, words)
        return (word * self.hash.banks + bank).ravel()

    def _in_buffer(
        self, index: int, access: Access, where: NDArray[np.int64] | slice
    ) -> tuple[str, _Units | None, NDArray[np.int64] | slice]:
        if isinstance(where, slice):
            low, end = where.start, where.stop
        else:
            low, end = int(where.min()), int(where.max()) + 1
        buffer = self._buffer(index, access.start)
        if low < buffer.address or end > buffer.end:
            raise self._fail(
                index,
                f"{'writes' if access.write else 'reads'} DRAM bytes {low:#x} to {end - 1:#x}, "
                f"buffer {buffer.name} is {buffer.address:#x} to {buffer.end - 1:#x}",
            )
        units = self.dram.get(buffer.name)
        if units is None and not buffer.kind.defined:
            raise self._fail(
                index, f"reads {buffer.name}, a {buffer.kind.value} buffer that no command writes"
            )
        if isinstance(where, slice):
            return buffer.name, units, slice(low - buffer.address, end - buffer.address)
        return buffer.name, units, where - buffer.address

    def _ordered(
        self,
        index: int,
        access: Access,
        name: str,
        units: _Units,
        where: NDArray[np.int64] | slice,
        clock: Clock,
        certain: bool,
    ) -> None:
        certainly = np.array(clock)
        writer = units.writer[where]
        if not access.write and certain and (writer == _UNDEFINED).any():
            lost = self._unit(access.space, where, int(np.argmax(writer == _UNDEFINED)))
            raise self._fail(index, f"reads {name} {lost}, nobody wrote it")
        self._require(index, access, name, where, writer, certainly, "written")
        if access.write:
            for readers in units.readers:
                self._require(index, access, name, where, readers[where], certainly, "read")
            units.writer[where] = index
        else:
            units.readers[self.queue[index], where] = index

    def _unit(self, space: Space, where: NDArray[np.int64] | slice, offset: int) -> str:
        unit = where.start + offset if isinstance(where, slice) else int(where[offset])
        banks = self._banks(space)
        text = f"{space.unit} {unit // banks}"
        return f"{text} of bank {unit % banks}" if banks > 1 else text

    def _require(
        self,
        index: int,
        access: Access,
        name: str,
        where: NDArray[np.int64] | slice,
        others: NDArray[np.int32],
        certainly: NDArray[np.int64],
        done: str,
    ) -> None:
        """Raise unless all of `others` are certainly complete."""
        own = self.queue[index]
        safe = np.maximum(others, 0)
        queue = self.queue[safe]
        racing = (others >= 0) & (queue != own) & (self.position[safe] > certainly[queue])
        if not racing.any():
            return
        first = int(np.argmax(racing))
        other = int(others[first])
        doing = "writes" if access.write else "reads"
        raise self._fail(
            index,
            f"{doing} {name} {self._unit(access.space, where, first)}, {done} by "
            f"{place(self.program.commands, other)}; no chain of tokens leads from there",
            other,
        )
