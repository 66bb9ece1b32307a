"""LayerNorm without affine parameters, fused with the modulation of adaLN.

LN(x) (1 + scale) + shift of DiT (arXiv 2212.09748), from exact sums of a row of the residual
stream: with V = D * S2 - S1**2 the normalised value is (D * x - S1) / sqrt(V).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from disc.config import NumberConfig
from disc.tables import (
    NORM_BITS,
    NORM_FRACTION_BITS,
    RSQRT_BITS,
    RSQRT_INDEX_BITS,
    VECTOR_BITS,
    rsqrt_table,
)
from golden.integer.rounding import Int, floor_log2, require_range, round_shift, saturate

MAX_CHANNELS = 4096
"""Rows up to this long keep every intermediate value within 63 bits."""


@dataclass(frozen=True, eq=False)
class Modulation:
    """`out = (z * multiplier + bias * 2**NORM_FRACTION_BITS) * 2**-shift`, z normalised."""

    multiplier: Int
    """[D] signed `VECTOR_BITS`."""
    bias: Int
    """[D] signed `VECTOR_BITS`."""
    shift: int
    """0 .. 63, one for the vector."""

    def __post_init__(self) -> None:
        if self.multiplier.ndim != 1 or self.multiplier.shape != self.bias.shape:
            raise ValueError(
                f"multiplier, bias: want two vectors of one length, got "
                f"{self.multiplier.shape} and {self.bias.shape}"
            )
        require_range("multiplier", self.multiplier, VECTOR_BITS)
        require_range("bias", self.bias, VECTOR_BITS)
        if not 0 <= self.shift <= 63:
            raise ValueError(f"shift: must be in [0, 63], got {self.shift}")


def rsqrt(v: ArrayLike) -> tuple[Int, Int]:
    """Return (y, n) with `1 / sqrt(v) ~ y / 2**(RSQRT_BITS + n)` and n = floor(log4(v)).

    One table look-up and one Newton step.  A `v` of 0 gives (0, 0).
    """
    v = np.asarray(v, dtype=np.int64)
    if np.any(v < 0):
        raise ValueError(f"v: must not be negative, got {v.min()}")
    exponent = floor_log2(np.maximum(v, 1))
    n, odd = exponent >> 1, exponent & 1
    mantissa = (v << np.maximum(RSQRT_BITS - 2 * n, 0)) >> np.maximum(2 * n - RSQRT_BITS, 0)
    half = 1 << (RSQRT_INDEX_BITS - 1)
    index = (mantissa >> (RSQRT_BITS - RSQRT_INDEX_BITS + 1 + odd)) & (half - 1) | odd * half
    guess = np.asarray(rsqrt_table(), dtype=np.int64)[index]
    correction = (3 << (3 * RSQRT_BITS)) - mantissa * guess * guess >> (2 * RSQRT_BITS)
    y = round_shift(guess * correction, RSQRT_BITS + 1)
    return np.where(v > 0, y, 0), np.where(v > 0, n, 0)


def layer_norm(x: Int, epsilon: int) -> Int:
    """Normalise each row to mean 0 and variance 1.

    Parameters
    ----------
    x
        [rows, D] integers of the residual stream, signed 16 bit or less, D at most `MAX_CHANNELS`.
    epsilon
        Added to V: `round(D**2 * eps / scale**2)`, see `parameters.integer_epsilon`.

    Returns
    -------
    [rows, D] signed `NORM_BITS`, of which `NORM_FRACTION_BITS` fraction.  A row of equal values
    gives zeros, even with an epsilon of 0.
    """
    x = np.asarray(x, dtype=np.int64)
    if x.ndim != 2 or not 1 <= x.shape[1] <= MAX_CHANNELS:
        raise ValueError(f"x: want [rows, 1..{MAX_CHANNELS}], got {x.shape}")
    require_range("x", x, 16)
    if not 0 <= epsilon < 1 << 48:
        raise ValueError(f"epsilon: must be in [0, 2**48), got {epsilon}")
    channels = x.shape[1]
    sum1 = x.sum(axis=1)
    sum2 = (x * x).sum(axis=1)
    y, n = rsqrt(channels * sum2 - sum1 * sum1 + epsilon)
    centred = channels * x - sum1[:, None]
    shift = RSQRT_BITS - NORM_FRACTION_BITS + n
    return saturate(round_shift(centred * y[:, None], shift[:, None]), NORM_BITS)


def modulate(z: Int, modulation: Modulation, number: NumberConfig) -> Int:
    """Scale, shift and requantise normalised values z [rows, D] to `operand_bits`."""
    if z.ndim != 2 or z.shape[1] != len(modulation.multiplier):
        raise ValueError(f"z: want [rows, {len(modulation.multiplier)}], got {z.shape}")
    require_range("z", z, NORM_BITS)
    scaled = z * modulation.multiplier + (modulation.bias << NORM_FRACTION_BITS)
    return saturate(round_shift(scaled, modulation.shift), number.operand_bits)
