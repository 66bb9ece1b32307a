"""Commands of the load queue: from DRAM into the core's memories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from disc.config import CoreConfig
from disc.program import sizes
from disc.program.access import LISTS, Access, Accesses, ListState, Space, Window, row_slots
from disc.program.fields import (
    TOKEN_BITS,
    Command,
    Queue,
    address,
    flag,
    operand,
    stride,
)


@dataclass(frozen=True, kw_only=True)
class RowCommand(Command):
    """Base of commands on the rows of a list buffer."""

    list: int = operand("list buffer that names the rows' tokens", LISTS - 1)
    rows: int = operand(
        "most rows; a shorter list has fewer",
        sizes.most_rows,
        low=1,
        unit="row",
        why="memory.query_rows",
    )

    def window(self, lists: Mapping[int, Window]) -> Window:
        """What the list buffer holds, cut to `rows`."""
        if self.list not in lists:
            raise ValueError(f"list: buffer {self.list} is read before it was loaded")
        held = lists[self.list]
        if held.rows > self.rows:
            raise ValueError(
                f"rows: list buffer {self.list} may hold {held.rows} entries, the command takes "
                f"{self.rows}"
            )
        return held

    def reads_list(self) -> Access:
        """The list buffer."""
        return Access(Space.LIST, False, self.list, 1)


@dataclass(frozen=True, kw_only=True)
class LoadList(Command):
    """Entries `first` to `first + rows - 1` of a list in DRAM into a list buffer.

    Where the list ends earlier the buffer holds fewer, perhaps none; commands on the buffer then
    do as much less, so one program serves lists of any length.
    """

    OPCODE: ClassVar[int] = 1
    QUEUE: ClassVar[Queue] = Queue.LOAD
    NAME: ClassVar[str] = "load_list"

    list: int = operand("list buffer", LISTS - 1)
    dram: int = address("list: length uint32, then token indices uint32", align=4)
    first: int = operand("first entry", (1 << TOKEN_BITS) - 1, unit="entry")
    rows: int = operand(
        "most entries", sizes.most_rows, low=1, unit="entry", why="memory.query_rows"
    )
    tokens: int = operand("N; every entry is below it", 1 << TOKEN_BITS, low=1, unit="token")

    def accesses(self, config: CoreConfig, lists: Mapping[int, Window]) -> Accesses:
        """See `Command.accesses`."""
        entries = self.dram + sizes.LIST_HEADER_BYTES + self.first * sizes.ENTRY_BYTES
        # No more of the list is touched than N entries can be.
        rows = min(self.rows, self.tokens - self.first)
        return [
            Access(Space.DRAM, False, self.dram, sizes.LIST_HEADER_BYTES),
            Access(Space.DRAM, False, entries, rows * sizes.ENTRY_BYTES),
            Access(Space.LIST, True, self.list, 1),
        ]

    def follow(self, lists: ListState) -> None:
        """See `Command.follow`."""
        rows = min(self.rows, self.tokens - self.first)
        lists.load(self.list, self.dram, self.first, rows, self.tokens)

    def check(self, config: CoreConfig) -> None:
        """See `Command.check`."""
        if self.first >= self.tokens:
            raise ValueError(f"first: must be below tokens = {self.tokens}, got {self.first}")


@dataclass(frozen=True, kw_only=True)
class LoadColumns(Command):
    """Rows of a matrix in DRAM as columns into the banks.

    Column j is the matrix row at `dram + j * stride`.  It goes into bank hash(j), word n of it to
    `base + n * ceil(columns / B) + local(j)`; its last word is filled up with zeros.
    """

    OPCODE: ClassVar[int] = 2
    QUEUE: ClassVar[Queue] = Queue.LOAD
    NAME: ClassVar[str] = "load_columns"

    dram: int = address("element 0 of column 0, signed operands of a byte")
    stride: int = stride("from column to column")
    columns: int = operand(
        "columns", sizes.most_columns, low=1, unit="column", why="memory.columns"
    )
    width: int = operand("elements of a column", sizes.most_elements, low=1, unit="element")
    base: int = operand("first bank word", sizes.last_word, unit="word", why="memory.bank_words")

    def check(self, config: CoreConfig) -> None:
        """See `Command.check`."""
        length = sizes.groups(self.columns, config) * sizes.words(self.width, config)
        sizes.require_room("base", "the tile", self.base, length, config.memory.bank_words, "word")

    def accesses(self, config: CoreConfig, lists: Mapping[int, Window]) -> Accesses:
        """See `Command.accesses`."""
        length = sizes.groups(self.columns, config) * sizes.words(self.width, config)
        return [
            Access(Space.DRAM, False, self.dram, self.width, self.stride, self.columns),
            Access(Space.BANKS, True, self.base, length, columns=self.columns),
        ]


@dataclass(frozen=True, kw_only=True)
class LoadConstants(Command):
    """Bias, multiplier and shift of columns into the banks' constants, hashed as the columns."""

    OPCODE: ClassVar[int] = 3
    QUEUE: ClassVar[Queue] = Queue.LOAD
    NAME: ClassVar[str] = "load_constants"

    dram: int = address("column 0: bias int32, multiplier uint16, shift uint8, 0", align=4)
    columns: int = operand(
        "columns", sizes.most_columns, low=1, unit="column", why="memory.columns"
    )
    base: int = operand("first entry of every bank", sizes.last_constant, unit="entry")

    def check(self, config: CoreConfig) -> None:
        """See `Command.check`."""
        size = sizes.constant_entries(config)
        length = sizes.groups(self.columns, config)
        sizes.require_room("base", "the tile", self.base, length, size, "entry")

    def accesses(self, config: CoreConfig, lists: Mapping[int, Window]) -> Accesses:
        """See `Command.accesses`."""
        return [
            Access(Space.DRAM, False, self.dram, self.columns * sizes.CONSTANT_BYTES),
            Access(
                Space.CONSTANTS,
                True,
                self.base,
                sizes.groups(self.columns, config),
                columns=self.columns,
            ),
        ]


