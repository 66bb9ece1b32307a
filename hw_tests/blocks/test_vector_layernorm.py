# amaranth: UnusedElaboratable=no
"""LayerNorm with modulation against the golden core."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from disc.config import CoreConfig
from disc.tables import VECTOR_BITS
from golden.integer.layernorm import Modulation, layer_norm, modulate
from hw.vector.layernorm import LayerNorm
from hw.vector.words import words_of
from hw_tests import sim
from hw_tests.blocks.vector_configs import CONFIGS
from hw_tests.blocks.vector_harness import Case, run, stalled, to_rows, to_words

TOP = (1 << (VECTOR_BITS - 1)) - 1


def modulation(rng: np.random.Generator, channels: int, shift: int) -> Modulation:
    multiplier, bias = rng.integers(-TOP - 1, TOP + 1, (2, channels))
    multiplier[rng.random(channels) < 0.1] = -TOP - 1
    return Modulation(multiplier, bias, shift)


def words_of_vectors(config: CoreConfig, vectors: Modulation) -> dict[str, np.ndarray]:
    V = config.vector.lanes
    return {
        "multipliers": to_words(vectors.multiplier[None], V),
        "biases": to_words(vectors.bias[None], V),
    }


def case(
    config: CoreConfig,
    rng: np.random.Generator,
    x: np.ndarray,
    *,
    epsilon: int = 0,
    shift: int = 20,
    vectors: Modulation | None = None,
    late: bool = False,
) -> Case:
    """A case whose vectors come ahead of its rows, or with `late` at the same time."""
    channels = x.shape[1]
    vectors = modulation(rng, channels, shift) if vectors is None else vectors
    out = modulate(layer_norm(x, epsilon), vectors, config.number)
    words = words_of_vectors(config, vectors)
    return Case(
        set={"channels": channels, "epsilon": epsilon, "shift": vectors.shift},
        pulse=("clear",),
        load={} if late else words,
        inputs={"i": to_words(x, config.vector.lanes, rng)} | (words if late else {}),
        expected={"o": to_rows(out, config.vector.lanes)},
        what=f"D {channels}, rows {len(x)}, epsilon {epsilon}, shift {vectors.shift}",
    )


def residual(config: CoreConfig, rng: np.random.Generator, rows: int, channels: int) -> np.ndarray:
    """Rows as a network has them: means and spreads that differ from row to row, outliers."""
    limit = 1 << (config.number.residual_bits - 1)
    spread = np.exp2(rng.uniform(0, config.number.residual_bits - 1, (rows, 1)))
    x = rng.normal(0, 1, (rows, channels)) * spread + rng.normal(0, limit / 4, (rows, 1))
    x = np.where(rng.random(x.shape) < 0.01, rng.choice([-limit, limit - 1], x.shape), x)
    return np.clip(np.rint(x), -limit, limit - 1).astype(np.int64)


def lengths(config: CoreConfig) -> list[int]:
    V = config.vector.lanes
    return sorted({1, 2, V, V + 1, 3 * V - 1, 17})


def usual_shift(config: CoreConfig, rng: np.random.Generator) -> int:
    """With which some half of the results saturate."""
    return 24 - config.number.operand_bits + int(rng.integers(4))


def random_cases(config: CoreConfig, rng: np.random.Generator, rows: int) -> list[Case]:
    cases = []
    for channels in lengths(config):
        epsilon = int(rng.choice([0, 1, 1 << 20]))
        x = residual(config, rng, rows, channels)
        cases.append(case(config, rng, x, epsilon=epsilon, shift=usual_shift(config, rng)))
    return cases


def directed_cases(config: CoreConfig, rng: np.random.Generator) -> list[Case]:
    most, bits = config.vector.max_channels, config.number.residual_bits
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    ends = np.array([np.full(most, low), np.full(most, high)])
    halves = np.where(np.arange(most) % 2, low, high)  # largest V
    spike = np.full(most, low)
    spike[-1] = high  # largest z
    flat = np.array([[c] * 7 for c in (low, -1, 0, 1, high)])
    some = residual(config, rng, 5, 2 * config.vector.lanes + 1)
    extreme = [
        Modulation(np.full(some.shape[1], m), np.full(some.shape[1], b), s)
        for m, b, s in [(TOP, TOP, 0), (-TOP - 1, -TOP - 1, 0), (TOP, -TOP - 1, 63), (1, 0, 10)]
    ]
    return [
        case(config, rng, np.array([*ends, halves, spike, -1 - spike]), shift=24),
        case(config, rng, flat),  # V = 0
        case(config, rng, flat, epsilon=(1 << 48) - 1),
        case(config, rng, np.array([[low], [0], [high]])),  # D = 1: V = 0 again
        case(config, rng, some[:1]),
        *(case(config, rng, some, vectors=one) for one in extreme),
    ]


def late_vectors(
    config: CoreConfig, rng: np.random.Generator, late: tuple[str, ...] = ()
) -> list[Case]:
    """Vectors of several lengths that come with the rows, or long behind them."""
    cases = [
        case(
            config,
            rng,
            residual(config, rng, 4, channels),
            shift=usual_shift(config, rng),
            late=True,
        )
        for channels in (1, 5, config.vector.lanes * 12 - 1)
    ]
    return [replace(one, late=late) for one in cases]


@pytest.mark.parametrize("name", CONFIGS)
def test_rows_without_and_with_stalls(name):
    config, seed = CONFIGS[name], sim.choose_seed()
    rng = np.random.default_rng(seed)
    free = [*directed_cases(config, rng), *random_cases(config, rng, rows=30)]
    slow = stalled(
        lambda: [
            *random_cases(config, rng, rows=int(rng.integers(1, 7))),
            *late_vectors(config, rng),
            *late_vectors(config, rng, ("multipliers", "biases")),
            *late_vectors(config, rng, ("biases",)),
        ]
    )
    results = np.concatenate([one.expected["o"]["data"].ravel() for one in slow])
    limit = (1 << (config.number.operand_bits - 1)) - 1
    assert 0.1 < (np.abs(results) < limit).mean() < 0.99, "neither mostly saturated nor never"
    latency = LayerNorm(config).latency
    free += late_vectors(config, rng)
    for one, got in zip(free, run(config, "layernorm", [*free, *slow], seed=seed), strict=False):
        words = words_of(one.set["channels"], config.vector.lanes)
        assert (np.diff(got.cycles["i"]) == 1).all(), one.what
        assert (np.diff(got.cycles["o"]) == 1).all(), one.what
        first, last = got.cycles["o"][::words], got.cycles["i"][words - 1 :: words]
        assert (first - last == latency).all(), one.what
