# amaranth: UnusedElaboratable=no
"""DPU array: sums, flags and latencies against brute force, cycle by cycle."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from disc.config import CoreConfig
from hw.adder_tree import adder_tree_latency
from hw.array.dpu_array import DpuArray, scalar_bits
from hw_tests import sim
from hw_tests.blocks.configs import CONFIGS
from hw_tests.blocks.vectors import drive

STEP = ("axpy", "first", "last", "last_step")


def dot_steps(columns: int, beats: int) -> list[dict[str, int]]:
    """Return the steps of a row of dot products: one column of each bank after the other."""
    return [
        {
            "axpy": 0,
            "first": beat == 0,
            "last": beat == beats - 1,
            "last_step": column == columns - 1,
        }
        for column in range(columns)
        for beat in range(beats)
    ]


def axpy_steps(columns: int, beats: int) -> list[dict[str, int]]:
    """Return the steps of a row of sums: one word with all its columns after the other."""
    return [
        {
            "axpy": 1,
            "first": column == 0,
            "last": column == columns - 1,
            "last_step": column == columns - 1,
        }
        for beat in range(beats)
        for column in range(columns)
    ]


@dataclass
class Run:
    """Inputs by cycle."""

    config: CoreConfig
    rng: np.random.Generator
    extreme: float
    """Fraction of cycles with the largest magnitudes of one sign."""
    steps: list[dict[str, int] | None] = field(default_factory=list)

    def inputs(self) -> dict[str, object]:
        """Draw operands; in cycles without a step too, where nobody may use them."""
        rng, config, n = self.rng, self.config, len(self.steps)
        B, L = config.array.banks, config.array.lanes
        low = -(1 << (config.number.operand_bits - 1))
        # Numerators are unsigned, activations signed operands.
        top = (1 << config.number.numerator_bits) - 1
        word = rng.integers(low, -low, (n, B, L))
        query = rng.integers(low, -low, (n, L))
        scalar = rng.integers(low, top + 1, (n, B))
        enable = rng.random((n, B)) < rng.choice([0.0, 0.5, 1.0], n, p=[0.1, 0.4, 0.5])[:, None]
        wild = rng.random(n) < self.extreme
        word[wild], query[wild], scalar[wild], enable[wild] = low, low, top, True
        if self.extreme < 1:  # both signs; otherwise one, so that sums are as large as can be
            word[rng.random(n) < self.extreme / 4] = -low - 1
        noise = {name: rng.integers(0, 2, n) for name in STEP}
        for cycle, step in enumerate(self.steps):
            if step is not None:
                for name in STEP:
                    noise[name][cycle] = step[name]
        return {
            "step_valid": np.array([step is not None for step in self.steps]),
            "step": noise,
            "enable": enable @ (1 << np.arange(B)),
            "word": word,
            "query": query,
            "scalar": scalar,
            "bias": self.bias(n),
        }

    def bias(self, n: int) -> np.ndarray:
        """Draw what dot starts from: all that leaves room for the longest sum."""
        config = self.config
        products = config.max_beats * config.array.lanes << (2 * config.number.operand_bits - 2)
        room = (1 << (config.number.accumulator_bits - 1)) - 1 - products
        drawn = self.rng.integers(-room, room + 1, (n, config.array.banks))
        drawn[self.rng.random(n) < self.extreme] = room
        return drawn


def check(run: Run, seed: int) -> None:
    """Drive the array and compare everything it says in every cycle."""
    config, inputs, n = run.config, run.inputs(), len(run.steps)
    B, L = config.array.banks, config.array.lanes
    enable = (inputs["enable"][:, None] >> np.arange(B)) & 1
    dots = (inputs["word"] * inputs["query"][:, None, :]).sum(axis=2) * enable
    sums = (inputs["word"] * (inputs["scalar"] * enable)[:, :, None]).sum(axis=1)

    ports = ["dot_valid", "dot", "dot_enable", "dot_last", "sum_valid", "sum"]
    got = drive(config, "array", inputs, ports, seed=seed)

    dot_late, axpy_late = 3 + adder_tree_latency(L), 3 + adder_tree_latency(B)
    assert (dot_late, axpy_late) == (DpuArray(config).dot_latency, DpuArray(config).axpy_latency)
    assert not got["dot_valid"][:dot_late].any()
    assert not got["sum_valid"][:axpy_late].any()
    dot = np.zeros(B, dtype=np.int64)
    acc, known = np.zeros(L, dtype=np.int64), False
    for cycle in range(n - max(dot_late, axpy_late)):
        step, where = run.steps[cycle], f"step of cycle {cycle}: {run.steps[cycle]}"
        at = cycle + dot_late
        is_dot = step is not None and not step["axpy"]
        assert got["dot_valid"][at] == (is_dot and step["last"]), where
        if is_dot:
            dot = dots[cycle] + (inputs["bias"][at - 1] if step["first"] else dot)
        if got["dot_valid"][at]:
            assert np.array_equal(got["dot"][at], dot), where
            assert got["dot_enable"][at] == inputs["enable"][cycle], where
            assert got["dot_last"][at] == step["last_step"], where

        at = cycle + axpy_late
        is_axpy = step is not None and step["axpy"]
        assert got["sum_valid"][at] == (is_axpy and step["last"]), where
        if is_axpy:
            acc, known = sums[cycle] + (0 if step["first"] else acc), True
        if known:  # whatever is not being added to must hold
            assert np.array_equal(got["sum"][at], acc), where


@pytest.mark.parametrize("name", ["tiny", "odd"])
def test_interleaved_steps(name):
    config, seed = CONFIGS[name], sim.choose_seed()
    rng = np.random.default_rng(seed)
    run = Run(config, rng, extreme=0.1)
    most = min(config.columns_per_bank, 6)
    queues: list[list[dict[str, int]]] = [[], []]  # dot and axpy
    for _ in range(30):
        columns, beats = int(rng.integers(1, most + 1)), int(rng.integers(1, config.max_beats + 1))
        queues[0] += dot_steps(columns, beats)
        queues[1] += axpy_steps(columns, beats)
    # Runs of one queue, as the engine issues them, and single steps of alternating ones.
    while any(queues):
        queue = queues[rng.choice([i for i, queue in enumerate(queues) if queue])]
        for _ in range(int(rng.choice([1, 1, 2, 10]))):
            if queue:
                run.steps.append(queue.pop(0))
        if rng.random() < 0.15:
            run.steps += [None] * int(rng.integers(1, 4))
    run.steps += [None] * 10
    check(run, seed)


@pytest.mark.parametrize("name", ["tiny", "odd"])
def test_largest_sums_without_a_gap(name):
    """The longest rows with all operands at their limits: the accumulators just hold them."""
    config, seed = CONFIGS[name], sim.choose_seed()
    run = Run(config, np.random.default_rng(seed), extreme=1.0)
    beats, columns = config.max_beats, config.columns_per_bank
    run.steps += dot_steps(2, beats) + axpy_steps(columns, beats)
    run.steps += [None] * 10
    assert scalar_bits(config) > config.number.numerator_bits
    check(run, seed)
