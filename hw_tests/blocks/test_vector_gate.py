# amaranth: UnusedElaboratable=no
"""Gated sums into the residual stream against the golden core."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from disc.config import CoreConfig
from disc.tables import VECTOR_BITS
from golden.integer.linear import Gate, gate_residual
from hw.vector.gate import GateResidual
from hw_tests import sim
from hw_tests.blocks.vector_configs import CONFIGS
from hw_tests.blocks.vector_harness import Case, run, stalled, to_rows, to_words

TOP = (1 << (VECTOR_BITS - 1)) - 1
TERMS = list(product([0, 1], repeat=3))
"""add_bias, add_earlier, gate."""


def sum_limit(config: CoreConfig) -> int:
    """Largest magnitude of a sum that the golden core's 63 bits can multiply."""
    return 1 << (min(config.number.accumulator_bits, 47) - 1)


def wrap(values: np.ndarray, bits: int) -> np.ndarray:
    return (values + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


def case(
    config: CoreConfig,
    rng: np.random.Generator,
    x: np.ndarray,
    total: np.ndarray,
    gate: Gate,
    terms: tuple[int, int, int],
) -> Case:
    """A case whose sums, of all terms, are `total`; single terms are anything."""
    number, V = config.number, config.vector.lanes
    channels = x.shape[1]
    limit = 1 << (number.accumulator_bits - 1)
    add_bias, add_earlier, gated = terms
    bias = rng.integers(-limit, limit, channels)
    earlier = rng.integers(-limit, limit, x.shape)
    acc = wrap(total - add_bias * bias - add_earlier * earlier, number.accumulator_bits)
    words = to_words(gate.multiplier[None], V, rng)
    address = np.arange(len(words))
    load = {
        "multipliers": {"address": address, "data": words},
        "biases": {"address": address, "data": to_words(bias[None], V, rng)},
    }
    inputs = {"acc": to_words(acc, V, rng)}
    if add_earlier:
        inputs["earlier"] = to_words(earlier, V, rng)
    if gated:
        inputs["x"] = to_words(x, V, rng)
        expected = {"o": to_rows(gate_residual(x, total, gate, number), V)}
    else:
        expected = {"sums": to_rows(total, V)}
    return Case(
        set={
            "channels": channels,
            "shift": gate.shift,
            "add_bias": add_bias,
            "add_earlier": add_earlier,
            "gate": gated,
        },
        load=load,
        inputs=inputs,
        expected=expected,
        what=f"D {channels}, rows {len(x)}, shift {gate.shift}, terms {terms}",
    )


def random_case(
    config: CoreConfig, rng: np.random.Generator, terms: tuple[int, int, int], rows: int, D: int
) -> Case:
    number, limit = config.number, sum_limit(config)
    shape = rows, D
    x = rng.integers(-(1 << (number.residual_bits - 1)), 1 << (number.residual_bits - 1), shape)
    # Branches of all sizes up to a few times the residual stream.
    total = rng.normal(0, limit / 8, shape) * np.exp2(rng.uniform(-8, 0, shape))
    total = np.clip(np.rint(total), -limit, limit - 1).astype(np.int64)
    shift = (limit.bit_length() - 4) + (VECTOR_BITS - 1) - (number.residual_bits - 1)
    gate = Gate(rng.integers(-TOP - 1, TOP + 1, D), shift + int(rng.integers(-2, 2)))
    return case(config, rng, x, total, gate, terms)


def lengths(config: CoreConfig) -> list[int]:
    V = config.vector.lanes
    return [1, V, V + 1, 3 * V - 1, 2, 17, 2 * V, 9]


def random_cases(config: CoreConfig, rng: np.random.Generator, rows: int) -> list[Case]:
    return [
        random_case(config, rng, terms, rows, D)
        for terms, D in zip(TERMS, rng.permutation(lengths(config)).tolist(), strict=True)
    ]


def directed_cases(config: CoreConfig, rng: np.random.Generator) -> list[Case]:
    number, limit = config.number, sum_limit(config)
    low, high = -(1 << (number.residual_bits - 1)), (1 << (number.residual_bits - 1)) - 1
    # Every end of x against every end of the sum, by every end of the gate; and small ones.
    values = product([low, -1, 0, high], [-limit, -1, 0, 1, limit - 1], [-TOP - 1, -1, 0, 1, TOP])
    x, total, multiplier = np.array(list(values)).T
    return [
        case(config, rng, x[None], total[None], Gate(multiplier, shift), (1, 1, 1))
        for shift in (0, 1, 16, 45, 63)
    ]


@pytest.mark.parametrize("name", CONFIGS)
def test_rows_without_and_with_stalls(name):
    config, seed = CONFIGS[name], sim.choose_seed()
    rng = np.random.default_rng(seed)
    free = [*directed_cases(config, rng), *random_cases(config, rng, rows=20)]
    slow = stalled(lambda: random_cases(config, rng, rows=int(rng.integers(1, 6))))
    results = np.concatenate(
        [one.expected["o"]["data"].ravel() for one in slow if "o" in one.expected]
    )
    limit = (1 << (config.number.residual_bits - 1)) - 1
    assert 0.5 < (np.abs(results) < limit).mean() < 1, "neither mostly saturated nor never"
    for one, got in zip(free, run(config, "gate", [*free, *slow], seed=seed), strict=False):
        gated = bool(one.set["gate"])
        latency = GateResidual.LATENCY if gated else GateResidual.SUMS_LATENCY
        leaves = got.cycles["o" if gated else "sums"]
        assert (np.diff(leaves) == 1).all(), one.what
        assert np.array_equal(got.cycles["acc"] + latency, leaves), one.what
