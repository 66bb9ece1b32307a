# amaranth: UnusedElaboratable=no
"""Merging of key tiles against the golden core."""

from __future__ import annotations

import numpy as np
import pytest

from disc.config import CoreConfig
from golden.integer.tiled import RowState, empty_maximum, merge
from hw.softmax.score import maximum_bits
from hw.vector.merge import TileMerger
from hw.vector.words import total_bits
from hw_tests import sim
from hw_tests.blocks.vector_configs import CONFIGS
from hw_tests.blocks.vector_harness import Case, run, stalled, to_rows, to_words


def case(
    config: CoreConfig, rng: np.random.Generator, a: RowState, b: RowState, what: str = ""
) -> Case:
    V = config.vector.lanes
    merged = merge(a, b, config.number)
    inputs = {}
    for name, state in (("a", a), ("b", b)):
        inputs[f"row_{name}"] = {"maximum": state.maximum, "total": state.total}
        inputs[name] = to_words(state.acc, V, rng)
    channels = a.acc.shape[1]
    return Case(
        set={"channels": channels},
        inputs=inputs,
        expected={
            "row": {"maximum": merged.maximum, "total": merged.total},
            "o": to_rows(merged.acc, V),
        },
        what=f"d {channels}, rows {len(a.acc)} {what}",
    )


def random_state(
    config: CoreConfig, rng: np.random.Generator, maximum: np.ndarray, channels: int
) -> RowState:
    """Sums that leave room for another state's; some rows keep no column."""
    limit = 1 << (min(config.number.accumulator_bits, 62) - 2)
    acc = rng.integers(-limit, limit, (len(maximum), channels))
    total = rng.integers(0, 1 << (total_bits(config) - 1), len(maximum))
    empty = rng.random(len(maximum)) < 0.15
    acc[empty], total[empty] = 0, 0
    return RowState(np.where(empty, empty_maximum(config.number), maximum), total, acc)


def random_case(config: CoreConfig, rng: np.random.Generator, rows: int, channels: int) -> Case:
    top = -empty_maximum(config.number) // 2
    maximum = rng.integers(-top, top + 1, rows)
    near = np.clip(maximum + rng.integers(-12, 13, rows), -top, top)
    a = random_state(config, rng, maximum, channels)
    return case(config, rng, a, random_state(config, rng, near, channels))


def lengths(config: CoreConfig) -> list[int]:
    V, most = config.vector.lanes, config.memory.head_dim
    return [1, V, V + 1, 2 * V, most]


def directed_cases(config: CoreConfig, rng: np.random.Generator) -> list[Case]:
    """Every distance of maxima around the ends of the shifter, by the ends of the operands."""
    bits, number = config.number.accumulator_bits, config.number
    limit = 1 << (bits - 1)
    top = (1 << total_bits(config)) - 1
    lowest = empty_maximum(number)
    distance = np.concatenate([np.arange(70), [127, 128, 129, -lowest, 1 - lowest]])
    distance = distance[distance <= -lowest + (-lowest // 2)]
    high = np.where(distance > -lowest, -lowest // 2, distance + lowest)
    ends = np.array([-limit, -limit + 1, -1, 0, 1, limit - 1, limit // 2, -limit // 2])
    acc = np.tile(ends, (len(distance), 1))
    zero = np.zeros_like(acc)
    totals = np.resize([top, 0, 1, top // 2 + 1], len(distance))
    low_side = RowState(high - distance, totals, acc)
    high_side = RowState(high, np.zeros_like(totals), zero)
    assert low_side.maximum.min() >= -(1 << (maximum_bits(config) - 1))
    empty = RowState(np.full(3, lowest), np.zeros(3, np.int64), np.zeros((3, 5), np.int64))
    return [
        case(config, rng, low_side, high_side, "shift a"),
        case(config, rng, high_side, low_side, "shift b"),
        case(config, rng, empty, empty, "empty"),
    ]


@pytest.mark.parametrize("name", CONFIGS)
def test_rows_without_and_with_stalls(name):
    config, seed = CONFIGS[name], sim.choose_seed()
    rng = np.random.default_rng(seed)
    free = directed_cases(config, rng)
    free += [random_case(config, rng, 20, d) for d in lengths(config)]
    slow = stalled(
        lambda: [random_case(config, rng, int(rng.integers(1, 5)), d) for d in lengths(config)]
    )
    for one, got in zip(free, run(config, "merge", [*free, *slow], seed=seed), strict=False):
        assert (np.diff(got.cycles["o"]) == 1).all(), one.what
        assert np.array_equal(got.cycles["a"] + TileMerger.LATENCY, got.cycles["o"]), one.what
        assert got.cycles["a"][0] - got.cycles["row_a"][0] == TileMerger.ROW_LATENCY
        assert np.array_equal(got.cycles["row_a"] + TileMerger.ROW_LATENCY, got.cycles["row"])
