"""What a command touches: regions of DRAM and of the core's memories."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from disc.config import CoreConfig
from disc.hashing import BankHash

LISTS = 4
"""Row lists that the core holds at a time."""


class Space(Enum):
    """A memory."""

    DRAM = "DRAM"
    BANKS = "BANKS"
    CONSTANTS = "CONSTANTS"
    TABLE = "TABLE"
    ROWS = "ROWS"
    MASK = "MASK"
    LIST = "LIST"

    @property
    def unit(self) -> str:
        """In what its regions are counted; in BANKS and CONSTANTS one of every bank."""
        return {
            Space.DRAM: "byte",
            Space.CONSTANTS: "entry",
            Space.TABLE: "table",
            Space.MASK: "row slot",
            Space.LIST: "list",
        }.get(self, "word")

    def size(self, config: CoreConfig) -> int:
        """Units that a core has; DRAM has no size of its own."""
        return {
            Space.BANKS: config.memory.bank_words,
            Space.CONSTANTS: constant_entries(config),
            Space.TABLE: 1,
            Space.ROWS: config.query_words,
            Space.MASK: config.memory.query_rows,
            Space.LIST: LISTS,
            Space.DRAM: 1 << 40,
        }[self]


def constant_entries(config: CoreConfig) -> int:
    """Entries of each bank's constants: those of two column tiles."""
    return 2 * config.columns_per_bank


@dataclass(frozen=True)
class Window:
    """What a list buffer holds: up to `rows` entries of a list in DRAM, from entry `first`.

    Entries of one list are distinct, so two windows of it that do not overlap name other tokens.
    """

    list: int
    """Byte address of the list."""
    version: int
    """Counts the times that a command has written the list."""
    first: int
    rows: int
    tokens: int
    """Entries are below it."""


@dataclass(frozen=True)
class Access:
    """A region that a command reads or writes at most.

    `rows` rows of `length` units, `stride` apart; in place of rows 0, 1, ... those of the tokens
    in `window`, if there is one.  In BANKS and CONSTANTS a unit is a word of every bank.
    """

    space: Space
    write: bool
    start: int
    length: int
    stride: int = 0
    rows: int = 1
    window: Window | None = None
    per_row: bool = False
    """Whether there are as many rows as the command's list has, `rows` at most."""
    columns: int = 0
    """BANKS, CONSTANTS: columns of the tile; the last group may leave some banks out."""

    @property
    def end(self) -> int:
        """First unit behind the region, whatever the tokens are."""
        rows = self.window.tokens if self.window else self.rows
        return self.start + (rows - 1) * self.stride + self.length

    @property
    def units(self) -> int:
        """Units touched at most."""
        return (self.window.rows if self.window else self.rows) * self.length

    def indices(self, tokens: NDArray[np.int64] | None = None) -> NDArray[np.int64] | slice:
        """Return the units touched, given the tokens of the window."""
        if self.window is None and (self.rows == 1 or self.stride == self.length):
            return slice(self.start, self.start + self.rows * self.length)
        rows = np.arange(self.rows) if self.window is None else tokens
        if rows is None:
            raise ValueError("tokens: a region that follows a list needs its tokens")
        offsets = self.start + np.asarray(rows, dtype=np.int64)[:, None] * self.stride
        return np.asarray(offsets + np.arange(self.length), dtype=np.int64).ravel()

    def overlaps(self, other: Access) -> bool:
        """Whether two regions may share a unit; False is certain, True may be cautious."""
        if self.space is not other.space:
            return False
        if self.end <= other.start or other.end <= self.start:
            return False
        if self.stride != other.stride or not self.stride:
            return True
        # Rows of equal stride: either the columns or the rows may keep the regions apart.
        apart = (other.start - self.start) % self.stride
        if self.length <= apart and apart + other.length <= self.stride:
            return False
        return not self._rows_apart(other)

    def _rows_apart(self, other: Access) -> bool:
        a, b = self.window, other.window
        if a is None or b is None or (a.list, a.version) != (b.list, b.version):
            return False
        # Both must lie within one row, so that different tokens are different rows.
        start = min(self.start, other.start)
        if max(self.start + self.length, other.start + other.length) > start + self.stride:
            return False
        return a.first + a.rows <= b.first or b.first + b.rows <= a.first

    def covers(self, other: Access) -> bool:
        """Whether this region holds all of another; True is certain, False may be cautious."""
        if self.space is not other.space:
            return False
        solid = self.window is None and (self.rows == 1 or self.stride == self.length)
        if solid:
            return self.start <= other.start and other.end <= self.end
        if self.stride != other.stride:
            return False
        if not (
            self.start <= other.start and other.start + other.length <= self.start + self.length
        ):
            return False
        a, b = self.window, other.window
        if a is None:
            return (b.tokens if b else other.rows) <= self.rows
        if b is None or (a.list, a.version) != (b.list, b.version):
            return False
        return a.first <= b.first and b.first + b.rows <= a.first + a.rows


Accesses = list[Access]


def row_slots(space: Space, write: bool, start: int, rows: int, length: int) -> Access:
    """Slots of `length` units for the rows of the command's list, one behind the other."""
    return Access(space, write, start, length, length, rows, per_row=True)


def column_slots(
    hash_: BankHash, base: int, columns: int, words: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Bank and word, [columns, words] each, of every column of a tile that begins at `base`."""
    j = np.arange(columns)
    word = base + np.arange(words) * -(-columns // hash_.banks) + hash_.local(j)[:, None]
    return np.broadcast_to(hash_.bank(j)[:, None], word.shape), word


class ListState:
    """What the list buffers hold while commands follow each other in program order."""

    def __init__(self) -> None:
        self.windows: dict[int, Window] = {}
        self._versions: dict[int, int] = {}

    def version(self, address: int) -> int:
        """How many commands have written the list at a DRAM address."""
        return self._versions.get(address, 0)

    def load(self, buffer: int, address: int, first: int, rows: int, tokens: int) -> None:
        """Note that a buffer is filled."""
        self.windows[buffer] = Window(address, self.version(address), first, rows, tokens)

    def written(self, address: int) -> None:
        """Note that a command writes the list at a DRAM address."""
        self._versions[address] = self.version(address) + 1
