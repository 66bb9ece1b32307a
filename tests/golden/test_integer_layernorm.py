"""Reciprocal square root, LayerNorm from exact sums, and modulation."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from disc.config import NumberConfig
from disc.tables import NORM_FRACTION_BITS, RSQRT_BITS, rsqrt_table
from golden.integer.layernorm import MAX_CHANNELS, Modulation, layer_norm, modulate, rsqrt

RSQRT_RELATIVE_ERROR = 1.1e-4
"""Bound of `rsqrt`, also in docs/arithmetic.md."""

N8 = NumberConfig()
EXTREMES = (-(1 << 15), (1 << 15) - 1)


def relative_error(v: np.ndarray) -> np.ndarray:
    y, n = rsqrt(v)
    return y * np.sqrt(v.astype(np.float64)) / np.exp2(RSQRT_BITS + n) - 1


def float_layer_norm(x: np.ndarray, epsilon: int = 0) -> np.ndarray:
    x = x.astype(np.float64)
    d = x.shape[1]
    centred = x - x.mean(axis=1, keepdims=True)
    variance = x.var(axis=1, keepdims=True) + epsilon / d**2
    return centred / np.sqrt(np.where(variance > 0, variance, 1.0))


# -- reciprocal square root ----------------------------------------------------------------------


def test_rsqrt_of_every_small_v_and_densely_beyond():
    sweep = np.unique(np.geomspace(1, 2.0**54, 1 << 20).astype(np.int64))
    error = np.abs(relative_error(np.concatenate([np.arange(1, 1 << 18), sweep])))
    assert error.max() < RSQRT_RELATIVE_ERROR
    # Not a bound so loose that a coarser table or a missing Newton step would meet it.
    assert error.max() > RSQRT_RELATIVE_ERROR / 2


def test_rsqrt_around_powers_of_two():
    powers = np.int64(1) << np.arange(62)
    v = np.concatenate([powers, powers[1:] - 1, powers + 1])
    assert np.abs(relative_error(v)).max() < RSQRT_RELATIVE_ERROR
    y, n = rsqrt(powers)
    assert n.tolist() == [i // 2 for i in range(62)]
    # Powers of four are alike, and so are their doubles.
    assert len(set(y[::2].tolist())) == len(set(y[1::2].tolist())) == 1


def test_rsqrt_result_has_seventeen_bits():
    y, _ = rsqrt(np.arange(1, 1 << 16))
    assert y.min() >= 1 << (RSQRT_BITS - 2)
    assert y.max() <= 1 << RSQRT_BITS


def test_rsqrt_exponent_counts_powers_of_four():
    v = np.arange(1, 1 << 12)
    assert rsqrt(v)[1].tolist() == [(int(i).bit_length() - 1) // 2 for i in v]


def test_rsqrt_of_nothing_and_of_less():
    y, n = rsqrt([0, 1])
    assert (y[0], n[0]) == (0, 0)
    assert y[1] > 0
    with pytest.raises(ValueError, match="v: must not be negative, got -1"):
        rsqrt([3, -1])


def test_rsqrt_table_is_exact_in_the_middle():
    assert len(rsqrt_table()) == 64
    assert rsqrt_table()[0] == round(65536 / math.sqrt(1 + 1 / 64))
    assert rsqrt_table()[32] == round(65536 / math.sqrt(2 * (1 + 1 / 64)))


# -- LayerNorm -----------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [2, 3, 72, 128, 1152, MAX_CHANNELS])
@pytest.mark.parametrize("deviation", [0.7, 40, 9000])
def test_layer_norm_follows_float(channels: int, deviation: float):
    rng = np.random.default_rng(channels)
    x = rng.normal(size=(64, channels)) * deviation + rng.normal(size=(64, 1)) * deviation
    x = np.clip(np.rint(x), *EXTREMES).astype(np.int64)
    got = layer_norm(x, 0) / 2**NORM_FRACTION_BITS
    wanted = float_layer_norm(x)
    # Half a unit of rounding, and the relative error of the reciprocal square root; 32 saturates.
    bound = 2.0 ** -(NORM_FRACTION_BITS + 1) + RSQRT_RELATIVE_ERROR * np.abs(wanted)
    assert (np.abs(got - np.minimum(wanted, 32 - 2.0**-NORM_FRACTION_BITS)) <= bound).all()


def test_layer_norm_with_epsilon():
    x = np.array([[3, -3, 1, -1], [0, 0, 0, 1]])
    epsilon = 5000
    got = layer_norm(x, epsilon) / 2**NORM_FRACTION_BITS
    assert np.abs(got - float_layer_norm(x, epsilon)).max() < 2.0**-NORM_FRACTION_BITS


@pytest.mark.parametrize("epsilon", [0, 1, (1 << 48) - 1])
@pytest.mark.parametrize("value", [0, 1, -1, *EXTREMES])
def test_rows_of_equal_values_give_zeros(value: int, epsilon: int):
    assert not layer_norm(np.full((2, 72), value), epsilon).any()


@pytest.mark.parametrize("channels", [2, 1024, MAX_CHANNELS])
def test_layer_norm_of_extremes(channels: int):
    row = np.full((1, channels), EXTREMES[0])
    row[:, ::2] = EXTREMES[1]
    one = 1 << NORM_FRACTION_BITS
    got = layer_norm(row, 0)
    assert (np.abs(np.abs(got) - one) <= 1).all()
    assert (got[:, ::2] > 0).all()


def test_layer_norm_saturates_a_single_outlier():
    row = np.zeros((1, MAX_CHANNELS), np.int64)
    row[0, 5] = EXTREMES[0]
    got = layer_norm(row, 0)
    assert got[0, 5] == -(1 << 15)
    assert np.unique(np.delete(got, 5)).tolist() == [16]  # 1/64


def test_layer_norm_does_not_see_an_offset_or_a_factor():
    x = np.random.default_rng(1).integers(-500, 500, (8, 128))
    assert np.array_equal(layer_norm(x, 0), layer_norm(x + 1234, 0))
    assert np.array_equal(layer_norm(x, 0), layer_norm(4 * x, 0))


def test_layer_norm_refuses():
    with pytest.raises(ValueError, match=r"x: want \[rows, 1..4096\], got \(3,\)"):
        layer_norm(np.zeros(3, np.int64), 0)
    with pytest.raises(ValueError, match=r"x: values must be in \[-32768, 32767\]"):
        layer_norm(np.array([[0, 1 << 15]]), 0)
    with pytest.raises(ValueError, match="epsilon: must be in"):
        layer_norm(np.zeros((1, 2), np.int64), -1)


# -- modulation ----------------------------------------------------------------------------------

int16 = st.integers(*EXTREMES)


@given(int16, int16, int16, st.integers(0, 63))
@example(EXTREMES[0], EXTREMES[0], EXTREMES[1], 0)
@example(1, 1, 0, 1)
@example(-1, 1, 0, 1)
@settings(deadline=None)
def test_modulation_is_one_rounding(z, multiplier, bias, shift):
    got = modulate(np.array([[z]]), Modulation(np.array([multiplier]), np.array([bias]), shift), N8)
    exact = math.floor(Fraction(z * multiplier + bias * 1024, 1 << shift) + Fraction(1, 2))
    assert got.tolist() == [[max(-128, min(exact, 127))]]


def test_modulation_refuses():
    two = np.zeros(2, np.int64)
    with pytest.raises(ValueError, match=r"multiplier: values must be in .*got \[0, 32768\]"):
        Modulation(np.array([0, 1 << 15]), two, 0)
    with pytest.raises(ValueError, match=r"shift: must be in \[0, 63\], got 64"):
        Modulation(two, two, 64)
    with pytest.raises(ValueError, match="two vectors of one length"):
        Modulation(two, np.zeros(3, np.int64), 0)
    with pytest.raises(ValueError, match=r"z: want \[rows, 2\], got \(1, 3\)"):
        modulate(np.zeros((1, 3), np.int64), Modulation(two, two, 0), N8)
