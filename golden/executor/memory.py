"""What a core holds, and its DRAM, as the golden executor sees them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from disc.config import CoreConfig
from disc.hashing import BankHash
from disc.program import sizes
from disc.program.access import LISTS, Space, column_slots
from disc.program.masks import pack_masks, unpack_masks
from golden.integer.rounding import Int

Bytes = NDArray[np.uint8]


class Memory:
    """DRAM and the memories of a core.

    Reading core memory that nobody wrote raises ValueError.  With `record` on, `touched` collects
    every unit read or written, by (space, written).

    Parameters
    ----------
    config
        Sizes.
    hash_
        Of columns to banks.
    dram
        Its content; it is changed in place.
    """

    def __init__(self, config: CoreConfig, hash_: BankHash, dram: Bytes) -> None:
        self.config, self.hash, self.dram = config, hash_, dram
        banks, lanes = config.array.banks, config.array.lanes
        self._banks = np.zeros((banks, config.memory.bank_words, lanes), np.int64)
        self._rows = np.zeros((config.query_words, lanes), np.int64)
        self._constants = np.zeros((banks, sizes.constant_entries(config), 3), np.int64)
        self._table = np.zeros(sizes.table_bytes(config), np.int64)
        row = config.mask_words_per_row * sizes.mask_line_bytes(config)
        self._mask = np.zeros((config.memory.query_rows, row), np.uint8)
        self._lists: list[Int] = [np.zeros(0, np.int64)] * LISTS
        # The columns of a last, incomplete group leave words of some banks unwritten.
        self._written = {
            Space.BANKS: np.zeros(self._banks.shape[:2], bool),
            Space.ROWS: np.zeros(len(self._rows), bool),
            Space.CONSTANTS: np.zeros(self._constants.shape[:2], bool),
            Space.TABLE: np.zeros(1, bool),
            Space.MASK: np.zeros(len(self._mask), bool),
            Space.LIST: np.zeros(LISTS, bool),
        }
        self.touched: defaultdict[tuple[Space, bool], set[int]] = defaultdict(set)
        self._recording = False

    @contextmanager
    def record(self) -> Iterator[None]:
        """Collect what is touched meanwhile."""
        self.touched.clear()
        self._recording = True
        yield
        self._recording = False

    def _note(self, space: Space, write: bool, units: Int) -> None:
        if self._recording:
            self.touched[space, write] |= set(np.asarray(units).ravel().tolist())

    def _touch(self, space: Space, write: bool, *index: Int) -> None:
        """Check or set what is written; the last index counts units."""
        self._note(space, write, index[-1])
        written = self._written[space]
        if write:
            written[index] = True
        elif not written[index].all():
            lost = np.asarray(index[-1] + np.zeros_like(written[index]))[~written[index]]
            raise ValueError(f"reads {space.name} {space.unit} {lost[0]}, which nobody wrote")

    # -- DRAM ----------------------------------------------------------------------------------

    def _places(self, start: int, length: int, stride: int, rows: Int) -> Int:
        places = start + rows[:, None] * stride + np.arange(length)
        if places.size and not 0 <= places.min() <= places.max() < len(self.dram):
            raise ValueError(
                f"touches DRAM bytes {places.min()} to {places.max()}, there are {len(self.dram)}"
            )
        return places

    def read(
        self, start: int, count: int, kind: str, *, stride: int = 0, rows: Int | None = None
    ) -> Int:
        """Read `count` numbers of a NumPy type for every row [rows, count]; one row by default."""
        dtype = np.dtype(kind)
        rows = np.zeros(1, np.int64) if rows is None else rows
        places = self._places(start, count * dtype.itemsize, stride, rows)
        self._note(Space.DRAM, False, places)
        return self.dram[places].view(dtype).astype(np.int64).reshape(len(rows), count)

    def write(
        self, values: Int, start: int, kind: str, *, stride: int = 0, rows: Int | None = None
    ) -> None:
        """Write numbers [rows, count]; they must fit the type."""
        dtype = np.dtype(kind)
        rows = np.zeros(1, np.int64) if rows is None else rows
        info = np.iinfo(dtype)
        if values.size and (values.min() < info.min or values.max() > info.max):
            raise ValueError(f"writes {values.min()} .. {values.max()} as {kind}")
        places = self._places(start, values.shape[1] * dtype.itemsize, stride, rows)
        self._note(Space.DRAM, True, places)
        self.dram[places] = np.ascontiguousarray(values.astype(dtype)).view(np.uint8)

    # -- banks and constants -------------------------------------------------------------------

    def _slots(self, base: int, columns: int, words: int) -> tuple[Int, Int]:
        """Bank [columns, 1] and word [columns, words] of every column."""
        return column_slots(self.hash, base, columns, words)

    def put_columns(self, base: int, columns: Int) -> None:
        """Write operands [columns, width]."""
        lanes = self.config.array.lanes
        words = sizes.words(columns.shape[1], self.config)
        slots = self._slots(base, len(columns), words)
        padded = np.zeros((len(columns), words * lanes), np.int64)
        padded[:, : columns.shape[1]] = columns
        self._touch(Space.BANKS, True, *slots)
        self._banks[slots] = padded.reshape(len(columns), words, lanes)

    def columns(self, base: int, count: int, width: int) -> Int:
        """Read operands [count, width]."""
        slots = self._slots(base, count, sizes.words(width, self.config))
        self._touch(Space.BANKS, False, *slots)
        return self._banks[slots].reshape(count, -1)[:, :width]

    def put_constants(self, base: int, values: Int) -> None:
        """Write bias, multiplier and shift [columns, 3]."""
        bank, entry = self._slots(base, len(values), 1)
        self._touch(Space.CONSTANTS, True, bank, entry)
        self._constants[bank[:, 0], entry[:, 0]] = values

    def constants(self, base: int, count: int) -> tuple[Int, Int, Int]:
        """Read biases, multipliers and shifts, [count] each."""
        bank, entry = self._slots(base, count, 1)
        self._touch(Space.CONSTANTS, False, bank, entry)
        found = self._constants[bank[:, 0], entry[:, 0]]
        return found[:, 0], found[:, 1], found[:, 2]

    # -- rows, table, lists --------------------------------------------------------------------

    def put_rows(self, base: int, rows: Int) -> None:
        """Write operand rows [rows, width]."""
        lanes, words = self.config.array.lanes, sizes.words(rows.shape[1], self.config)
        padded = np.zeros((len(rows), words * lanes), np.int64)
        padded[:, : rows.shape[1]] = rows
        place = base + np.arange(len(rows) * words)
        self._touch(Space.ROWS, True, place)
        self._rows[place] = padded.reshape(-1, lanes)

    def rows(self, base: int, count: int, width: int) -> Int:
        """Read operand rows [count, width]."""
        place = base + np.arange(count * sizes.words(width, self.config))
        self._touch(Space.ROWS, False, place)
        return self._rows[place].reshape(count, sizes.words(width, self.config) * self.lanes)[
            :, :width
        ]

    @property
    def lanes(self) -> int:
        """L."""
        return self.config.array.lanes

    def put_table(self, entries: Int) -> None:
        """Write the GELU table."""
        self._touch(Space.TABLE, True, np.zeros(1, np.int64))
        self._table = entries

    def table(self) -> Int:
        """Read the GELU table."""
        self._touch(Space.TABLE, False, np.zeros(1, np.int64))
        return self._table

    def put_list(self, buffer: int, tokens: Int) -> None:
        """Fill a list buffer."""
        self._touch(Space.LIST, True, np.array([buffer]))
        self._lists[buffer] = tokens

    def tokens(self, buffer: int) -> Int:
        """Tokens in a list buffer."""
        self._touch(Space.LIST, False, np.array([buffer]))
        return self._lists[buffer]

    # -- masks ---------------------------------------------------------------------------------

    def put_mask_rows(self, slot: int, rows: Int) -> None:
        """Write mask rows as DRAM holds them, bytes [rows, length]."""
        place = slot + np.arange(len(rows))
        self._touch(Space.MASK, True, place)
        self._mask[place, : rows.shape[1]] = rows

    def mask_rows(self, slot: int, count: int, columns: int) -> Int:
        """Read mask rows as DRAM holds them, bytes [count, length]."""
        place = slot + np.arange(count)
        self._touch(Space.MASK, False, place)
        length = sizes.mask_row_bytes(columns, self.config)
        return self._mask[place, :length].astype(np.int64)

    def put_masks(self, slot: int, masks: NDArray[np.bool_]) -> None:
        """Write mask rows [rows, columns]."""
        self.put_mask_rows(slot, pack_masks(masks, self.hash, self.config))

    def masks(self, slot: int, count: int, columns: int) -> NDArray[np.bool_]:
        """Read mask rows [count, columns]."""
        rows = self.mask_rows(slot, count, columns)
        return unpack_masks(rows, columns, self.hash, self.config)
