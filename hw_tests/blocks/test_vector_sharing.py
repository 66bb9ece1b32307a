# amaranth: UnusedElaboratable=no
"""Residual sharing's epilogue against the golden core."""

from __future__ import annotations

import numpy as np
import pytest

from disc.config import CoreConfig
from disc.program import FuseCommand, MaskMode
from disc.tables import MULTIPLIER_BITS
from golden.integer.fused import FusedResult
from golden.integer.sharing import add_residual
from golden.integer.softmax import normalise
from golden.integer.tiled import RowState, residual_of
from hw.vector.sharing import SharingEpilogue, SharingMode
from hw.vector.words import total_bits, words_of
from hw_tests import sim
from hw_tests.blocks.vector_configs import CONFIGS
from hw_tests.blocks.vector_harness import Case, run, stalled, to_rows, to_words

TOP = (1 << MULTIPLIER_BITS) - 1
MOST_SHIFT = 35
"""The golden core shifts by at most 63, the reciprocal's exponent included."""


def sum_limit(config: CoreConfig) -> int:
    """Largest magnitude of a sum that the golden core's 63 bits can multiply."""
    return 1 << (min(config.number.accumulator_bits, 45) - 1)


def case(
    config: CoreConfig,
    rng: np.random.Generator,
    mode: SharingMode,
    dense: RowState,
    kept: RowState,
    residual: np.ndarray,
    scale: tuple[int, int],
) -> Case:
    number, V = config.number, config.vector.lanes
    command = FuseCommand(
        mode=MaskMode.DENSE,
        columns=1,
        beats=1,
        dot_base=0,
        axpy_base=0,
        score_multiplier=0,
        score_shift=0,
        output_multiplier=scale[0],
        output_shift=scale[1],
    )
    rows, channels = dense.acc.shape
    inputs = {
        "row": {"total": dense.total, "kept": kept.total},
        "acc": to_words(dense.acc, V, rng),
    }
    if mode == SharingMode.REUSE:
        inputs["residual"] = to_words(residual, V, rng)
        nothing = np.zeros((rows, 0), np.int64)
        result = FusedResult(
            nothing, nothing > 0, nothing, dense.maximum, nothing, dense.total, dense.acc
        )
        expected = {"o": to_rows(add_residual(result, residual, command, number), V)}
    else:
        out = normalise(dense.acc, dense.total, *scale, number)
        expected = {"o": to_rows(out, V)}
    if mode == SharingMode.REFRESH:
        inputs["kept"] = to_words(kept.acc, V, rng)
        expected["r"] = to_rows(residual_of(dense, kept, command, number), V)
    return Case(
        set={"channels": channels, "multiplier": scale[0], "shift": scale[1], "mode": mode.value},
        inputs=inputs,
        expected=expected,
        what=f"{mode.name}, d {channels}, rows {rows}, scale {scale}",
    )


def states(
    config: CoreConfig, rng: np.random.Generator, rows: int, channels: int
) -> tuple[RowState, RowState, tuple[int, int]]:
    """Sums of all and of kept columns as attention makes them, with a scale that suits them."""
    number, limit = config.number, sum_limit(config)
    half = 1 << (number.operand_bits - 1)
    widest = min(total_bits(config), limit.bit_length() - 1 - number.operand_bits)
    total = np.exp2(rng.uniform(0, widest, rows)).astype(np.int64)
    kept = (total * rng.uniform(0.3, 1, rows)).astype(np.int64)
    mean = rng.normal(0, half / 4, (rows, channels))
    change = rng.normal(0, half / 16, mean.shape)
    dense_acc = np.clip(np.rint(mean * total[:, None]), -limit, limit - 1)
    kept_acc = np.clip(np.rint((mean + change) * kept[:, None]), -limit, limit - 1)
    none = np.zeros(rows, np.int64)
    multiplier = int(rng.integers(1 << (MULTIPLIER_BITS - 1), TOP + 1))
    return (
        RowState(none, total, dense_acc.astype(np.int64)),
        RowState(none, kept, kept_acc.astype(np.int64)),
        (multiplier, int(rng.integers(MULTIPLIER_BITS - 1, MULTIPLIER_BITS + 1))),
    )


