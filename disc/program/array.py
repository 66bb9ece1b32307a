"""Commands of the array queue: the fused operation; projections and the MLP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from disc.config import CoreConfig
from disc.program import sizes
from disc.program.access import Access, Accesses, Space, Window, row_slots
from disc.program.fields import (
    MAX_CHANNELS,
    Queue,
    address,
    flag,
    operand,
    stride,
)
from disc.program.fuse import MaskMode
from disc.program.load import RowCommand


class ProjectEpilogue(IntEnum):
    """What becomes of a projection's accumulators."""

    OPERAND = 0
    """Requantised to an operand of a byte."""
    WIDE = 1
    """Requantised to int16."""
    GATE = 2
    """Times a gate vector, added to the residual stream."""


@dataclass(frozen=True, kw_only=True)
class Fuse(RowCommand):
    """What the three functions share."""

    row_base: int = operand("first word of the row buffer", sizes.last_row_word, unit="word")
    width: int = operand("elements of a row", sizes.most_elements, low=1, unit="element")
    columns: int = operand(
        "columns of the tile", sizes.most_columns, low=1, unit="column", why="memory.columns"
    )
    dot_base: int = operand(
        "bank word of the columns for dot", sizes.last_word, unit="word", why="memory.bank_words"
    )

    def check_rows(self, config: CoreConfig) -> None:
        """Raise ValueError if the rows leave the row buffer."""
        length = self.rows * sizes.words(self.width, config)
        sizes.require_room(
            "row_base", "the rows", self.row_base, length, config.query_words, "word"
        )

    def tile(self, width: int, config: CoreConfig) -> int:
        """Bank words of the columns at a width."""
        return sizes.groups(self.columns, config) * sizes.words(width, config)

    def check_tile(self, name: str, width: int, config: CoreConfig) -> None:
        """Raise ValueError if the columns at a base leave the banks."""
        size = config.memory.bank_words
        base = getattr(self, name)
        sizes.require_room(name, "the tile", base, self.tile(width, config), size, "word")

    def banks(self, base: int, width: int, config: CoreConfig) -> Access:
        """The columns in the banks."""
        return Access(Space.BANKS, False, base, self.tile(width, config), columns=self.columns)

    def reads(self, config: CoreConfig) -> Accesses:
        """List, rows and columns for dot."""
        words = sizes.words(self.width, config)
        return [
            self.reads_list(),
            row_slots(Space.ROWS, False, self.row_base, self.rows, words),
            self.banks(self.dot_base, self.width, config),
        ]

    def _check_constants(self, base: int, config: CoreConfig) -> None:
        size, length = sizes.constant_entries(config), sizes.groups(self.columns, config)
        sizes.require_room("constants", "the tile", base, length, size, "entry")

    def _constants(self, base: int, config: CoreConfig) -> Access:
        length = sizes.groups(self.columns, config)
        return Access(Space.CONSTANTS, False, base, length, columns=self.columns)


@dataclass(frozen=True, kw_only=True)
class Project(Fuse):
    """Rows times columns plus bias, column by column to DRAM: y_ij = g(x_i . w_j + b_j)."""

    OPCODE: ClassVar[int] = 16
    QUEUE: ClassVar[Queue] = Queue.ARRAY
    NAME: ClassVar[str] = "project"

    constants: int = operand("first entry of the columns' constants", sizes.last_constant)
    epilogue: ProjectEpilogue = operand("what becomes of an accumulator", ProjectEpilogue)
    first_column: int = operand("column of the layer that is column 0 here", MAX_CHANNELS * 4 - 1)
    dram: int = address("result of token 0 and column 0 of the layer")
    stride: int = stride("from token to token")
    gate: int = address(
        "GATE: shift uint16, 6 zero bytes, multipliers int16, that of column 0 of the layer first",
        align=2,
        default=0,
    )

    def check(self, config: CoreConfig) -> None:
        """See `Command.check`."""
        self.check_rows(config)
        self.check_tile("dot_base", self.width, config)
        self._check_constants(self.constants, config)
        if self.epilogue != ProjectEpilogue.OPERAND and (self.dram | self.stride) & 1:
            raise ValueError(
                f"dram, stride: must be even for int16, got {self.dram}, {self.stride}"
            )

    def accesses(self, config: CoreConfig, lists: Mapping[int, Window]) -> Accesses:
        """See `Command.accesses`."""
        window = self.window(lists)
        size = 1 if self.epilogue == ProjectEpilogue.OPERAND else 2
        start, length = self.dram + self.first_column * size, self.columns * size
        found = [*self.reads(config), self._constants(self.constants, config)]
        if self.epilogue == ProjectEpilogue.GATE:
            offset = sizes.HEADER_BYTES + self.first_column * sizes.VECTOR_BYTES
            found += [
                Access(Space.DRAM, False, self.gate, sizes.HEADER_BYTES),
                Access(Space.DRAM, False, self.gate + offset, self.columns * sizes.VECTOR_BYTES),
                Access(Space.DRAM, False, start, length, self.stride, window=window),
            ]
        return [*found, Access(Space.DRAM, True, start, length, self.stride, window=window)]

    def array_cycles(self, config: CoreConfig) -> int:
        """See `Command.array_cycles`."""
        return self.rows * self.tile(self.width, config)


