"""Scores, maxima, numerators, threshold and reciprocal of the integer core."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from disc.config import NumberConfig
from disc.tables import RECIPROCAL_BITS, THRESHOLD_BITS, exp2_table
from golden.integer.softmax import (
    integer_maximum,
    normalise,
    numerators,
    reciprocal,
    requantise_score,
    threshold_numerator,
)

RELATIVE_ERROR = 8e-5
"""Bound of the reciprocal, also in docs/arithmetic.md."""

NUMBERS = [
    NumberConfig(),
    NumberConfig(numerator_bits=4, score_bits=12, score_fraction_bits=3),
    NumberConfig(numerator_bits=12, score_bits=20, score_fraction_bits=8),
]


@pytest.fixture(params=NUMBERS, ids=lambda n: f"{n.numerator_bits} bits, F {n.score_fraction_bits}")
def number(request) -> NumberConfig:
    return request.param


# -- reciprocal --------------------------------------------------------------------------------


def relative_error(total: np.ndarray) -> np.ndarray:
    y, n = reciprocal(total)
    return np.abs(y * total.astype(np.float64) / np.exp2(RECIPROCAL_BITS + n) - 1)


def test_reciprocal_of_every_total():
    error = relative_error(np.arange(1, 1 << 20))
    assert error.max() < RELATIVE_ERROR
    # Not a bound so loose that a coarser table or a missing Newton step would meet it.
    assert error.max() > RELATIVE_ERROR / 2


def test_reciprocal_around_powers_of_two():
    powers = 1 << np.arange(27)
    total = np.concatenate([powers, powers[1:] - 1, powers + 1])
    assert relative_error(total).max() < RELATIVE_ERROR
    y, n = reciprocal(powers)
    assert n.tolist() == list(range(27))
    assert len(set(y.tolist())) == 1


def test_reciprocal_exponent():
    total = np.arange(1, 1 << 16)
    assert reciprocal(total)[1].tolist() == [int(t).bit_length() - 1 for t in total]


def test_reciprocal_of_nothing():
    y, n = reciprocal(np.array([0, 1]))
    assert (y[0], n[0]) == (0, 0)
    assert y[1] > 0


def test_reciprocal_of_a_negative_total():
    with pytest.raises(ValueError, match="total: must not be negative, got -3"):
        reciprocal([4, -3])


# -- scores and maxima -------------------------------------------------------------------------


@given(st.integers(-(1 << 31), (1 << 31) - 1), st.integers(0, (1 << 16) - 1), st.integers(0, 63))
@example(-(1 << 31), 0xFFFF, 0)
@example((1 << 31) - 1, 0xFFFF, 0)
@example(1, 1, 1)
@example(-1, 1, 1)
def test_score_is_the_rounded_product(dot, multiplier, shift):
    number = NumberConfig()
    exact = math.floor(Fraction(dot * multiplier, 1 << shift) + Fraction(1, 2))
    expected = max(-(1 << 15), min(exact, (1 << 15) - 1))
    assert requantise_score(dot, multiplier, shift, number) == expected


@given(st.lists(st.tuples(st.integers(-700, 700), st.booleans()), min_size=1, max_size=12))
@example([(64, True)])
@example([(65, True)])
@example([(-64, True), (-65, True)])
@example([(-63, True), (500, False)])
@example([(-700, True)])
def test_maximum_is_the_ceiling_over_kept_columns(row):
    score, keep = (np.array([column]) for column in zip(*row, strict=True))
    kept = score[keep]
    expected = math.ceil(kept.max() / 64) if kept.size else 0
    assert integer_maximum(score, keep, NumberConfig()).tolist() == [expected]


# -- numerators --------------------------------------------------------------------------------


def test_numerators_follow_the_exponential(number):
    one = 1 << number.score_fraction_bits
    distance = np.arange((number.numerator_bits + 6) * one)
    got = numerators(-distance[None], np.array([0]), number)[0]
    exact = 2.0**number.numerator_bits * 2.0 ** (-distance / one)
    # Half a unit of rounding; the table's own half unit, of 4 guard bits; and the largest value,
    # which has no representation, is one less.
    bound = 0.5 + 0.5 / 16
    top = (1 << number.numerator_bits) - 1
    assert (np.abs(got - np.minimum(exact, top)) <= bound).all()
    assert got[0] == top
    assert (np.diff(got) <= 0).all()
    assert got[one] == 1 << (number.numerator_bits - 1)
    # Beyond z = nb + 1 everything is zero, and there not yet.
    assert got[(number.numerator_bits + 1) * one] == 1
    assert not got[(number.numerator_bits + 2) * one :].any()


def test_largest_numerator_of_a_row_uses_the_top_bit(number):
    one = 1 << number.score_fraction_bits
    score = np.arange(-2 * one, 2 * one)[:, None]
    maximum = integer_maximum(score, np.ones_like(score, dtype=bool), number)
    assert (numerators(score, maximum, number) >= 1 << (number.numerator_bits - 1)).all()


def test_numerators_depend_on_the_distance_only(number):
    one = 1 << number.score_fraction_bits
    score = -np.arange(3 * one)[None]
    low = numerators(score - 5 * one, np.array([-5]), number)
    assert np.array_equal(low, numerators(score, np.array([0]), number))


def test_dropped_columns_above_the_maximum_are_harmless(number):
    top = (1 << number.numerator_bits) - 1
    assert numerators(np.array([[1000]]), np.array([0]), number).tolist() == [[top]]


def test_table_is_the_exponential(number):
    table = np.array(exp2_table(number))
    size, scale = 1 << number.score_fraction_bits, 1 << (number.numerator_bits + 4)
    assert len(table) == size
    assert (np.abs(table - scale * 2.0 ** (-np.arange(size) / size)) <= 0.5).all()


# -- threshold and normalisation ---------------------------------------------------------------


@given(st.integers(0, 1 << 24), st.integers(0, 1 << THRESHOLD_BITS), st.integers(0, 4095))
@example(255, 1 << THRESHOLD_BITS, 255)  # equality keeps
@example(3, 1, 1)
@example(0, 1 << THRESHOLD_BITS, 0)
def test_threshold_is_the_comparison(total, threshold, numerator):
    kept = numerator >= threshold_numerator(np.array([total]), threshold)[0]
    assert kept == (numerator << THRESHOLD_BITS >= threshold * total)


@given(
    st.integers(1, (1 << 20) - 1),
    st.floats(-1, 1),
    st.integers(1 << 15, (1 << 16) - 1),
    st.integers(12, 20),
)
@example(1, 1.0, 1 << 15, 15)
def test_normalise_divides(total, mean, multiplier, shift):
    acc = round(mean * 127 * total)
    got = normalise(np.array([[acc]]), np.array([total]), multiplier, shift, NumberConfig())
    exact = acc / total * multiplier / 2.0**shift
    # Two relative errors, of the reciprocal and of the rounding of the product with the
    # multiplier (2**15 at least, so half a unit is 2**-16), and half a unit of the result.
    bound = 0.5 + abs(exact) * (RELATIVE_ERROR + 2.0**-15)
    assert abs(got[0, 0] - min(max(exact, -128), 127)) <= bound


def test_a_row_without_columns_gives_zeros():
    acc = np.array([[0, 0], [255, -255]])
    got = normalise(acc, np.array([0, 255]), 1 << 15, 15, NumberConfig())
    assert got.tolist() == [[0, 0], [1, -1]]


def test_normalise_saturates():
    acc = np.array([[1 << 30, -(1 << 30)]])
    got = normalise(acc, np.array([1]), 0xFFFF, 0, NumberConfig())
    assert got.tolist() == [[127, -128]]
