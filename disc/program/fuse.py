"""Commands that hardware, golden executor and cycle model share.

So far there is one: `FuseCommand`, the fused operation `y_i = sum_j f(q_i . k_j) v_j` of one
attention head over the columns that a mask keeps.  Field widths follow from the configuration.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum

from disc.config import CoreConfig
from disc.tables import MULTIPLIER_BITS, SHIFT_BITS, THRESHOLD_BITS


class MaskMode(IntEnum):
    """Which columns a row keeps."""

    DENSE = 0
    """All of them."""
    MASKED = 1
    """Those whose bit in the mask memory is set."""
    GENERATE = 2
    """All of them; columns above the threshold become the mask for later."""


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
    dot_base: int
    """Bank word where the columns of K start."""
    axpy_base: int
    """Bank word where the columns of V start."""
    score_multiplier: int
    score_shift: int
    """Dot product to score: `score_multiplier * 2**-score_shift`, score in units of log2."""
    output_multiplier: int
    output_shift: int
    """Weighted mean of V to result: `output_multiplier * 2**-output_shift`."""
    threshold: int = 0
    """GENERATE keeps probabilities not below `threshold * 2**-20`."""
    diagonal: bool = True
    """GENERATE keeps the row's own column whatever its probability."""

    @staticmethod
    def widths(config: CoreConfig) -> dict[str, int]:
        """Bits of every field, in the order in which hardware packs them from bit 0."""
        words = (config.memory.bank_words - 1).bit_length()
        return {
            "mode": 2,
            "columns": config.column_bits + 1,
            "beats": config.max_beats.bit_length(),
            "dot_base": words,
            "axpy_base": words,
            "score_multiplier": MULTIPLIER_BITS,
            "score_shift": SHIFT_BITS,
            "output_multiplier": MULTIPLIER_BITS,
            "output_shift": SHIFT_BITS,
            "threshold": THRESHOLD_BITS + 1,
            "diagonal": 1,
        }

    def groups(self, config: CoreConfig) -> int:
        """Columns that the fullest bank holds, ceil(N / B)."""
        return -(-self.columns // config.array.banks)

    def validate(self, config: CoreConfig) -> None:
        """Raise ValueError that names the field and its range if the core cannot execute this."""
        groups = self.groups(config)
        last_base = config.memory.bank_words - groups * self.beats
        shift_limit = (1 << SHIFT_BITS) - 1
        multiplier_limit = (1 << MULTIPLIER_BITS) - 1
        limits = {
            "columns": (1, config.memory.columns),
            "beats": (1, config.max_beats),
            "dot_base": (0, last_base),
            "axpy_base": (0, last_base),
            "score_multiplier": (0, multiplier_limit),
            "score_shift": (0, shift_limit),
            "output_multiplier": (0, multiplier_limit),
            # The row's own exponent comes on top; together they must fit a 64-bit shift.
            "output_shift": (0, 32),
            "threshold": (0, 1 << THRESHOLD_BITS),
        }
        # The configuration's field that would have to grow, where it is one.
        sized_by = {
            "columns": "memory.columns",
            "beats": "memory.head_dim",
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
        if abs(self.dot_base - self.axpy_base) < groups * self.beats:
            raise ValueError(
                f"axpy_base: V at word {self.axpy_base} overlaps K at word {self.dot_base}; "
                f"each takes {groups * self.beats} words of a bank"
            )

    def encode(self) -> dict[str, int]:
        """Return the fields as plain integers, named as in `widths`."""
        return {f.name: int(getattr(self, f.name)) for f in fields(self)}
