"""What lowering needs to know of a block besides its tensors."""

from __future__ import annotations

from dataclasses import dataclass

from disc.program import FuseCommand, MaskMode
from disc.program.fields import MAX_CHANNELS, TOKEN_BITS


@dataclass(frozen=True)
class BlockShape:
    """Sizes of a DiT block."""

    tokens: int
    """N."""
    width: int
    """D."""
    heads: int
    hidden: int
    """Hidden units of the MLP."""

    def __post_init__(self) -> None:
        limits = {
            "tokens": 1 << TOKEN_BITS,
            "width": MAX_CHANNELS,
            "heads": self.width,
            "hidden": 4 * MAX_CHANNELS,
        }
        for name, most in limits.items():
            if not 1 <= getattr(self, name) <= most:
                raise ValueError(f"{name}: must be in [1, {most}], got {getattr(self, name)}")
        if self.width % self.heads:
            raise ValueError(f"width: must be a multiple of heads ({self.heads}), got {self.width}")

    @property
    def head_dim(self) -> int:
        """Elements of a head's query, key or value."""
        return self.width // self.heads


@dataclass(frozen=True)
class BlockScalars:
    """Numbers of a block that are fields of commands."""

    heads: tuple[FuseCommand, ...]
    """One a head: scales, and whether the diagonal is kept; the other fields say nothing here."""
    attention_epsilon: int
    mlp_epsilon: int
    hot_threshold: int | None = None
    """A hidden unit is hot above it; None: there are no hot columns."""

    @staticmethod
    def blank(shape: BlockShape) -> BlockScalars:
        """Numbers that mean nothing, for counting."""
        head = FuseCommand(
            mode=MaskMode.DENSE,
            columns=1,
            beats=1,
            dot_base=0,
            axpy_base=1,
            score_multiplier=1,
            score_shift=0,
            output_multiplier=1,
            output_shift=32,
        )
        return BlockScalars((head,) * shape.heads, 0, 0, 0)


@dataclass(frozen=True)
class StepKind:
    """What a block does in a step; programs of equal kind differ in nothing but data."""

    rows: int
    """Most tokens that are computed; the list may be shorter."""
    mode: MaskMode = MaskMode.DENSE
    """Of attention."""
    threshold: int = 0
    """GENERATE, as in `FuseCommand`."""
    share_residual: bool = True
    """GENERATE gives the dense result and keeps what the mask drops; MASKED adds it."""
    hot: MaskMode = MaskMode.DENSE
    """Hidden units: DENSE all, GENERATE all and note the hot ones, MASKED the hot ones."""
    fill: bool = False
    """GENERATE fills masks up: each bank keeps as many columns as the fullest one, if it can."""


@dataclass(frozen=True)
class RowList:
    """A list in DRAM and how much of it is worked on."""

    address: int
    rows: int
    """Most entries."""
    tokens: int
    """N; entries are below it."""
