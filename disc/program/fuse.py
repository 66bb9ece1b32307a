"""Commands that hardware, golden executor and cycle model share.

So far there is one: `FuseCommand`, the fused operation `y_i = sum_j f(q_i . k_j) v_j` of one
attention head over the columns that a mask keeps.  Field widths follow from the configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any

from disc.config import CoreConfig
from disc.tables import MULTIPLIER_BITS, SHIFT_BITS, THRESHOLD_BITS


class Function(IntEnum):
    """What f is."""

    SOFTMAX = 0
    """Base-2 numerator; the row is divided by their sum."""
    GELU = 1
    """Bias, requantisation and a table: an operand."""
    PROJECT = 2
    """Nothing: dot products leave, and there is no axpy."""


class MaskMode(IntEnum):
    """Which columns a row keeps."""

    DENSE = 0
    """All of them."""
    MASKED = 1
    """Those whose bit in the mask memory is set."""
    GENERATE = 2
    """All of them; columns above the threshold become the mask for later.  With GELU the mask is
    one for all rows: columns that are above it in any row."""


@dataclass(frozen=True, kw_only=True)
class FuseCommand:
    """One head over a list of query rows.  `docs/program.md` is its reference.

    All fields are unsigned integers; `validate` gives the ranges.
    """

    mode: MaskMode
    columns: int
    """Key columns N."""
    beats: int
    """Words of `array.lanes` elements in a row: ceil(head dimension / lanes)."""
    dot_base: int = 0
    """Bank word where the columns of K start."""
    axpy_base: int = 0
    """Bank word where the columns of V start."""
    score_multiplier: int = 0
    score_shift: int = 0
    """Dot product to score: `score_multiplier * 2**-score_shift`, score in units of log2."""
    output_multiplier: int = 0
    output_shift: int = 0
    """Weighted mean of V to result: `output_multiplier * 2**-output_shift`."""
    threshold: int = 0
    """GENERATE keeps probabilities not below `threshold * 2**-20`; GELU: magnitudes above it."""
    diagonal: bool = True
    """GENERATE keeps the row's own column whatever its probability."""
    function: Function = Function.SOFTMAX
    axpy_beats: int = 0
    """GELU: words of a result row; 0 stands for `beats`."""
    row_base: int = 0
    """Word of the row buffer where slot 0 starts."""
    row_stride: int = 0
    """Words from one row slot to the next; 0 stands for those of the longest head."""
    mask_slot: int = 0
    """Slot of the mask memory that belongs to row slot 0."""
    shared_mask: bool = False
    """MASKED: all rows use slot `mask_slot`."""
    constant_base: int = 0
    """GELU: entry of every bank's constants where those of the columns start."""
    raw: bool = False
    """SOFTMAX: sums, total and maximum leave instead of the normalised result."""
    share: bool = False
    """GENERATE: as `raw`, and after each row's sums those over the columns that its mask keeps."""
    mark: bool = False
    """GENERATE: maximum and total come with the rows; only the sums over kept columns leave."""
    fresh: bool = False
    """GELU with GENERATE: forget which columns were hot before."""
    fill: bool = False
    """SOFTMAX with GENERATE: banks are filled up with columns of half the threshold."""

    @staticmethod
    def widths(config: CoreConfig) -> dict[str, int]:
        """Bits of every field, in the order in which hardware packs them from bit 0."""
        words = (config.memory.bank_words - 1).bit_length()
        return {
            "mode": 2,
            "columns": config.column_bits + 1,
            "beats": FuseCommand.most_beats(config).bit_length(),
            "dot_base": words,
            "axpy_base": words,
            "score_multiplier": MULTIPLIER_BITS,
            "score_shift": SHIFT_BITS,
            "output_multiplier": MULTIPLIER_BITS,
            "output_shift": SHIFT_BITS,
            "threshold": THRESHOLD_BITS + 1,
            "diagonal": 1,
            "function": 2,
            "axpy_beats": FuseCommand.most_beats(config).bit_length(),
            "row_base": (config.query_words - 1).bit_length(),
            "row_stride": config.query_words.bit_length(),
            "mask_slot": (config.memory.query_rows - 1).bit_length(),
            "shared_mask": 1,
            "constant_base": (2 * config.columns_per_bank - 1).bit_length(),
            "raw": 1,
            "share": 1,
            "mark": 1,
            "fresh": 1,
            "fill": 1,
        }

    @staticmethod
    def most_beats(config: CoreConfig) -> int:
        """Words of the longest row: one such row fits the row buffer, and one column a bank.

        Sums of so many products fit the accumulators.
        """
        products = config.number.accumulator_bits - (2 * config.number.operand_bits - 1)
        return min(
            config.query_words,
            config.memory.bank_words,
            (1 << products) // config.array.lanes,
        )

    def groups(self, config: CoreConfig) -> int:
        """Columns that the fullest bank holds, ceil(N / B)."""
        return -(-self.columns // config.array.banks)

    def sum_beats(self) -> int:
        """Words of a row of sums."""
        return self.axpy_beats or self.beats

    def stride(self, config: CoreConfig) -> int:
        """Words from one row slot to the next."""
        return self.row_stride or config.max_beats

    def validate(self, config: CoreConfig) -> None:
        """Raise ValueError that names the field and its range if the core cannot execute this."""
        groups = self.groups(config)
        softmax = self.function == Function.SOFTMAX
        shift_limit = (1 << SHIFT_BITS) - 1
        multiplier_limit = (1 << MULTIPLIER_BITS) - 1
        most_beats = config.max_beats if softmax else self.most_beats(config)
        limits = {
            "columns": (1, config.memory.columns),
            "beats": (1, most_beats),
            "axpy_beats": (0, 0 if softmax else most_beats),
            "dot_base": (0, config.memory.bank_words - groups * self.beats),
            "score_multiplier": (0, multiplier_limit),
            "score_shift": (0, shift_limit),
            "output_multiplier": (0, multiplier_limit),
            # The row's own exponent comes on top; together they must fit a 64-bit shift.
            "output_shift": (0, 32),
            "threshold": (0, 1 << THRESHOLD_BITS),
            "row_base": (0, config.query_words - self.beats),
            "row_stride": (0, config.query_words),
            "mask_slot": (0, config.memory.query_rows - 1),
        }
        if self.function != Function.PROJECT:
            last_base = config.memory.bank_words - groups * self.sum_beats()
            limits["axpy_base"] = (0, last_base)
        if self.function == Function.GELU:
            limits["constant_base"] = (0, 2 * config.columns_per_bank - groups)
        # The configuration's field that would have to grow, where it is one.
        sized_by = {
            "columns": "memory.columns",
            "beats": "memory.head_dim" if softmax else "memory.bank_words",
            "dot_base": "memory.bank_words",
            "axpy_base": "memory.bank_words",
        }
        for name, (low, high) in limits.items():
            value = getattr(self, name)
            if not low <= value <= high:
                grow = f"; {sized_by[name]} limits it" if name in sized_by else ""
                raise ValueError(
                    f"{name}: must be in [{low}, {high}] for configuration {config.name!r}, "
                    f"got {value}{grow}"
                )
        if 0 < self.row_stride < self.beats:
            raise ValueError(
                f"row_stride: must be 0 or at least beats = {self.beats}, got {self.row_stride}"
            )
        self._check_overlap(groups)
        self._check_masks()

    def _check_masks(self) -> None:
        making = self.mode == MaskMode.GENERATE
        name = self.function.name
        if self.function == Function.PROJECT and making:
            raise ValueError("function: PROJECT takes no mode GENERATE")
        if self.function != Function.SOFTMAX and (self.raw or self.share or self.mark):
            raise ValueError(
                f"function: {name} takes no raw, share or mark, "
                f"got {self.raw}, {self.share}, {self.mark}"
            )
        for field in ("share", "mark"):
            if getattr(self, field) and not making:
                raise ValueError(f"{field}: needs mode GENERATE, got {self.mode.name}")
        if self.share and self.mark:
            raise ValueError("share, mark: at most one of them, got both")
        if self.fresh and not (making and self.function == Function.GELU):
            raise ValueError(f"fresh: needs GELU and mode GENERATE, got {name}, {self.mode.name}")
        if self.fill and not (making and self.function == Function.SOFTMAX):
            raise ValueError(f"fill: needs SOFTMAX and mode GENERATE, got {name}, {self.mode.name}")

    def _check_overlap(self, groups: int) -> None:
        dot, axpy = groups * self.beats, groups * self.sum_beats()
        if self.function == Function.PROJECT:
            return
        if self.dot_base < self.axpy_base + axpy and self.axpy_base < self.dot_base + dot:
            takes = f"each takes {dot}" if dot == axpy else f"they take {dot} and {axpy}"
            raise ValueError(
                f"axpy_base: V at word {self.axpy_base} overlaps K at word {self.dot_base}; "
                f"{takes} words of a bank"
            )

    def encode(self) -> dict[str, int]:
        """Return the fields as plain integers, named as in `widths`."""
        return {f.name: int(getattr(self, f.name)) for f in fields(self)}

    @classmethod
    def decode(cls, values: Mapping[str, int]) -> FuseCommand:
        """Undo `encode`."""
        kinds: dict[str, Callable[[int], Any]] = {"mode": MaskMode, "function": Function}
        return cls(**{name: kinds.get(name, int)(value) for name, value in values.items()})
