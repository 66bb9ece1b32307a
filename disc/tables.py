"""The small tables that hardware and integer golden core share.

They are data, not behaviour: both sides look up the same entries and do their own arithmetic, so
that an error in either is still seen.  `docs/arithmetic.md` says how the entries are used.
"""

from __future__ import annotations

import math

from disc.config import NumberConfig

EXP2_GUARD_BITS = 4
"""Fraction bits of an exponential's table entry beyond the numerator's own bits."""

RECIPROCAL_INDEX_BITS = 6
"""Address bits of the reciprocal's first guess."""

RECIPROCAL_BITS = 16
"""Fraction bits of mantissa, first guess and reciprocal."""

RSQRT_INDEX_BITS = 6
"""Address bits of the reciprocal square root's first guess; the first is the exponent's parity."""

RSQRT_BITS = 16
"""Fraction bits of mantissa, first guess and reciprocal square root."""

NORM_BITS = 16
"""Signed bits of a normalised value before modulation."""

NORM_FRACTION_BITS = 10
"""Fraction bits of a normalised value before modulation."""

VECTOR_BITS = 16
"""Signed bits of the elements of modulation and gate vectors."""

DISTANCE_BITS = 6
"""Unsigned bits of a distance in denoising steps."""

RATIO_BITS = 16
"""Fraction bits of the forecast's ratio of distances."""

THRESHOLD_BITS = 20
"""Fraction bits of the softmax threshold."""

MULTIPLIER_BITS = 16
"""Unsigned bits of a requantisation multiplier."""

SHIFT_BITS = 6
"""Unsigned bits of a requantisation shift."""


def exp2_table(number: NumberConfig) -> tuple[int, ...]:
    """Return `round(2**(numerator_bits + EXP2_GUARD_BITS) * 2**(-f / 2**F))` for every fraction f.

    F is `number.score_fraction_bits`; there are 2**F entries.
    """
    size = 1 << number.score_fraction_bits
    scale = 1 << (number.numerator_bits + EXP2_GUARD_BITS)
    return tuple(round(scale * 2.0 ** (-f / size)) for f in range(size))


def reciprocal_table() -> tuple[int, ...]:
    """Return first guesses of `2**RECIPROCAL_BITS / m` for mantissas m in [1, 2).

    Entry i serves m in [1 + i/64, 1 + (i+1)/64) and is exact in the middle of it.
    """
    size = 1 << RECIPROCAL_INDEX_BITS
    return tuple(round((1 << RECIPROCAL_BITS) / (1 + (i + 0.5) / size)) for i in range(size))


def rsqrt_table() -> tuple[int, ...]:
    """Return first guesses of `2**RSQRT_BITS / sqrt(m)` for mantissas m in [1, 4).

    Entry i of the lower half serves m in [1 + i/32, 1 + (i+1)/32), entry i of the upper half
    twice that; each is exact in the middle.
    """
    half = 1 << (RSQRT_INDEX_BITS - 1)
    middles = [scale * (1 + (i + 0.5) / half) for scale in (1, 2) for i in range(half)]
    return tuple(round((1 << RSQRT_BITS) / math.sqrt(m)) for m in middles)


def step_ratio_table(damping: float = 1.0) -> tuple[int, ...]:
    """Return `round(damping * 2**RATIO_BITS / n)` for distances n of 1 .. 63 steps; entry 0 is 0.

    Raises
    ------
    ValueError
        `damping` is outside [0, 1].
    """
    if not 0 <= damping <= 1:
        raise ValueError(f"damping: must be in [0, 1], got {damping}")
    return (0, *(round(damping * (1 << RATIO_BITS) / n) for n in range(1, 1 << DISTANCE_BITS)))
