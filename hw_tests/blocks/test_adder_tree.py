"""Adder trees of every size up to 17, signed and unsigned."""

from __future__ import annotations

import numpy as np
import pytest

from hw.adder_tree import adder_tree_latency
from hw_tests import sim
from hw_tests.blocks.configs import CONFIGS
from hw_tests.blocks.harness import TREE_SHAPES, TREE_TERMS
from hw_tests.blocks.vectors import drive


@pytest.mark.parametrize("kind", TREE_SHAPES)
def test_sum_after_the_latency(kind):
    seed = sim.choose_seed()
    rng = np.random.default_rng(seed)
    shape, cycles = TREE_SHAPES[kind], 200
    low = -(1 << (shape.width - 1)) if shape.signed else 0
    high = low + (1 << shape.width) - 1
    terms, expected = {}, {}
    for size in TREE_TERMS:
        values = rng.integers(low, high + 1, (cycles, size))
        values[rng.random(cycles) < 0.1] = low
        values[rng.random(cycles) < 0.1] = high
        terms[f"terms_{size}"] = values
        expected[size] = values.sum(axis=1)
    got = drive(
        CONFIGS["tiny"],
        f"{kind}_trees",
        terms,
        [f"total_{size}" for size in TREE_TERMS],
        seed=seed,
    )
    for size in TREE_TERMS:
        latency = adder_tree_latency(size)
        total = got[f"total_{size}"][latency:]
        assert np.array_equal(total, expected[size][: cycles - latency]), f"{size} terms"


def test_latency_is_one_cycle_for_two_levels():
    levels = {1: 0, 2: 1, 3: 2, 4: 2, 5: 3, 8: 3, 9: 4, 16: 4, 17: 5, 64: 6, 65: 7, 128: 7}
    for terms, deep in levels.items():
        assert adder_tree_latency(terms) == (deep + 1) // 2
