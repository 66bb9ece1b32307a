"""Normaliser against the golden core."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from disc.config import CoreConfig
from golden.integer.softmax import normalise
from hw.masks.generator import total_bits
from hw_tests import sim
from hw_tests.blocks.configs import CONFIGS
from hw_tests.blocks.harness import simulator

SCALE = 6
"""Cycles from a row's total until its words can be read: reciprocal, multiplier, queue."""

ROWS = 16


@dataclass
class Case:
    """A command's constants and its rows."""

    config: CoreConfig
    multiplier: int
    shift: int
    beats: int
    rows: np.ndarray
    """[rows, 4]: slot, token, total, last"""
    acc: np.ndarray
    """[rows, max_beats, L]"""

    def words(self) -> np.ndarray:
        """Return the expected words [rows * beats, 4 + L]."""
        count, L = len(self.rows), self.config.array.lanes
        acc = self.acc[:, : self.beats].reshape(count, -1)
        total, number = self.rows[:, 2], self.config.number
        data = normalise(acc, total, self.multiplier, self.shift, number)
        words = np.empty((count, self.beats, 4 + L), dtype=np.int64)
        words[..., :2] = self.rows[:, None, :2]
        words[..., 2] = np.arange(self.beats)
        words[..., 3] = 0
        words[:, -1, 3] = self.rows[:, 3]
        words[..., 4:] = data.reshape(count, self.beats, L)
        return words.reshape(-1, 4 + L)


def random_case(config: CoreConfig, rng, beats: int, multiplier: int, shift: int) -> Case:
    acc_bits, widest = config.number.accumulator_bits, total_bits(config)
    limit = 1 << (acc_bits - 1)
    total = np.exp2(rng.uniform(0, widest, ROWS)).astype(np.int64)
    total[:4] = 0, 1, (1 << widest) - 1, 1 << (widest - 1)
    shape = ROWS, config.max_beats, config.array.lanes
    # Mostly sums that a mean of V can have, with this scale; else anything.
    mean = (1 << (config.number.operand_bits - 1)) * np.exp2(shift) / max(multiplier, 1)
    acc = np.clip(rng.uniform(-1.1, 1.1, shape) * mean * total[:, None, None], -limit, limit - 1)
    anything = rng.random(shape) < 0.2
    acc = np.where(anything, rng.integers(-limit, limit, shape), acc.astype(np.int64))
    acc[rng.random(shape) < 0.02] = -limit
    acc[rng.random(shape) < 0.02] = limit - 1
    rows = np.stack(
        [
            rng.integers(0, config.memory.query_rows, ROWS),
            rng.integers(0, 1 << config.column_bits, ROWS),
            total,
            rng.random(ROWS) < 0.3,
        ],
        axis=1,
    )
    return Case(config, multiplier, shift, beats, rows.astype(np.int64), acc)


def random_cases(config: CoreConfig, rng: np.random.Generator) -> list[Case]:
    scales = [(1 << 15, 15), (0xFFFF, 16), (0xFFFF, 0), (0xFFFF, 32), (1, 0), (0, 7)]
    scales += [(int(rng.integers(1 << 15, 1 << 16)), int(rng.integers(10, 20))) for _ in range(3)]
    beats = [config.max_beats, 1, *rng.integers(1, config.max_beats + 1, len(scales) - 2).tolist()]
    return [
        random_case(config, rng, beat, *scale) for beat, scale in zip(beats, scales, strict=True)
    ]


def check(
    config: CoreConfig, cases: list[Case], pause_in: str, pause_out: str, seed: int, **more: int
) -> list[dict[str, np.ndarray]]:
    given: dict[str, object] = {"alone": 0, **more}
    for n, case in enumerate(cases):
        for name in ("multiplier", "shift", "beats", "rows", "acc"):
            given[f"{n}.{name}"] = getattr(case, name)
    result = sim.run(
        simulator(config),
        "hw_tests.blocks.normaliser_bench",
        seed=seed,
        inputs={
            "config": config.to_toml(),
            "pause_in": pause_in,
            "pause_out": pause_out,
            "cases": len(cases),
            **given,
        },
    )
    names = ("totals", "reads", "transfers", "words")
    got = [{name: result.outputs[f"{n}.{name}"] for name in names} for n in range(len(cases))]
    for case, one in zip(cases, got, strict=True):
        what = f"{config.name}, multiplier {case.multiplier}, shift {case.shift}"
        expected = case.words()
        wrong = np.flatnonzero((one["words"] != expected).any(axis=1))
        assert not len(wrong), (
            f"{what}: word {wrong[0]}: expected {expected[wrong[0]]}, got {one['words'][wrong[0]]}"
        )
    return got


def chunks(config: CoreConfig) -> int:
    """Cycles that a word takes."""
    return config.array.lanes // config.vector.lanes


@pytest.mark.parametrize(
    ("pause_in", "pause_out"), [("bernoulli", "bernoulli"), ("never", "mostly_stalled")]
)
@pytest.mark.parametrize("name", CONFIGS)
def test_rows_with_stalls(name, pause_in, pause_out):
    config, seed = CONFIGS[name], sim.choose_seed()
    cases = random_cases(config, np.random.default_rng(seed))
    results = np.concatenate([case.words()[:, 4:].ravel() for case in cases[:2]])
    inside = np.abs(results) < (1 << (config.number.operand_bits - 1)) - 1
    assert 0.3 < inside.mean() < 0.99, "neither mostly saturated nor never"
    check(config, cases, pause_in, pause_out, seed)


@pytest.mark.parametrize("name", CONFIGS)
def test_one_word_every_few_cycles(name):
    config, seed = CONFIGS[name], sim.choose_seed()
    cases = random_cases(config, np.random.default_rng(seed))
    for case, got in zip(cases, check(config, cases, "never", "never", seed), strict=True):
        cycles = chunks(config)
        spacing = np.diff(got["transfers"].reshape(ROWS, case.beats), axis=1)
        assert (spacing == cycles).all(), "within a row"
        # Totals are far enough ahead, so the next row's scale waits for its words.
        assert (np.diff(got["transfers"]) == cycles).all(), "rows follow without a gap"


@pytest.mark.parametrize("name", CONFIGS)
def test_latency_of_a_single_row(name):
    config, seed = CONFIGS[name], sim.choose_seed()
    cases = random_cases(config, np.random.default_rng(seed))[:4]
    for case, got in zip(cases, check(config, cases, "never", "never", seed, alone=1), strict=True):
        first = got["transfers"][:: case.beats] - got["totals"]
        assert (first == SCALE + chunks(config) + 2).all()
        read = got["reads"].reshape(ROWS, case.beats) - got["totals"][:, None]
        words = np.arange(1, case.beats + 1) * chunks(config)
        assert (read == SCALE - 1 + words).all()
