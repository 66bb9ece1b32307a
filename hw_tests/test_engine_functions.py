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
    "mlp": (jobs.mlp, 12),
    "hot": (jobs.hot, 24),
    "marking": (jobs.marking, 16),
    "filling": (jobs.filling, 16),
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


def _counted(item: HeadJob) -> dict[str, int]:
    (got,) = simulate(ENGINES["tiny"], [item])
    return vars(got.counters)


def test_counters_of_a_small_projection_by_hand() -> None:
    """One row of two words times five columns on four banks: two columns of the fullest bank.

    Dot takes 2 * 2 cycles and visits 2 * 4 places for 5 columns.  Nothing waits for room, so all
    else is the way in and out, 2 + 15 cycles as for the large projection above.
    """
    rng = np.random.default_rng(2)
    command = FuseCommand(
        function=Function.PROJECT, mode=MaskMode.DENSE, columns=5, beats=2, row_stride=2
    )
    item = HeadJob(
        q=rng.integers(-9, 9, (1, 16)),
        k=rng.integers(-9, 9, (5, 16)),
        command=command,
        hash=BankHash.modulo(4, ENGINES["tiny"].local_bits),
    )
    assert _counted(item) == {
        "cycles": 21,
        "dot": 4,
        "axpy": 0,
        "kept": 5,
        "rows": 1,
        "imbalance": 3,
        "no_room": 0,
        "no_row": 17,
    }


@pytest.mark.parametrize(("words", "waits"), [(27, 0), (28, 1), (40, 13)])
def test_cycles_without_room_by_hand(words: int, waits: int) -> None:
    """One column a bank, so the array makes a word a cycle; one of 8 is read in two cycles.

    Word n is complete at n + 1 and read from n + 8 on, word 0 until 10, word n until 10 + 2n.  18
    words have room.  So word n begins at max(n, 10 + 2 (n - 18)), which is later from n = 27 on.
    """
    config = ENGINES["tiny"]
    item = large(config, Function.GELU, rows=1, beats=1)
    columns, lanes = config.array.banks, config.array.lanes
    command = replace(item.command, columns=columns, beats=1, axpy_beats=words, axpy_base=1)
    item = replace(
        item,
        q=item.q[:, :lanes],
        k=item.k[:columns, :lanes],
        v=np.ones((columns, words * lanes), dtype=np.int64),
        constants=item.constants[:columns],
        command=command,
    )
    counted = _counted(item)
    assert (counted["dot"], counted["axpy"], counted["imbalance"]) == (1, words, 0)
    assert counted["no_room"] == waits


def test_hot_columns_cost_a_cycle_a_line() -> None:
    """Two lines of 32 columns a bank on `tiny`; two cycles more to see that they are written."""
    config = ENGINES["tiny"]
    item = large(config, Function.GELU, rows=3)
    assert item.command.groups(config) == 64
    noting = replace(item.command, mode=MaskMode.GENERATE, fresh=True, threshold=120)
    mask = np.ones((1, item.command.columns), dtype=bool)
    plain, made = simulate(config, [item, replace(item, command=noting, mask=mask)])
    assert made.counters.cycles == plain.counters.cycles + 2 + 2
    assert 0 < made.mask.sum() < made.mask.size


def test_a_second_pass_takes_one_word_of_axpy_and_the_kept_columns() -> None:
    """As `share`, less the words of dense sums that nobody wants."""
    config = ENGINES["tiny"]
    rng = np.random.default_rng(4)
    item, want = jobs.marking(config, rng)
    (got,) = simulate(config, [item])
    jobs.check(item, want, got)
    bank = item.hash.bank(np.arange(item.command.columns))
    loads = np.stack([want.mask[:, bank == b].sum(axis=1) for b in range(4)]).max(axis=0)
    groups, beats = item.command.groups(config), item.command.beats
    assert beats > 1
    assert got.counters.axpy == (groups + np.maximum(loads, 1) * beats).sum()


@pytest.mark.parametrize("fresh", [True, False], ids=["fresh", "not fresh"])
def test_without_rows_nothing_becomes_hot(fresh: bool) -> None:
    """The first command after reset: nothing is left of earlier ones that could help."""
    item = large(ENGINES["tiny"], Function.GELU, rows=1)
    command = replace(item.command, mode=MaskMode.GENERATE, fresh=fresh)
    before = np.arange(command.columns)[None] % 3 == 0
    (got,) = simulate(ENGINES["tiny"], [replace(item, q=item.q[:0], command=command, mask=before)])
    np.testing.assert_array_equal(got.mask, before & (not fresh))
    assert (got.counters.rows, got.counters.dot, got.counters.axpy) == (0, 0, 0)


@pytest.mark.parametrize("columns", [5, 200], ids=["one line", "two lines"])
def test_a_fresh_command_forgets_the_columns_of_the_last(columns: int) -> None:
    config = ENGINES["tiny"]
    item = large(config, Function.GELU, rows=2)
    item = replace(item, k=item.k[:columns], v=item.v[:columns], constants=item.constants[:columns])
    nothing = np.zeros((1, columns), dtype=bool)
    items = []
    for threshold, fresh in ((0, True), (1 << 20, True), (1 << 20, False)):
        command = replace(
            item.command,
            mode=MaskMode.GENERATE,
            columns=columns,
            fresh=fresh,
            threshold=threshold,
        )
        items.append(replace(item, command=command, mask=nothing))
    all_hot, none, still_none = simulate(config, items)
    assert all_hot.mask.mean() > 0.9
    assert not none.mask.any()
    assert not still_none.mask.any()
