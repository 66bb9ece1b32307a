"""Residual sharing: what a mask dropped when it was made is added while it is reused.

At a refresh `residual = dense - masked` is kept per query row and head; until the next one, the
result of a row is `masked + residual`.  Both are normalised with `sharing_guard_bits` below a unit
of the result and rounded once, after the sum.

Both can come from one pass over the columns (the array as built takes a second one over the kept
columns; the values are the same): the kept ones first, a copy of sums and total,
then the dropped ones on top.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from disc.config import NumberConfig
from disc.program import FuseCommand
from disc.tables import RECIPROCAL_BITS, THRESHOLD_BITS
from golden.integer.fused import FusedResult
from golden.integer.matmul import exact_matmul
from golden.integer.rounding import Int, require_range, round_shift, saturate
from golden.integer.softmax import divided, normalise, reciprocal


def kept_sums(result: FusedResult, mask: NDArray[np.bool_], v: Int) -> tuple[Int, Int]:
    """Sums and totals over kept columns, of a result over all columns.

    Numerators stay relative to the maximum over all columns.

    Returns
    -------
    acc [rows, d] and total [rows].
    """
    numerator = np.where(mask, result.numerator, 0)
    return exact_matmul(numerator, v), numerator.sum(axis=1)


def guarded(acc: Int, total: Int, command: FuseCommand, number: NumberConfig) -> Int:
    """As `normalise`, but `sharing_guard_bits` finer and saturated to `sharing_bits`."""
    shift = command.output_shift - number.sharing_guard_bits
    if shift < 0:
        raise ValueError(
            f"output_shift: must be at least sharing_guard_bits = {number.sharing_guard_bits} to "
            f"share residuals, got {command.output_shift}"
        )
    return saturate(divided(acc, total, command.output_multiplier, shift), number.sharing_bits)


def shared_residual(
    result: FusedResult,
    mask: NDArray[np.bool_],
    v: Int,
    command: FuseCommand,
    number: NumberConfig,
) -> Int:
    """What the mask [rows, columns] drops of a dense result: [rows, d] signed `sharing_bits`."""
    dense = guarded(result.acc, result.total, command, number)
    masked = guarded(*kept_sums(result, mask, v), command, number)
    return saturate(dense - masked, number.sharing_bits)


def masked_output(
    result: FusedResult,
    mask: NDArray[np.bool_],
    v: Int,
    command: FuseCommand,
    number: NumberConfig,
) -> Int:
    """Result of a refresh without sharing: kept columns only, [rows, d] `operand_bits`."""
    acc, total = kept_sums(result, mask, v)
    return normalise(acc, total, command.output_multiplier, command.output_shift, number)


def add_residual(
    result: FusedResult, residual: Int, command: FuseCommand, number: NumberConfig
) -> Int:
    """Result while a mask is reused: [rows, d] `operand_bits`, residual rows as the result's."""
    if residual.shape != result.acc.shape:
        raise ValueError(f"residual: want shape {result.acc.shape}, got {residual.shape}")
    require_range("residual", residual, number.sharing_bits)
    masked = guarded(result.acc, result.total, command, number)
    return saturate(round_shift(masked + residual, number.sharing_guard_bits), number.operand_bits)


def common_mask(
    results: Sequence[FusedResult], threshold: int, tokens: Int | None
) -> NDArray[np.bool_]:
    """One mask for all heads, from their mean probability.

    With 20-bit probabilities `p_hj = round_shift(e_hj * y_h, 16 + n_h - 20)` a column is kept iff
    `sum_h p_hj >= heads * threshold`.

    Parameters
    ----------
    results
        One per head, over the same rows and all columns.
    threshold
        As in `FuseCommand`.
    tokens
        [rows], columns that a row keeps whatever their probability; None for none.
    """
    total = np.zeros_like(results[0].numerator)
    for result in results:
        y, n = reciprocal(result.total)
        # A row's total is at least half the largest numerator, 2**3 with 4 bits: n + 16 >= 20 - 1.
        shift = np.maximum(RECIPROCAL_BITS + n - THRESHOLD_BITS, 0)
        total += round_shift(result.numerator * y[:, None], shift[:, None])
    keep = total >= len(results) * threshold
    if tokens is not None:
        keep[np.arange(len(tokens)), tokens] = True
    return keep
