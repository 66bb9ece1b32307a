"""Builds programs: takes commands in fetch order and adds the tokens that they need."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass

from disc.config import CoreConfig
from disc.program.access import Access, ListState, Space
from disc.program.fields import Command, Queue
from disc.program.program import Buffer, Program
from disc.program.store import Fence


@dataclass(frozen=True)
class _Entry:
    access: Access
    queue: Queue
    position: int
    index: int


class Builder:
    """Collects commands and inserts tokens.

    A command that touches what a command of another queue touched, one of them writing, waits for
    it, unless a chain of tokens already leads there.  Regions are compared as declared: gathered
    rows of one list are apart where their windows are.

    Parameters
    ----------
    config
        Sizes.
    buffers
        Names of DRAM, which also tell the regions apart quickly.
    hash_rows
        See `Program`.
    tokens
        False leaves the tokens out, for counting only.
    """

    def __init__(
        self,
        config: CoreConfig,
        buffers: list[Buffer],
        *,
        hash_rows: tuple[int, ...] | None = None,
        tokens: bool = True,
    ) -> None:
        self.config, self.tokens = config, tokens
        self.hash_rows = hash_rows
        self.buffers = sorted(buffers, key=lambda b: b.address)
        self._starts = [b.address for b in self.buffers]
        self.commands: list[Command] = []
        self.lists = ListState()
        self._history: defaultdict[tuple[Space, int], list[_Entry]] = defaultdict(list)
        self._clocks = [[0] * len(Queue) for _ in Queue]
        self._behind: list[tuple[int, ...]] = []
        """Clock behind each command."""

    def emit(self, command: Command) -> None:
        """Append a command; raise ValueError if it is not valid."""
        command.validate(self.config)
        if self.tokens:
            command = self._ordered(command)
        command.follow(self.lists)
        self.commands.append(command)

    def program(self) -> Program:
        """What has been built."""
        return Program(tuple(self.commands), tuple(self.buffers), self.hash_rows)

    def _key(self, access: Access) -> tuple[Space, int]:
        if access.space is not Space.DRAM:
            return access.space, 0
        return access.space, bisect_right(self._starts, access.start)

    def _ordered(self, command: Command) -> Command:
        queue, index = command.QUEUE, len(self.commands)
        clock = self._clocks[queue]
        if isinstance(command, Fence):
            clock = [max(column) for column in zip(*self._clocks, strict=True)]
            self._history.clear()
        accesses = command.accesses(self.config, self.lists.windows)
        needed = {e.index: e for a in accesses for e in self._conflicts(a, queue, clock)}
        wait = 0
        # The latest first: what it has waited for itself then needs no token.
        for _, entry in sorted(needed.items(), reverse=True):
            if entry.position <= clock[entry.queue]:
                continue
            giver = self.commands[entry.index]
            self.commands[entry.index] = giver.replace(signal=giver.signal | queue.bit)
            wait |= entry.queue.bit
            clock = list(map(max, clock, self._behind[entry.index]))
        position = clock[queue] + 1
        clock = [*clock[:queue], position, *clock[queue + 1 :]]
        self._clocks[queue] = clock
        if isinstance(command, Fence):
            self._clocks = [list(clock) for _ in Queue]
        self._behind.append(tuple(clock))
        for access in accesses:
            self._remember(access, _Entry(access, queue, position, index))
        return command.replace(wait=wait)

    def _conflicts(self, access: Access, queue: Queue, clock: list[int]) -> list[_Entry]:
        return [
            entry
            for entry in self._history[self._key(access)]
            if (access.write or entry.access.write)
            and entry.queue != queue
            and entry.position > clock[entry.queue]
            and access.overlaps(entry.access)
        ]

    def _remember(self, access: Access, new: _Entry) -> None:
        """Add to the history; drop what every later conflict with it would also meet in `new`."""
        key = self._key(access)
        self._history[key] = [
            entry
            for entry in self._history[key]
            if entry.index == new.index
            or not (
                access.covers(entry.access)
                and (access.write or (entry.queue == new.queue and not entry.access.write))
            )
        ]
        self._history[key].append(new)