@dataclass(frozen=True, kw_only=True)
class LoadTable(Command):
    """A GELU table, one byte an entry, that of the most negative input first."""

    OPCODE: ClassVar[int] = 4
    QUEUE: ClassVar[Queue] = Queue.LOAD
    NAME: ClassVar[str] = "load_table"

    dram: int = address("2**operand_bits signed bytes")

    def accesses(self, config: CoreConfig, lists: Mapping[int, Window]) -> Accesses:
        """See `Command.accesses`."""
        return [
            Access(Space.DRAM, False, self.dram, sizes.table_bytes(config)),
            Access(Space.TABLE, True, 0, 1),
        ]


@dataclass(frozen=True, kw_only=True)
class LoadRows(RowCommand):
    """Gather operand rows into the row buffer: row slot s takes words from `base + s * words`."""

    OPCODE: ClassVar[int] = 5
    QUEUE: ClassVar[Queue] = Queue.LOAD
    NAME: ClassVar[str] = "load_rows"

    dram: int = address("element 0 of token 0, signed operands of a byte")
    stride: int = stride("from token to token")
    width: int = operand("elements of a row", sizes.most_elements, low=1, unit="element")
    base: int = operand("first word of the row buffer", sizes.last_row_word, unit="word")

    def check(self, config: CoreConfig) -> None:
        """See `Command.check`."""
        length = self.rows * sizes.words(self.width, config)
        sizes.require_room("base", "the rows", self.base, length, config.query_words, "word")

    def accesses(self, config: CoreConfig, lists: Mapping[int, Window]) -> Accesses:
        """See `Command.accesses`."""
        window = self.window(lists)
        words = sizes.words(self.width, config)
        return [
            self.reads_list(),
            Access(Space.DRAM, False, self.dram, self.width, self.stride, window=window),
            row_slots(Space.ROWS, True, self.base, self.rows, words),
        ]


@dataclass(frozen=True, kw_only=True)
class LoadMasks(RowCommand):
    """Gather mask rows into the mask memory, row slot `slot + s` for entry s of the list."""

    OPCODE: ClassVar[int] = 6
    QUEUE: ClassVar[Queue] = Queue.LOAD
    NAME: ClassVar[str] = "load_masks"

    dram: int = address("mask of token 0, lines of the mask memory in bank order")
    stride: int = stride("from token to token", default=0)
    columns: int = operand(
        "columns", sizes.most_columns, low=1, unit="column", why="memory.columns"
    )
    slot: int = operand("first row slot", sizes.last_mask_slot, unit="row slot")
    single: int = flag("one mask, at `dram`, into one slot; the list does not matter")

    def check(self, config: CoreConfig) -> None:
        """See `Command.check`."""
        rows = 1 if self.single else self.rows
        sizes.require_room("slot", "the tile", self.slot, rows, config.memory.query_rows, "slot")

    def accesses(self, config: CoreConfig, lists: Mapping[int, Window]) -> Accesses:
        """See `Command.accesses`."""
        return mask_accesses(self, config, lists, to_dram=False)


def mask_accesses(
    command: RowCommand, config: CoreConfig, lists: Mapping[int, Window], *, to_dram: bool
) -> Accesses:
    """Accesses of a command that moves mask rows; it has the fields of `LoadMasks`."""
    fields = command.values()
    length = sizes.mask_row_bytes(fields["columns"], config)
    dram, slot = fields["dram"], fields["slot"]
    if fields["single"]:
        return [
            Access(Space.DRAM, to_dram, dram, length),
            Access(Space.MASK, not to_dram, slot, 1),
        ]
    window = command.window(lists)
    return [
        command.reads_list(),
        Access(Space.DRAM, to_dram, dram, length, fields["stride"], window=window),
        row_slots(Space.MASK, not to_dram, slot, command.rows, 1),
    ]
