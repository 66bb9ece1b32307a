# amaranth: UnusedElaboratable=no
"""Forecast of reused rows and record of computed ones against the golden core."""

from __future__ import annotations

import numpy as np
import pytest

from disc.config import CoreConfig
from disc.tables import DISTANCE_BITS, step_ratio_table
from golden.integer.forecast import forecast
from golden.integer.rounding import saturate
from hw.vector.forecast import Forecast, Record
from hw_tests import sim
from hw_tests.blocks.vector_configs import CONFIGS
from hw_tests.blocks.vector_harness import Case, run, stalled, to_rows, to_words

STEPS = 1 << DISTANCE_BITS
STREAMS = ("embedding", "last", "before")


def case(
    config: CoreConfig,
    rng: np.random.Generator,
    values: dict[str, np.ndarray],
    since: np.ndarray,
    apart: np.ndarray,
    damping: float = 1.0,
    hold: int = 0,
) -> Case:
    number, V = config.number, config.vector.lanes
    table = np.array(step_ratio_table(damping))
    apart = np.where(hold, 0, apart)
    branch = forecast(values["last"], values["before"], since, apart, table, number)
    x = saturate(values["embedding"] + branch, number.residual_bits)
    inputs = {name: to_words(values[name], V, rng) for name in STREAMS}
    if hold:
        del inputs["before"]
    else:
        inputs["row"] = {"since": since, "apart": apart}
    return Case(
        set={"channels": x.shape[1], "hold": hold},
        load={"load": {"index": np.arange(STEPS), "value": table}},
        inputs=inputs,
        expected={"o": to_rows(x, V)},
        what=f"D {x.shape[1]}, rows {len(x)}, damping {damping}, hold {hold}",
    )


def values_of(
    config: CoreConfig, rng: np.random.Generator, rows: int, D: int
) -> dict[str, np.ndarray]:
    limit = 1 << (config.number.residual_bits - 1)
    last = np.rint(rng.normal(0, limit / 3, (rows, D)))
    moved = {"embedding": 0 * last, "last": last, "before": last}
    return {
        name: np.clip(
            base + np.rint(rng.normal(0, limit / 8, last.shape)), -limit, limit - 1
        ).astype(np.int64)
        for name, base in moved.items()
    }


def lengths(config: CoreConfig) -> list[int]:
    V = config.vector.lanes
    return [1, V, V + 1, 3 * V - 1, 17]


def random_cases(config: CoreConfig, rng: np.random.Generator, rows: int) -> list[Case]:
    cases = []
    for D in lengths(config):
        since = rng.integers(1, 12, rows)
        apart = rng.integers(0, 12, rows)
        damping = float(rng.choice([1.0, 0.5]))
        cases.append(case(config, rng, values_of(config, rng, rows, D), since, apart, damping))
    held = values_of(config, rng, rows, config.vector.lanes + 1)
    cases.append(case(config, rng, held, since, apart, hold=1))
    return cases


def directed_cases(config: CoreConfig, rng: np.random.Generator) -> list[Case]:
    limit = 1 << (config.number.residual_bits - 1)
    ends = np.array([-limit, -1, 0, 1, limit - 1])
    cube = np.array(np.meshgrid(ends, ends, ends)).reshape(3, 1, -1)
    cases = []
    for since, apart in [(1, 1), (63, 1), (1, 63), (63, 63), (5, 0), (0, 3)]:
        values = dict(zip(STREAMS, cube, strict=True))
        cases.append(case(config, rng, values, np.array([since]), np.array([apart])))
    # Every entry of the table, by several distances.
    apart = np.tile(np.arange(STEPS), 2)
    since = np.repeat([1, STEPS - 1], STEPS)
    values = values_of(config, rng, 2 * STEPS, config.vector.lanes)
    cases.append(case(config, rng, values, since, apart, damping=0.9))
    return cases


def record_case(config: CoreConfig, rng: np.random.Generator, rows: int, D: int) -> Case:
    number, V = config.number, config.vector.lanes
    limit = 1 << (number.residual_bits - 1)
    x, embedding, last = rng.integers(-limit, limit, (3, rows, D))
    x[rng.random(x.shape) < 0.2] = -limit
    embedding[rng.random(x.shape) < 0.2] = limit - 1
    change = saturate(x - embedding, number.residual_bits)
    inputs = {"x": x, "embedding": embedding, "last": last}
    return Case(
        set={"channels": D},
        inputs={name: to_words(value, V, rng) for name, value in inputs.items()},
        expected={"new_last": to_rows(change, V), "new_before": to_rows(last, V)},
    )


@pytest.mark.parametrize("name", CONFIGS)
def test_forecast(name):
    config, seed = CONFIGS[name], sim.choose_seed()
    rng = np.random.default_rng(seed)
    free = [*directed_cases(config, rng), *random_cases(config, rng, rows=20)]
    slow = stalled(lambda: random_cases(config, rng, rows=int(rng.integers(1, 6))))
    results = np.concatenate([one.expected["o"]["data"].ravel() for one in slow])
    limit = (1 << (config.number.residual_bits - 1)) - 1
    assert 0.4 < (np.abs(results) < limit).mean() < 1, "neither mostly saturated nor never"
    for one, got in zip(free, run(config, "forecast", [*free, *slow], seed=seed), strict=False):
        assert (np.diff(got.cycles["o"]) == 1).all(), one.what
        assert np.array_equal(got.cycles["last"] + Forecast.LATENCY, got.cycles["o"]), one.what
        if not one.set["hold"]:
            assert got.cycles["last"][0] - got.cycles["row"][0] == Forecast.ROW_LATENCY


@pytest.mark.parametrize("name", CONFIGS)
def test_record(name):
    config, seed = CONFIGS[name], sim.choose_seed()
    rng = np.random.default_rng(seed)
    free = [record_case(config, rng, 20, D) for D in lengths(config)]
    slow = stalled(lambda: [record_case(config, rng, 3, D) for D in lengths(config)])
    for got in run(config, "record", [*free, *slow], seed=seed)[: len(free)]:
        for port in ("new_last", "new_before"):
            assert np.array_equal(got.cycles["x"] + Record.LATENCY, got.cycles[port])
            assert (np.diff(got.cycles[port]) == 1).all()