def random_case(
    config: CoreConfig, rng: np.random.Generator, mode: SharingMode, rows: int, channels: int
) -> Case:
    dense, kept, scale = states(config, rng, rows, channels)
    limit = 1 << (config.number.sharing_bits - 1)
    # Of the size of a result and less; now and then anything.
    unit = 1 << (config.number.operand_bits - 2 + config.number.sharing_guard_bits)
    residual = np.clip(rng.integers(-unit, unit, dense.acc.shape), -limit, limit - 1)
    anything = rng.random(residual.shape) < 0.1
    residual = np.where(anything, rng.integers(-limit, limit, residual.shape), residual)
    return case(config, rng, mode, dense, kept, residual, scale)


def lengths(config: CoreConfig) -> list[int]:
    V, most = config.vector.lanes, config.memory.head_dim
    return [1, V, V + 1, 2 * V, most, most - 1]


def random_cases(config: CoreConfig, rng: np.random.Generator, rows: int) -> list[Case]:
    modes = 2 * list(SharingMode)
    return [
        random_case(config, rng, mode, rows, d)
        for mode, d in zip(modes, rng.permutation(lengths(config)).tolist(), strict=True)
    ]


def directed_cases(config: CoreConfig, rng: np.random.Generator) -> list[Case]:
    """Every end of every operand, rows of nothing, and scales at both ends."""
    limit, shared = sum_limit(config), 1 << (config.number.sharing_bits - 1)
    top = (1 << total_bits(config)) - 1
    totals = np.array([0, 1, 2, 3, top, top - 1, top // 2 + 1, 1 << 8])
    channels = 9
    acc, kept = rng.choice([-limit, -1, 0, 1, limit - 1], (2, len(totals), channels))
    residual = rng.choice([-shared, -1, 0, 1, shared - 1], acc.shape)
    none = np.zeros_like(totals)
    guard = config.number.sharing_guard_bits
    scales = [(TOP, guard), (TOP, MOST_SHIFT), (0, 20), (1, guard), (1 << 15, 24)]
    cases = [
        case(
            config,
            rng,
            mode,
            RowState(none, totals, acc),
            RowState(none, totals[::-1], kept),
            residual,
            scale,
        )
        for mode in SharingMode
        for scale in scales
    ]
    plain = RowState(none, totals, acc)
    cases.append(case(config, rng, SharingMode.PLAIN, plain, plain, residual, (TOP, 0)))
    return cases


@pytest.mark.parametrize("name", CONFIGS)
def test_rows_without_and_with_stalls(name):
    config, seed = CONFIGS[name], sim.choose_seed()
    rng = np.random.default_rng(seed)
    free = [*directed_cases(config, rng), *random_cases(config, rng, rows=20)]
    slow = stalled(lambda: random_cases(config, rng, rows=int(rng.integers(1, 5))))
    for port, bits in (("o", config.number.operand_bits), ("r", config.number.sharing_bits)):
        words = [one.expected[port]["data"].ravel() for one in slow if port in one.expected]
        values, limit = np.concatenate(words), (1 << (bits - 1)) - 1
        assert (np.abs(values) < limit).mean() > 0.5, f"{port}: mostly saturated"
        assert (values != 0).mean() > 0.1, f"{port}: mostly zero"
    for one, got in zip(free, run(config, "sharing", [*free, *slow], seed=seed), strict=False):
        leaves = got.cycles["o"]
        assert (np.diff(leaves) == 1).all(), one.what
        assert np.array_equal(got.cycles["acc"] + SharingEpilogue.LATENCY, leaves), one.what
        assert got.cycles["acc"][0] - got.cycles["row"][0] == SharingEpilogue.ROW_LATENCY
        if "r" in one.expected:
            assert np.array_equal(got.cycles["r"], leaves), one.what
        words = words_of(one.set["channels"], config.vector.lanes)
        assert len(leaves) == words * len(got.cycles["row"])
