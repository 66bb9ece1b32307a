"""Softmax numerators against the golden core."""

from __future__ import annotations

import numpy as np
import pytest

from golden.integer.softmax import numerators
from hw_tests import sim
from hw_tests.blocks.configs import CONFIGS
from hw_tests.blocks.vectors import drive

LATENCY = 1


def check(config, score: np.ndarray, maximum: np.ndarray, seed: int) -> np.ndarray:
    """Compare one numerator a cycle; return them."""
    inputs = {"score": score, "maximum": maximum}
    got = drive(config, "numerator", inputs, ["numerator"], seed=seed)["numerator"][LATENCY:]
    expected = numerators(score[:, None], maximum, config.number)[: len(got), 0]
    wrong = np.flatnonzero(got != expected)
    assert not len(wrong), (
        f"{len(wrong)} wrong, first score {score[wrong[0]]}, maximum {maximum[wrong[0]]}: "
        f"expected {expected[wrong[0]]}, got {got[wrong[0]]}"
    )
    return got


@pytest.mark.parametrize("name", CONFIGS)
def test_every_distance(name):
    number, seed = CONFIGS[name].number, sim.choose_seed()
    # Maximum 0: from distance 0 to four units of log2 beyond the last numerator that is not 0.
    beyond = (number.numerator_bits + 6) << number.score_fraction_bits
    score = -np.arange(min(beyond, 1 << (number.score_bits - 1)) + 1)
    got = check(CONFIGS[name], score, np.zeros_like(score), seed)
    assert got[0] == (1 << number.numerator_bits) - 1
    last = np.flatnonzero(got).max()
    assert last >> number.score_fraction_bits == number.numerator_bits + 1


@pytest.mark.parametrize("name", CONFIGS)
def test_any_score_and_maximum(name):
    number, seed = CONFIGS[name].number, sim.choose_seed()
    rng = np.random.default_rng(seed)
    one, high = 1 << number.score_fraction_bits, 1 << (number.score_bits - 1)
    score = rng.integers(-high, high, 6000)
    score[:3] = -high, high - 1, -high
    distance = np.where(
        rng.random(6000) < 0.7,
        rng.integers(0, (number.numerator_bits + 3) * one, 6000),
        rng.integers(0, 2 * high, 6000),
    )
    maximum = np.minimum(-(-(score + distance) // one), high // one)
    maximum[2] = high // one  # the largest distance of a row's own maximum
    given = rng.random(6000) < 0.2  # anything that a second pass may come with
    maximum[given] = rng.integers(-2 * high // one, 2 * high // one, given.sum())
    maximum[3:5], score[3:5] = (-2 * high // one, 2 * high // one - 1), (high - 1, -high)
    check(CONFIGS[name], score, maximum, seed)
