"""Exact matrix products, linear layers, requantisation, gates, forecast."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from disc.config import NumberConfig
from disc.tables import step_ratio_table
from golden.integer.forecast import forecast
from golden.integer.linear import (
    Gate,
    Linear,
    Requantisation,
    accumulate,
    gate_residual,
    requantise,
)
from golden.integer.matmul import exact_matmul

N8 = NumberConfig()


def rounded(value: Fraction, bits: int) -> int:
    limit = 1 << (bits - 1)
    return max(-limit, min(math.floor(value + Fraction(1, 2)), limit - 1))


# -- exact_matmul --------------------------------------------------------------------------------


@pytest.mark.parametrize("terms", [1, 7, 1024, 1100])
@pytest.mark.parametrize("peak", [1, 127, 128, 1 << 15, 1 << 20])
def test_matmul_is_exact(terms: int, peak: int):
    rng = np.random.default_rng(terms)
    a, b = rng.integers(-peak, peak + 1, (5, terms)), rng.integers(-peak, peak + 1, (terms, 6))
    assert np.array_equal(exact_matmul(a, b), a @ b)


def test_matmul_is_exact_where_float32_ends():
    # 1,032 and 1,033 products of 127 * 128 lie on either side of 2**24; the odd one shows.
    for terms in (1032, 1033, 1040):
        a = np.full((1, terms), 127)
        a[0, 0] = 1
        b = np.full((terms, 1), -128)
        b[0, 0] = 1
        assert exact_matmul(a, b)[0, 0] == -127 * 128 * (terms - 1) + 1


def test_matmul_of_nothing():
    assert (
        exact_matmul(np.zeros((2, 0), np.int64), np.zeros((0, 3), np.int64)).tolist()
        == [[0, 0, 0]] * 2
    )
    assert exact_matmul(np.zeros((0, 4), np.int64), np.ones((4, 3), np.int64)).shape == (0, 3)


def test_matmul_refuses_what_float64_cannot_hold():
    big = np.full((1, 2), 1 << 26)
    assert exact_matmul(big[:, :1] - 1, big[:, :1] - 1)[0, 0] == ((1 << 26) - 1) ** 2
    with pytest.raises(ValueError, match="sums of 2 products may reach 9007199254740992"):
        exact_matmul(big, big.T)


# -- linear layers -------------------------------------------------------------------------------


def test_accumulate():
    linear = Linear(np.array([[1, -2], [127, -128]]), np.array([10, -1]))
    assert accumulate(np.array([[3, 4], [-128, 127]]), linear, N8).tolist() == [
        [5, -132],
        [-372, -32513],
    ]


def test_accumulate_refuses():
    linear = Linear(np.array([[1, 1]]), np.array([(1 << 31) - 1]))
    with pytest.raises(ValueError, match=r"acc: values must be in \[-2147483648, 2147483647\]"):
        accumulate(np.array([[1, 0]]), linear, N8)
    with pytest.raises(ValueError, match=r"x: values must be in \[-128, 127\]"):
        accumulate(np.array([[128, 0]]), linear, N8)
    with pytest.raises(ValueError, match=r"x: want \[rows, 2\], got \(1, 3\)"):
        accumulate(np.zeros((1, 3), np.int64), linear, N8)
    with pytest.raises(ValueError, match="weight, bias"):
        Linear(np.zeros((2, 3), np.int64), np.zeros(3, np.int64))
    wide = Linear(np.array([[128]]), np.array([0]))
    with pytest.raises(ValueError, match="weight: values must be in"):
        accumulate(np.array([[1]]), wide, N8)


@given(
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.integers(0, (1 << 16) - 1),
    st.integers(0, 63),
    st.sampled_from([8, 16]),
)
@example(1, 1, 1, 8)
@example(-1, 1, 1, 8)
@example(-(1 << 31), 0xFFFF, 0, 16)
@settings(deadline=None)
def test_requantise_is_one_rounding(acc, multiplier, shift, bits):
    scale = Requantisation(np.array([multiplier]), np.array([shift]))
    wanted = rounded(Fraction(acc * multiplier, 1 << shift), bits)
    assert requantise(np.array([[acc]]), scale, bits).tolist() == [[wanted]]


def test_requantise_by_channel():
    scale = Requantisation(np.array([1, 3, 5]), np.array([0, 1, 2]))
    assert requantise(np.array([[9, 9, 9]]), scale, 8).tolist() == [[9, 14, 11]]
    with pytest.raises(ValueError, match=r"acc: want \[rows, 3\], got \(1, 2\)"):
        requantise(np.zeros((1, 2), np.int64), scale, 8)
    with pytest.raises(ValueError, match=r"multiplier: values must be in \[0, 65535\]"):
        Requantisation(np.array([-1]), np.array([0]))
    with pytest.raises(ValueError, match=r"shift: values must be in \[0, 63\]"):
        Requantisation(np.array([1]), np.array([64]))


# -- gate and residual ---------------------------------------------------------------------------

int16 = st.integers(-(1 << 15), (1 << 15) - 1)


@given(int16, st.integers(-(1 << 31), (1 << 31) - 1), int16, st.integers(0, 63))
@example((1 << 15) - 1, 1, 1, 0)
@example(-(1 << 15), -1, 1, 0)
@example(0, 1, -1, 1)
@settings(deadline=None)
def test_gate_rounds_the_branch_then_saturates_the_sum(x, acc, multiplier, shift):
    gate = Gate(np.array([multiplier]), shift)
    branch = math.floor(Fraction(acc * multiplier, 1 << shift) + Fraction(1, 2))
    wanted = max(-(1 << 15), min(x + branch, (1 << 15) - 1))
    assert gate_residual(np.array([[x]]), np.array([[acc]]), gate, N8).tolist() == [[wanted]]


def test_gate_refuses():
    gate = Gate(np.array([1, 1]), 0)
    with pytest.raises(ValueError, match=r"x, acc: want two of \[rows, 2\]"):
        gate_residual(np.zeros((1, 2), np.int64), np.zeros((2, 2), np.int64), gate, N8)
    with pytest.raises(ValueError, match="x: values must be in"):
        gate_residual(np.full((1, 2), 1 << 15), np.zeros((1, 2), np.int64), gate, N8)
    with pytest.raises(ValueError, match="shift: must be in"):
        Gate(np.array([1]), -1)


# -- forecast ------------------------------------------------------------------------------------


@given(int16, int16, st.integers(1, 63), st.integers(1, 63), st.floats(0, 1))
@example(-(1 << 15), (1 << 15) - 1, 63, 1, 1.0)
@settings(deadline=None)
def test_forecast_continues_the_line(last, before, since, apart, damping):
    table = np.array(step_ratio_table(damping))
    got = forecast(
        np.array([[last]]), np.array([[before]]), np.array([since]), np.array([apart]), table, N8
    )
    exact = last + damping * (last - before) * since / apart
    # Half a unit of rounding, and the table's half unit times distance and slope.
    bound = 0.5 + abs(last - before) * since * 2.0**-17 + 1e-6
    assert abs(got[0, 0] - max(-(1 << 15), min(exact, (1 << 15) - 1))) <= bound


def test_forecast_of_whole_distances_is_exact():
    table = np.array(step_ratio_table())
    last, before = np.array([[100, -7], [100, -7]]), np.array([[90, 0], [90, 0]])
    got = forecast(last, before, np.array([1, 6]), np.array([1, 2]), table, N8)
    assert got.tolist() == [[110, -14], [130, -28]]


def test_forecast_holds_a_single_value():
    table = np.array(step_ratio_table())
    last, before = np.array([[100]]), np.array([[-5000]])
    assert forecast(last, before, np.array([9]), np.array([0]), table, N8).tolist() == [[100]]


def test_forecast_refuses():
    table, one = np.array(step_ratio_table()), np.ones((1, 1), np.int64)
    with pytest.raises(ValueError, match=r"since: values must be in \[0, 63\], got \[64, 64\]"):
        forecast(one, one, np.array([64]), np.array([1]), table, N8)
    with pytest.raises(ValueError, match=r"apart: want \[1\], got \(2,\)"):
        forecast(one, one, np.array([1]), np.array([1, 1]), table, N8)
    with pytest.raises(ValueError, match=r"damping: must be in \[0, 1\], got 1.5"):
        step_ratio_table(1.5)
