"""The complete core against the golden executor and the integer golden core, to the bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from disc.config import CoreConfig
from disc.lower.random_programs import COVERAGE, coverage, random_program
from disc.lower.shape import BlockShape
from disc.program import Attend
from golden.executor import execute
from golden.executor.random_blocks import Case, draw_rows, steps
from golden.integer.block import block
from hw.control.layouts import ProgramError
from hw_tests.core.configs import CORES
from hw_tests.core.simulate import CoreJob, CoreResult, simulate
from hw_tests.sim import choose_seed

TRAFFIC = (
    {"latency": 1},
    {"latency": 20, "spread": 31, "stall": 0.3},
    {"latency": 60},
    {"latency": 3, "stall": 0.8},
)
"""How DRAM behaves: at once, unsteady, far away, hardly ever ready."""


def require_equal(got: CoreResult, want: np.ndarray, where: str) -> None:
    assert got.error == ProgramError.NONE, f"{where}: {got.error.name} at {got.error_index}"
    wrong = np.flatnonzero(got.dram != want)
    assert not len(wrong), f"{where}: {len(wrong)} bytes differ, the first at {wrong[0]:#x}"


def run_random_programs(name: str, seeds: range) -> set[str]:
    config = CORES[name]
    seed = choose_seed()
    programs = [random_program(config, seed + i) for i in seeds]
    jobs = [
        CoreJob(found.program, found.image, **TRAFFIC[i % len(TRAFFIC)])
        for i, found in enumerate(programs)
    ]
    results = simulate(config, jobs, seed=seed)
    seen: set[str] = set()
    for i, (found, got) in enumerate(zip(programs, results, strict=True)):
        want = execute(found.program, config, found.image)
        require_equal(got, want, f"{name}, program {seed + seeds[i]}")
        seen |= coverage(found, config)
    return seen


@pytest.mark.parametrize("name", CORES)
def test_random_programs(name: str) -> None:
    run_random_programs(name, range(24))


@pytest.mark.full
@pytest.mark.parametrize("name", CORES)
def test_thousands_of_random_programs(name: str) -> None:
    """A thousand on each configuration; together they exercise everything there is."""
    seen: set[str] = set()
    for start in range(0, 1000, 100):
        seen |= run_random_programs(name, range(start, start + 100))
    assert COVERAGE - seen == set()


SHAPES = {
    "tiny": BlockShape(tokens=80, width=40, heads=2, hidden=96),
    "six": BlockShape(tokens=50, width=36, heads=2, hidden=70),
    "wide": BlockShape(tokens=30, width=40, heads=2, hidden=60),
}


@pytest.mark.parametrize("hot", [False, True], ids=["all columns", "hot columns"])
@pytest.mark.parametrize("name", SHAPES)
def test_blocks(name: str, hot: bool) -> None:
    """A whole block, step after step: masks made and used, rows left out, all of it, none."""
    config, seed = CORES[name], choose_seed()
    rng = np.random.default_rng(seed)
    case = Case.random(config, SHAPES[name], seed=seed, hot=hot)
    jobs, wants = [], []
    for i, (kind, sparsity, fraction) in enumerate(steps(case.plan.shape.tokens, hot=hot)):
        tokens = draw_rows(case.plan.shape.tokens, fraction, rng)
        program, image = case.lowered(sparsity, tokens), case.image(tokens)
        jobs.append(CoreJob(program, image.data, **TRAFFIC[i % len(TRAFFIC)]))
        want = execute(program, config, image.data)
        result = block(
            case.x[tokens],
            tokens,
            case.constants,
            case.vectors,
            case.state,
            sparsity,
            config.number,
        )
        case.require(want, result.x, tokens)
        wants.append((kind, want))
    for got, (kind, want) in zip(simulate(config, jobs, seed=seed), wants, strict=True):
        require_equal(got, want, f"{name}, {kind}")


def test_many_more_keys_than_the_banks_hold() -> None:
    """The banks of `scarce` hold 16 keys: five tiles, the last one incomplete."""
    config, seed = CORES["scarce"], choose_seed()
    rng = np.random.default_rng(seed)
    shape = BlockShape(tokens=75, width=24, heads=2, hidden=20)
    case = Case.random(config, shape, seed=seed, hot=True)
    assert shape.tokens >= 4 * config.memory.columns
    jobs, wants, seen = [], [], set()
    for i, (kind, sparsity, fraction) in enumerate(steps(shape.tokens, hot=True)):
        rows = draw_rows(shape.tokens, fraction, rng)
        program, image = case.lowered(sparsity, rows), case.image(rows)
        attends = [c for c in program.commands if isinstance(c, Attend)]
        seen |= {(c.mode.name, c.epilogue.name, c.first, c.last, c.mark) for c in attends}
        jobs.append(CoreJob(program, image.data, **TRAFFIC[i % len(TRAFFIC)]))
        wants.append((kind, execute(program, config, image.data)))
    assert {first for _, _, first, *_ in seen} == {last for *_, last, _ in seen} == {0, 1}
    assert {mark for *_, mark in seen} == {0, 1}
    for got, (kind, want) in zip(simulate(config, jobs, seed=seed), wants, strict=True):
        require_equal(got, want, kind)


def test_a_wrong_list_stops_the_program() -> None:
    """The error names the command; what is ahead of it is complete; the next program runs."""
    config, seed = CORES["six"], choose_seed()
    found = next(
        one
        for one in (random_program(config, seed + i) for i in range(100))
        if any(c.NAME == "load_list" and c.rows > 1 for c in one.program.commands)
    )
    index = next(
        i for i, c in enumerate(found.program.commands) if c.NAME == "load_list" and c.rows > 1
    )
    commands = list(found.program.commands)
    bad = found.image.copy()
    place = commands[index].dram
    bad[place : place + 12].view("<u4")[:] = [2, 0, 1 << 20]
    commands[index] = commands[index].replace(first=0)
    wrong = replace(found.program, commands=tuple(commands))
    jobs = [CoreJob(wrong, bad), CoreJob(found.program, found.image)]
    stopped, fine = simulate(config, jobs, seed=seed)
    assert stopped.error == ProgramError.FAILED
    assert commands[stopped.error_index].NAME == "load_list"
    require_equal(fine, execute(found.program, config, found.image), "behind it")


def counters_of(config: CoreConfig, job: CoreJob) -> dict:
    (result,) = simulate(config, [job])
    assert result.error == ProgramError.NONE
    return result.counters
