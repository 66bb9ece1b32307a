"""Random legal programs: accepted, independent of timing; and broken ones that are accepted too."""

from __future__ import annotations

import numpy as np
import pytest

from disc.config import CoreConfig
from disc.lower.random_programs import COVERAGE, RandomProgram, coverage, random_program
from disc.program import Program, Queue, format_program, from_bytes, parse_program, to_bytes
from disc.program.check import ProgramError, check
from golden.executor import execute, random_order
from golden.executor.random_blocks import SCARCE, SIX, WIDE

CONFIGS = [SIX, SCARCE, WIDE]


def require_any_order(found: RandomProgram, config: CoreConfig, seed: int, orders: int) -> None:
    rng = np.random.default_rng(seed)
    out = execute(found.program, config, found.image)
    for _ in range(orders):
        order = random_order(found.program.commands, rng)
        again = execute(found.program, config, found.image, order=order)
        assert np.array_equal(again, out), (seed, config.name)


def run(seeds: range) -> set[str]:
    seen: set[str] = set()
    for seed in seeds:
        config = CONFIGS[seed % len(CONFIGS)]
        found = random_program(config, seed)
        check(found.program, config, found.image)
        require_any_order(found, config, seed, orders=1)
        seen |= coverage(found, config)
    return seen


def test_random_programs_do_not_depend_on_timing_and_cover_everything() -> None:
    assert COVERAGE - run(range(130)) == set()


@pytest.mark.full
def test_thousands_of_random_programs() -> None:
    run(range(1000, 4000))


def test_programs_are_repeatable_and_survive_words_and_text() -> None:
    for seed in range(12):
        config = CONFIGS[seed % len(CONFIGS)]
        found = random_program(config, seed)
        again = random_program(config, seed)
        program = found.program
        assert again.program == program
        assert np.array_equal(again.image, found.image)
        assert tuple(from_bytes(to_bytes(program.commands, config), config)) == program.commands
        assert parse_program(format_program(program)) == program


BASES = ("base", "dot_base", "axpy_base", "row_base", "slot", "constants", "list")


def broken(program: Program, config: CoreConfig, rng: np.random.Generator) -> Program:
    """Take away a token at one end or both, or move something in the core's memories."""
    commands = list(program.commands)
    index = int(rng.integers(len(commands)))
    command = commands[index]
    names = [name for name in BASES if name in command.values()]
    if names and rng.random() < 0.4:
        name = str(rng.choice(names))
        most = {spec.name: spec.most(config) for spec in command.specs()}[name]
        commands[index] = command.replace(**{name: int(rng.integers(0, most + 1))})
    else:
        waits = [i for i, c in enumerate(commands) if c.wait]
        taker = int(rng.choice(waits))
        queue = next(q for q in Queue if commands[taker].wait & q.bit)
        giver = _match(program, taker, queue)
        taking, giving = commands[taker], commands[giver]
        commands[taker] = taking.replace(wait=taking.wait & ~queue.bit)
        if rng.random() < 0.9:
            commands[giver] = giving.replace(signal=giving.signal & ~taking.QUEUE.bit)
    return Program(tuple(commands), program.buffers, program.hash_rows)


def _match(program: Program, taker: int, queue: Queue) -> int:
    """Command of `queue` that gives the token that `taker` takes."""
    to = program.commands[taker].QUEUE
    number = sum(1 for c in program.commands[:taker] if to == c.QUEUE and c.wait & queue.bit)
    given = [i for i, c in enumerate(program.commands) if queue == c.QUEUE and c.signal & to.bit]
    return given[number]


def test_what_the_checker_accepts_does_not_depend_on_timing() -> None:
    """Broken programs: most are refused, and those that are not give one result in every order."""
    rng = np.random.default_rng(3)
    accepted = refused = 0
    for seed in range(220):
        config = CONFIGS[seed % len(CONFIGS)]
        found = random_program(config, seed % 40, scenes=4)
        program = broken(found.program, config, rng)
        try:
            check(program, config, found.image)
        except ProgramError:
            refused += 1
            continue
        accepted += 1
        require_any_order(RandomProgram(program, found.image, found.layout), config, seed, 3)
    assert refused > 100
    assert accepted > 15, "harmless changes: moves to places that nobody else uses"


def test_what_the_checker_refuses_does_depend_on_timing() -> None:
    """Of the programs with a token too few, some give another result or stop in some order."""
    rng = np.random.default_rng(5)
    seen = 0
    for seed in range(40):
        config = CONFIGS[seed % len(CONFIGS)]
        found = random_program(config, seed, scenes=4)
        program = broken(found.program, config, rng)
        try:
            check(program, config, found.image)
            continue
        except ProgramError:
            pass
        try:
            for order in range(4):
                require_any_order(
                    RandomProgram(program, found.image, found.layout), config, order, 1
                )
        except (AssertionError, ValueError):
            seen += 1
    assert seen > 5