@dataclass(frozen=True, kw_only=True)
class Mlp(Fuse):
    """Hidden units of a tile: y_i = sum over j of GELU(x_i . w_j + b_j) v_j.

    A row's sums over several tiles meet in DRAM; the last one adds fc2's bias, gates, and adds to
    the residual stream.  The mask is one for all rows: which columns are hot.
    """

    OPCODE: ClassVar[int] = 17
    QUEUE: ClassVar[Queue] = Queue.ARRAY
    NAME: ClassVar[str] = "mlp"

    axpy_base: int = operand(
        "bank word of the columns for axpy", sizes.last_word, unit="word", why="memory.bank_words"
    )
    out_width: int = operand(
        "elements of a result row",
        sizes.most_channels,
        low=1,
        unit="element",
        why="vector.max_channels",
    )
    constants: int = operand("first entry of the columns' constants", sizes.last_constant)
    mode: MaskMode = operand(
        "DENSE: all columns; MASKED: the hot ones; GENERATE: all, and note which are hot", MaskMode
    )
    slot: int = operand("row slot of the mask memory", sizes.last_mask_slot, default=0)
    fresh: int = flag("GENERATE: begin with no hot column; else add to those of earlier rows")
    threshold: int = operand(
        "GENERATE: a column is hot if any row's magnitude is above", (1 << 8) - 1, default=0
    )
    first: int = flag("first tile: no earlier sums", default=1)
    last: int = flag("last tile: gate; else leave sums in `partial`", default=1)
    partial: int = address("sums of the rows of this list window", align=4, default=0)
    bias: int = address("fc2's bias, accumulators", align=4, default=0)
    gate: int = address("shift uint16, 6 zero bytes, multipliers int16", align=2, default=0)
    dram: int = address("element 0 of token 0 of the residual stream", align=2, default=0)
    stride: int = stride("from token to token", align=2, default=0)

    def check(self, config: CoreConfig) -> None:
        """See `Command.check`."""
        self.check_rows(config)
        self.check_tile("dot_base", self.width, config)
        self.check_tile("axpy_base", self.out_width, config)
        self._check_constants(self.constants, config)
        lengths = (self.tile(self.width, config), self.tile(self.out_width, config))
        parts = (("fc1", self.dot_base), ("fc2", self.axpy_base))
        sizes.require_apart("axpy_base", parts, lengths)

    def accesses(self, config: CoreConfig, lists: Mapping[int, Window]) -> Accesses:
        """See `Command.accesses`."""
        window = self.window(lists)
        found = [
            *self.reads(config),
            self._constants(self.constants, config),
            Access(Space.TABLE, False, 0, 1),
            self.banks(self.axpy_base, self.out_width, config),
        ]
        if self.mode == MaskMode.MASKED or (self.mode == MaskMode.GENERATE and not self.fresh):
            found.append(Access(Space.MASK, False, self.slot, 1))
        if self.mode == MaskMode.GENERATE:
            found.append(Access(Space.MASK, True, self.slot, 1))
        sums = self.out_width * sizes.accumulator_bytes(config)
        if not self.first:
            found.append(row_slots(Space.DRAM, False, self.partial, self.rows, sums))
        if not self.last:
            return [*found, row_slots(Space.DRAM, True, self.partial, self.rows, sums)]
        gate = sizes.HEADER_BYTES + self.out_width * sizes.VECTOR_BYTES
        length = self.out_width * sizes.RESIDUAL_BYTES
        return [
            *found,
            Access(Space.DRAM, False, self.bias, sums),
            Access(Space.DRAM, False, self.gate, gate),
            Access(Space.DRAM, False, self.dram, length, self.stride, window=window),
            Access(Space.DRAM, True, self.dram, length, self.stride, window=window),
        ]

    def array_cycles(self, config: CoreConfig) -> int:
        """See `Command.array_cycles`."""
        return self.rows * (self.tile(self.width, config) + self.tile(self.out_width, config))
