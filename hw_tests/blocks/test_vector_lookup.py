# amaranth: UnusedElaboratable=no
"""Activation table against the golden core, every entry in every lane."""

from __future__ import annotations

import numpy as np
import pytest

from disc.config import CoreConfig
from golden.integer.mlp import look_up
from golden.integer.parameters import gelu_table
from hw.vector.lookup import ActivationTable
from hw_tests import sim
from hw_tests.blocks.vector_configs import CONFIGS
from hw_tests.blocks.vector_harness import Case, run, stalled


def case(config: CoreConfig, rng: np.random.Generator, table: np.ndarray, words: int) -> Case:
    bits, lanes = config.number.operand_bits, config.array.banks
    half = 1 << (bits - 1)
    x = rng.integers(-half, half, (words, lanes))
    index = rng.permutation(2 * half) - half
    entries = {"index": index, "value": table[index + half]}
    return Case(
        set={},
        load={"load": entries},
        inputs={"i": x},
        expected={"o": look_up(x, table, config.number)},
    )


def random_table(config: CoreConfig, rng: np.random.Generator) -> np.ndarray:
    half = 1 << (config.number.operand_bits - 1)
    return rng.integers(-half, half, 2 * half)


@pytest.mark.parametrize("name", CONFIGS)
def test_every_entry_in_every_lane(name):
    config, seed = CONFIGS[name], sim.choose_seed()
    rng = np.random.default_rng(seed)
    half = 1 << (config.number.operand_bits - 1)
    free = []
    for table in (gelu_table(4 / half, 4 / half, config.number), random_table(config, rng)):
        one = case(config, rng, table, 2 * half)
        every = np.arange(-half, half)
        x = np.stack([rng.permutation(every) for _ in range(config.array.banks)], axis=1)
        one.inputs["i"], one.expected["o"] = x, look_up(x, table, config.number)
        free.append(one)
    again = case(config, rng, table, 20)
    again.load = {}  # the table stays
    slow = stalled(lambda: [case(config, rng, random_table(config, rng), 40)])
    for got in run(config, "lookup", [*free, again, *slow], seed=seed)[: len(free)]:
        assert (np.diff(got.cycles["i"]) == 1).all()
        assert np.array_equal(got.cycles["i"] + 1, got.cycles["o"])


def test_lanes_are_checked():
    with pytest.raises(ValueError, match="lanes: must be at least 1, got 0"):
        ActivationTable(CONFIGS["odd"], 0)
