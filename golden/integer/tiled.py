"""Attention over more keys than fit at a time: key tiles with a running maximum.

After a tile a row's state is (maximum, total, sums), relative to the maximum of the keys so far.
Two states are brought to the larger maximum by a shift and added.  The maximum is a whole power of
two, so nothing is lost but the rounding of the smaller state.

A mask over several tiles needs the total of the whole row first; a second pass over the tiles takes
numerators relative to the row's maximum, compares, and sums the kept columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from disc.config import NumberConfig
from disc.hashing import BankHash
from disc.program import FuseCommand, MaskMode
from golden.integer.fused import checked_mask, fill_hash
from golden.integer.matmul import exact_matmul
from golden.integer.new_mask import new_mask
from golden.integer.rounding import Int, require_range, round_shift, saturate
from golden.integer.sharing import guarded
from golden.integer.softmax import (
    integer_maximum,
    normalise,
    numerators,
    requantise_score,
)

MAX_SHIFT = 63
"""A difference of maxima above it shifts as far: every accumulator has gone to 0 long before."""


class Scales(Protocol):
    """The scales of a `FuseCommand` or of an `Attend`."""

    @property
    def score_multiplier(self) -> int:
        """Dot product to score."""

    @property
    def score_shift(self) -> int:
        """The same."""


@dataclass(frozen=True, eq=False)
class RowState:
    """What is known of each row after some key tiles."""

    maximum: Int
    """[rows], whole units of log2; `empty_maximum` where no column was kept."""
    total: Int
    """[rows], unsigned."""
    acc: Int
    """[rows, d], signed `accumulator_bits`."""


def empty_maximum(number: NumberConfig) -> int:
    """Maximum of no column: below that of any score, so that any other state wins."""
    return -(1 << (number.score_bits - number.score_fraction_bits))


def tile_scores(q: Int, k: Int, scales: Scales, number: NumberConfig) -> Int:
    """Scores [rows, columns] of a tile's keys, exactly as in `fused_attention`."""
    dot = exact_matmul(q, k.T)
    require_range("dot", dot, number.accumulator_bits)
    return requantise_score(dot, scales.score_multiplier, scales.score_shift, number)


def tile_state(
    score: Int, keep: NDArray[np.bool_], v: Int, number: NumberConfig
) -> tuple[RowState, Int]:
    """State of the kept columns of one tile, and their numerators [rows, columns]."""
    maximum = integer_maximum(score, keep, number)
    numerator = np.where(keep, numerators(score, maximum, number), 0)
    maximum = np.where(keep.any(axis=1), maximum, empty_maximum(number))
    return sums_of(numerator, maximum, v, number), numerator


def sums_of(numerator: Int, maximum: Int, v: Int, number: NumberConfig) -> RowState:
    """State of numerators that are relative to a given maximum."""
    acc = exact_matmul(numerator, v)
    require_range("acc", acc, number.accumulator_bits)
    return RowState(maximum, numerator.sum(axis=1), acc)


def merge(a: RowState, b: RowState, number: NumberConfig) -> RowState:
    """Bring two states to the larger maximum and add them, row by row."""
    maximum = np.maximum(a.maximum, b.maximum)
    total, acc = np.zeros_like(a.total), np.zeros_like(a.acc)
    for state in (a, b):
        shift = np.minimum(maximum - state.maximum, MAX_SHIFT)
        total = total + round_shift(state.total, shift)
        acc = acc + round_shift(state.acc, shift[:, None])
    require_range("acc", acc, number.accumulator_bits)
    return RowState(maximum, total, acc)


def mark(
    score: Int,
    whole: RowState,
    threshold: int,
    own: Int | None,
    v: Int,
    number: NumberConfig,
    fill: BankHash | None = None,
) -> tuple[NDArray[np.bool_], RowState]:
    """Second pass of GENERATE over one tile.

    Parameters
    ----------
    score
        [rows, columns] of the tile.
    whole
        State of the whole rows.
    threshold
        As in `FuseCommand`.
    own
        [rows], index in the tile of the row's own column, outside [0, columns) if it is in another
        tile; None keeps no diagonal.
    fill
        Columns to banks: the tile's banks are filled up, see `new_mask.filled`.

    Returns
    -------
    Mask of the tile [rows, columns], and the sums over its kept columns, relative to
    `whole.maximum`.
    """
    numerator = numerators(score, whole.maximum, number)
    keep = new_mask(numerator, whole.total, threshold, own, fill)
    return keep, sums_of(np.where(keep, numerator, 0), whole.maximum, v, number)


def residual_of(dense: RowState, kept: RowState, command: FuseCommand, number: NumberConfig) -> Int:
    """What a mask drops: [rows, d] signed `sharing_bits`."""
    whole = guarded(dense.acc, dense.total, command, number)
    masked = guarded(kept.acc, kept.total, command, number)
    return saturate(whole - masked, number.sharing_bits)


@dataclass(frozen=True, eq=False)
class TiledResult:
    """Result of `tiled_attention`."""

    state: RowState
    """Of the whole rows."""
    out: Int
    """[rows, d] `operand_bits`; dense with GENERATE."""
    mask: NDArray[np.bool_]
    """[rows, columns], kept columns or the new mask."""
    kept: RowState | None
    """Sums over the columns of a new mask."""


def tiled_attention(
    q: Int,
    k: Int,
    v: Int,
    command: FuseCommand,
    number: NumberConfig,
    *,
    tile: int,
    mask: NDArray[np.bool_] | None = None,
    tokens: Int | None = None,
    hash_: BankHash | None = None,
) -> TiledResult:
    """As `fused_attention`, `tile` columns at a time; with one tile the same to the bit.

    With `fill` each tile's banks are filled up.

    How far the result may be from that of one tile: every numerator is rounded by at most 1 unit in
    both, every merge by 1/2, so with n columns and T tiles total and sums differ, before division,
    by at most `2 n + T` and `2^(operand_bits - 1) * 2 n + T` units of the last maximum.
    """
    if tile < 1:
        raise ValueError(f"tile: must be at least 1, got {tile}")
    rows, columns = len(q), len(k)
    tokens = np.arange(rows) if tokens is None else tokens
    keep = np.ones((rows, columns), dtype=bool)
    if command.mode == MaskMode.MASKED:
        keep = checked_mask(mask, rows, columns)
    parts = [slice(start, min(start + tile, columns)) for start in range(0, columns, tile)]
    scores = [tile_scores(q, k[part], command, number) for part in parts]
    whole: RowState | None = None
    for score, part in zip(scores, parts, strict=True):
        state, _ = tile_state(score, keep[:, part], v[part], number)
        whole = state if whole is None else merge(whole, state, number)
    assert whole is not None
    kept: RowState | None = None
    if command.mode == MaskMode.GENERATE:
        for score, part in zip(scores, parts, strict=True):
            own = tokens - part.start if command.diagonal else None
            keep[:, part], sums = mark(
                score,
                whole,
                command.threshold,
                own,
                v[part],
                number,
                fill_hash(command, hash_),
            )
            kept = sums if kept is None else merge(kept, sums, number)
    out = normalise(whole.acc, whole.total, command.output_multiplier, command.output_shift, number)
    return TiledResult(whole, out, keep, kept)
