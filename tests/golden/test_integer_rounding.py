"""Rounding and saturation of the integer core, against exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from golden.integer.rounding import floor_log2, require_range, round_shift, saturate

numbers = st.integers(-(1 << 61), (1 << 61) - 1)
shifts = st.integers(0, 63)


def nearest(x: int, shift: int) -> int:
    """Round x / 2**shift to nearest, halves towards +infinity."""
    return math.floor(Fraction(x, 1 << shift) + Fraction(1, 2))


@given(numbers, shifts)
@example(0, 0)
@example(-1, 1)  # -1/2 -> 0
@example(1, 1)  # 1/2 -> 1
@example(-3, 1)
@example((1 << 61) - 1, 62)
@example(1 << 61, 62)  # 1/2
@example(-(1 << 61), 62)
@example((1 << 61) - 1, 63)
@example(-(1 << 61), 63)
def test_round_shift_is_exact(x, shift):
    assert round_shift(x, shift) == nearest(x, shift)


def test_round_shift_of_all_small_numbers():
    """Every half, below and above zero."""
    x, shift = np.arange(-200, 201), np.arange(12)
    got = round_shift(x[:, None], shift)
    assert got.tolist() == [[nearest(int(a), int(s)) for s in shift] for a in x]


@given(numbers, shifts)
def test_hardware_formula_is_the_same_number(x, shift):
    assert round_shift(x, shift) == (((2 * x) >> shift) + 1) >> 1


@given(st.lists(st.tuples(numbers, shifts), min_size=1, max_size=20))
def test_round_shift_of_arrays(pairs):
    x, shift = np.array(pairs, dtype=np.int64).T
    assert round_shift(x, shift).tolist() == [nearest(*pair) for pair in pairs]


@pytest.mark.parametrize("shift", [-1, 64, [3, 64]])
def test_shift_out_of_range(shift):
    with pytest.raises(ValueError, match=r"shift: must be in \[0, 63\], got"):
        round_shift(np.array([1, 2]), shift)


@given(numbers, st.integers(2, 48))
def test_saturate(x, bits):
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    assert saturate(x, bits) == max(low, min(x, high))


@pytest.mark.parametrize("signed", [True, False])
def test_require_range(signed):
    low, high = (-8, 7) if signed else (0, 15)
    require_range("x", np.array([low, high]), 4, signed=signed)
    require_range("x", np.array([], dtype=np.int64), 4, signed=signed)
    for beyond in (low - 1, high + 1):
        with pytest.raises(ValueError, match=rf"^x: values must be in \[{low}, {high}\], got"):
            require_range("x", np.array([0, beyond]), 4, signed=signed)


def test_floor_log2_around_powers_of_two():
    powers = [1 << i for i in range(63)]
    values = [v for p in powers for v in (p - 1, p, p + 1) if 1 <= v < 1 << 63]
    assert floor_log2(values).tolist() == [v.bit_length() - 1 for v in values]
