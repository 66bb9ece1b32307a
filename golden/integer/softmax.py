"""Base-2 softmax in integers: scores, row maximum, numerators, threshold, reciprocal."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from disc.config import NumberConfig
from disc.tables import (
    EXP2_GUARD_BITS,
    RECIPROCAL_BITS,
    RECIPROCAL_INDEX_BITS,
    THRESHOLD_BITS,
    exp2_table,
    reciprocal_table,
)
from golden.integer.rounding import Int, floor_log2, round_shift, saturate


def requantise_score(dot: ArrayLike, multiplier: int, shift: int, number: NumberConfig) -> Int:
    """Turn dot products into scores: fixed point in units of log2, `score_fraction_bits` fraction.

    The result is `saturate(round_shift(dot * multiplier, shift), score_bits)`.
    """
    product = np.asarray(dot, dtype=np.int64) * np.int64(multiplier)
    return saturate(round_shift(product, shift), number.score_bits)


def integer_maximum(score: Int, keep: np.ndarray, number: NumberConfig) -> Int:
    """Return per row the least integer not below any kept score, in whole units of log2.

    Parameters
    ----------
    score, keep
        [rows, columns].  A row without a kept column gets 0.
    """
    least = np.iinfo(np.int64).min
    top = np.where(keep, score, least).max(axis=1)
    one = np.int64(1) << np.int64(number.score_fraction_bits)
    return np.where(keep.any(axis=1), (top + one - 1) >> number.score_fraction_bits, 0)


def numerators(score: Int, maximum: Int, number: NumberConfig) -> Int:
    """Return unsigned `numerator_bits`-bit `2**(score - maximum)`; 1.0 is all ones.

    Parameters
    ----------
    score
        [rows, columns].
    maximum
        [rows], whole units of log2, not below any score that counts.
    """
    fraction_bits = number.score_fraction_bits
    distance = (maximum[:, None] << fraction_bits) - score
    distance = np.maximum(distance, 0)  # dropped columns may lie above; they are not used
    whole = np.minimum(distance >> fraction_bits, number.numerator_bits + 2)
    entry = np.asarray(exp2_table(number), dtype=np.int64)[distance & ((1 << fraction_bits) - 1)]
    top = (1 << number.numerator_bits) - 1
    return np.minimum(round_shift(entry, whole + EXP2_GUARD_BITS), top)


def threshold_numerator(total: Int, threshold: int) -> Int:
    """Return the least numerator that survives the threshold: `ceil(threshold * total / 2**20)`.

    A numerator e is kept iff `e * 2**20 >= threshold * total`, which is the same.
    """
    return (np.int64(threshold) * total + (1 << THRESHOLD_BITS) - 1) >> THRESHOLD_BITS


def reciprocal(total: ArrayLike) -> tuple[Int, Int]:
    """Return (y, n) with `1 / total ~ y / 2**(RECIPROCAL_BITS + n)` and n = floor(log2(total)).

    One table look-up and one Newton step.  A total of 0 gives (0, 0).
    """
    total = np.asarray(total, dtype=np.int64)
    if np.any(total < 0):
        raise ValueError(f"total: must not be negative, got {total.min()}")
    safe = np.maximum(total, 1)
    n = floor_log2(safe)
    left = np.maximum(RECIPROCAL_BITS - n, 0)
    right = np.maximum(n - RECIPROCAL_BITS, 0)
    mantissa = (safe << left) >> right
    index = (mantissa >> (RECIPROCAL_BITS - RECIPROCAL_INDEX_BITS)) & (
        (1 << RECIPROCAL_INDEX_BITS) - 1
    )
    guess = np.asarray(reciprocal_table(), dtype=np.int64)[index]
    correction = ((1 << (2 * RECIPROCAL_BITS + 1)) - mantissa * guess) >> RECIPROCAL_BITS
    y = round_shift(guess * correction, RECIPROCAL_BITS)
    return np.where(total > 0, y, 0), np.where(total > 0, n, 0)


def normalise(acc: Int, total: Int, multiplier: int, shift: int, number: NumberConfig) -> Int:
    """Divide P*V sums by their row's sum of numerators and requantise.

    Parameters
    ----------
    acc
        [rows, d], sums of numerator times v.
    total
        [rows], sums of numerators.
    multiplier, shift
        Output scale: `multiplier * 2**-shift` is (scale of v) / (scale of the result).
    """
    return saturate(divided(acc, total, multiplier, shift), number.operand_bits)


def divided(acc: Int, total: Int, multiplier: int, shift: int) -> Int:
    """Return what `normalise` returns, before saturation."""
    y, n = reciprocal(total)
    row_multiplier = round_shift(y * np.int64(multiplier), RECIPROCAL_BITS)
    scaled = acc * row_multiplier[:, None]
    return round_shift(scaled, (n + shift)[:, None])
