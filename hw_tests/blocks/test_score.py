"""Score unit: requantised scores and row maxima against the golden core, cycle by cycle."""

from __future__ import annotations

import numpy as np
import pytest

from golden.integer.rounding import round_shift, saturate
from golden.integer.softmax import integer_maximum, requantise_score
from golden.integer.tiled import empty_maximum
from hw_tests import sim
from hw_tests.blocks.configs import CONFIGS
from hw_tests.blocks.vectors import drive

SCORE_LATENCY, MAXIMUM_LATENCY = 2, 4
SETTLE = 6
"""Idle cycles around a change of multiplier and shift."""


def scales(config, rng) -> list[tuple[int, int]]:
    """Multipliers and shifts: none, identity, saturating, vanishing, random."""
    typical = config.number.accumulator_bits + 16 - config.number.score_bits
    random = [
        (int(rng.integers(1 << 15, 1 << 16)), int(rng.integers(typical - 6, typical + 3)))
        for _ in range(4)
    ]
    return [(1, 0), (1 << 15, 15), (0xFFFF, 0), (0xFFFF, 62), (1 << 15, 63), (0, 5), *random]


def random_dots(config, rng, steps: int, around: int) -> np.ndarray:
    """Anything; small; and integers of log2 with their neighbours, which `(1, 0)` lets through."""
    B, number = config.array.banks, config.number
    limit = 1 << (number.accumulator_bits - 1)
    anything = rng.integers(-limit, limit, (steps, B))
    anything[rng.random((steps, B)) < 0.05] = -limit
    anything[rng.random((steps, B)) < 0.05] = limit - 1
    one = 1 << number.score_fraction_bits
    near = rng.integers(-3, 4, (steps, B)) * one + rng.integers(-1, 2, (steps, B))
    # Whole rows of negative scores too.
    near -= np.where(rng.random(steps) < 0.5, around * one, 0)[:, None]
    kind = rng.random(steps)[:, None]
    return np.where(kind < 0.3, anything, np.where(kind < 0.5, anything >> 10, near))


@pytest.mark.parametrize("name", CONFIGS)
def test_scores_and_maxima(name):
    config, seed = CONFIGS[name], sim.choose_seed()
    rng = np.random.default_rng(seed)
    B, number = config.array.banks, config.number
    parts: list[dict[str, np.ndarray]] = []
    scores, maxima = [], []  # by cycle; None where nothing is said
    empty = 0
    for number_of, (multiplier, shift) in enumerate(scales(config, rng)):
        steps = 150
        valid = rng.random(steps) < (0.6 if number_of % 2 else 1.0)  # rows without a gap, too
        last = rng.random(steps) < 0.4
        last[np.flatnonzero(valid)[-1]] = True  # no row is open when the scale changes
        valid[-4:] = last[-4:] = True
        dots = random_dots(config, rng, steps, around=12)
        # Sparse enables: single-bank rows let an exact integer be the maximum.
        enable = rng.random((steps, B)) < rng.choice([0.1, 0.5, 1.0], steps)[:, None]
        enable[-3:] = False  # three rows without a column
        golden = requantise_score(dots, multiplier, shift, number)
        row: list[int] = []
        for step in range(steps):
            maximum = None
            if valid[step]:
                row.append(step)
                if last[step]:
                    maximum = empty_maximum(number)
                    if enable[row].any():
                        flat = golden[row].reshape(1, -1), enable[row].reshape(1, -1)
                        maximum = int(integer_maximum(*flat, number)[0])
                    empty += not enable[row].any()
                    row = []
            maxima.append(maximum)
            scores.append(golden[step] if valid[step] else None)
        idle = SETTLE
        maxima += [None] * idle
        scores += [None] * idle
        parts.append(
            {
                "i_valid": np.append(valid, np.zeros(idle, bool)),
                "i_last": np.append(last, rng.random(idle) < 0.5),
                "i": np.concatenate([dots, random_dots(config, rng, idle, around=0)]),
                "i_enable": np.append(enable @ (1 << np.arange(B)), [0] * idle),
                "multiplier": np.full((steps + idle, B), multiplier),
                "shift": np.full((steps + idle, B), shift),
                "narrow": np.zeros(steps + idle, dtype=bool),
            }
        )
    inputs = {port: np.concatenate([part[port] for part in parts]) for port in parts[0]}
    ports = ["score_valid", "score", "score_enable", "score_last", "maximum_valid", "maximum"]
    got = drive(config, "score", inputs, ports, seed=seed)

    cycles = len(scores) - MAXIMUM_LATENCY
    seen = 0
    for cycle in range(cycles):
        where = f"input of cycle {cycle}, scale {inputs['multiplier'][cycle]}"
        at = cycle + SCORE_LATENCY
        assert got["score_valid"][at] == (scores[cycle] is not None), where
        if scores[cycle] is not None:
            assert np.array_equal(got["score"][at], scores[cycle]), where
            assert got["score_enable"][at] == inputs["i_enable"][cycle], where
            assert got["score_last"][at] == inputs["i_last"][cycle], where
        at = cycle + MAXIMUM_LATENCY
        assert got["maximum_valid"][at] == (maxima[cycle] is not None), where
        if maxima[cycle] is not None:
            assert got["maximum"][at] == maxima[cycle], where
            seen += 1
    assert seen > 300
    assert empty > 10
    assert not got["score_valid"][:SCORE_LATENCY].any()
    assert not got["maximum_valid"][:MAXIMUM_LATENCY].any()


@pytest.mark.parametrize("name", CONFIGS)
def test_a_scale_a_column_and_operands(name):
    """Every bank and cycle has a multiplier and shift of its own; results are operands."""
    config, seed = CONFIGS[name], sim.choose_seed()
    rng = np.random.default_rng(seed)
    B, number, cycles = config.array.banks, config.number, 1500
    dots = random_dots(config, rng, cycles, around=12)
    choices = np.array(scales(config, rng))
    scale = choices[rng.integers(len(choices), size=(cycles, B))]
    inputs = {
        "i_valid": rng.random(cycles) < 0.8,
        "i_last": rng.random(cycles) < 0.3,
        "i": dots,
        "i_enable": np.full(cycles, (1 << B) - 1),
        "multiplier": scale[..., 0],
        "shift": scale[..., 1],
        "narrow": np.ones(cycles, dtype=bool),
    }
    got = drive(config, "score", inputs, ["score_valid", "score"], seed=seed)
    golden = saturate(round_shift(dots * scale[..., 0], scale[..., 1]), number.operand_bits)
    assert 0.05 < (np.abs(golden) < (1 << (number.operand_bits - 1)) - 1).mean() < 0.95
    valid = np.flatnonzero(inputs["i_valid"][:-SCORE_LATENCY])
    assert got["score_valid"][valid + SCORE_LATENCY].all()
    np.testing.assert_array_equal(got["score"][valid + SCORE_LATENCY], golden[valid])
