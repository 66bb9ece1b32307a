"""Every function of the engine on RTL against the integer golden core: random commands, cycles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from disc.config import CoreConfig
from disc.hashing import BankHash
from disc.program import Function, FuseCommand, MaskMode
from hw_tests.engine import HeadJob, jobs, simulate
from hw_tests.engine.configs import ENGINES
from hw_tests.sim import choose_seed

KINDS = {
    "attention": (jobs.attention, 30),
    "projection": (jobs.projection, 12),
    "mlp": (jobs.mlp, 24),
    "marking": (jobs.marking, 16),
}


def run(config: CoreConfig, kind: str, times: int = 1) -> None:
    seed = choose_seed()
    rng = np.random.default_rng(seed)
    draw, count = KINDS[kind]
    pairs = [draw(config, rng) for _ in range(times * count)]
    results = simulate(config, [item for item, _ in pairs], seed=seed)
    for (item, want), got in zip(pairs, results, strict=True):
        jobs.check(item, want, got)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ENGINES)
def test_random_commands(name: str, kind: str) -> None:
    """Random shapes, numbers, places, masks, row lists, hashes and stalls."""
    run(ENGINES[name], kind)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ENGINES)
def test_many_random_commands(name: str, kind: str) -> None:
    run(ENGINES[name], kind, times=15)


def large(config: CoreConfig, function: Function, rows: int, beats: int = 4) -> HeadJob:
    """Rows times all columns that fit the banks."""
    rng = np.random.default_rng(1)
    halves = 1 if function == Function.PROJECT else 2
    groups = min(config.memory.bank_words // (halves * beats), config.columns_per_bank)
    columns, d = groups * config.array.banks, beats * config.array.lanes
    low = -(1 << (config.number.operand_bits - 1))
    q, k, v = (rng.integers(low, -low, (n, d)) for n in (rows, columns, columns))
    command = FuseCommand(
        function=function,
        mode=MaskMode.DENSE,
        columns=columns,
        beats=beats,
        axpy_base=0 if halves == 1 else groups * beats,
        row_stride=beats,
    )
    item = HeadJob(
        q=q,
        k=k,
        command=command,
        hash=BankHash.xor_fold(config.array.banks, config.local_bits),
    )
    if function == Function.PROJECT:
        return item
    # A scale that keeps operands small: sums must not overflow.
    constants = np.tile([0, 1 << 15, 15 + config.number.operand_bits], (columns, 1))
    table = np.arange(low, -low)
    return replace(item, v=v, constants=constants, table=table)


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("function", [Function.PROJECT, Function.GELU], ids=lambda f: f.name)
def test_no_bubble_between_columns_and_rows(name: str, function: Function) -> None:
    """Cycles are those of the array and a constant: rows more cost what they must."""
    config = ENGINES[name]
    items = [large(config, function, rows) for rows in (4, 8, 12)]
    assert all(item.tile_rows(config) >= len(item.q) for item in items), "one command each"
    results = simulate(config, items)
    over = [
        got.counters.cycles - sum(jobs.array_cycles(item))
        for item, got in zip(items, results, strict=True)
    ]
    assert over[0] == over[1] == over[2], over


def test_a_large_projection_fills_the_array() -> None:
    """All 256 columns of `tiny`, rows of 16 words: nothing but the first row's listing and the way
    through the pipeline comes on top of `rows * columns of a bank * beats`.
    """
    config = ENGINES["tiny"]
    item = large(config, Function.PROJECT, rows=32, beats=16)
    (got,) = simulate(config, [item])
    groups = item.command.groups(config)
    assert (len(item.q), groups, item.command.beats) == (32, 64, 16)
    np.testing.assert_array_equal(got.out, item.q @ item.k.T)
    assert got.counters.dot == 32 * 64 * 16
    assert got.counters.cycles == 32 * 64 * 16 + groups + 15
    assert got.counters.dot / got.counters.cycles >= 0.99
