# amaranth: UnusedElaboratable=no
"""The sequencer against the rules of `docs/program.md`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from disc.config import BusConfig, CoreConfig
from disc.lower.random_programs import random_program
from disc.program import COMMANDS, WORD_BITS, Fence, LoadTable, Queue, Record, layout
from disc.program.encoding import pack
from hw.control.layouts import CommandLayout, ProgramError, QueueLayout
from hw.control.sequencer import Sequencer
from hw_tests import sim
from hw_tests.blocks.configs import CONFIGS
from hw_tests.control.harness import BUSES, DEPTHS, simulator
from hw_tests.control.programs import ProgramCase, random_commands
from hw_tests.lib import PAUSES

TINY = CONFIGS["tiny"]
LOAD, VECTOR, ARRAY, STORE = Queue


def run(config: CoreConfig, cases: list[ProgramCase], seed: int) -> dict[str, Any]:
    bus = BUSES[config.name]
    given: dict[str, Any] = {"bus": bus.model_dump_json(), "cases": len(cases)}
    for n, case in enumerate(cases):
        given |= case.inputs(n)
    module = "hw_tests.control.sequencer_bench"
    return sim.run(simulator(config), module, seed=seed, inputs=given).outputs


def table(wait: int = 0, signal: int = 0) -> LoadTable:
    return LoadTable(dram=1, wait=wait, signal=signal)


def record(wait: int = 0, signal: int = 0) -> Record:
    names = [spec.name for spec in Record.specs()]
    return Record.from_values(dict.fromkeys(names, 2) | {"wait": wait, "signal": signal})


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_positions_are_those_of_the_encoding(config):
    for kind in COMMANDS:
        for name, (start, bits) in layout(kind, config).items():
            field = CommandLayout(kind, config)[name]
            assert (field.offset, field.width) == (start, bits)
    for queue in Queue:
        assert QueueLayout(queue, config).size <= WORD_BITS


@pytest.mark.parametrize("name", CONFIGS)
def test_random_programs(name):
    """Any commands with any tokens, and programs as they are built, under every kind of stall."""
    config, seed = CONFIGS[name], sim.choose_seed()
    rng = np.random.default_rng(seed)
    cases = []
    for i, pause in enumerate(PAUSES):
        behaviour = {"latency": (1, int(rng.integers(1, 50))), "pause": pause}
        for busy in ((1, 1), (1, 40), (30, 150)):
            commands = random_commands(config, rng, int(rng.integers(1, 40)))
            address = 64 * int(rng.integers(0, 40))
            cases.append(ProgramCase.of(commands, config, busy=busy, address=address, **behaviour))
        commands = random_program(config, seed + i, scenes=3).program.commands
        cases.append(ProgramCase.of(commands, config, busy=(1, 60), **behaviour))
    assert sum(len(case.words) for case in cases) > 150
    run(config, cases, seed)


@pytest.mark.parametrize("name", CONFIGS)
def test_cycles(name):
    """Fetch is as fast as the bus, a token costs a cycle, fences hold, queues run side by side."""
    config, seed = CONFIGS[name], sim.choose_seed()
    words = WORD_BITS // BUSES[name].word_bits
    free = [table() for _ in range(20)]
    load, vector = table(signal=VECTOR.bit), record(wait=LOAD.bit)
    pairs = [command for _ in range(12) for command in (load, vector)]
    cases = [ProgramCase.of(commands, config) for commands in (free, pairs)]
    # Everything is in the queues before the first command is complete.
    slow = [load, vector, table(), *[record()] * (DEPTHS[name] - 1)]
    cases.append(ProgramCase.of(slow, config, busy=(200, 200)))
    fences = [record(), table(), Fence(), Fence(), table(signal=VECTOR.bit), Fence()]
    fences += [record(wait=LOAD.bit), Fence()]
    cases.append(ProgramCase.of(fences, config, busy=(100, 300)))
    cases.append(ProgramCase.of([Fence()], config))
    got = run(config, cases, seed)
    # A command's words follow each other; its request and its first word take a cycle each.
    first = got["0.starts"][0] - got["0.begin"]
    assert first == 2 + words + Sequencer.LATENCY
    assert (np.diff(got["0.starts"]) == words).all()
    # The token of a load is there before its taker is fetched.
    assert (np.diff(got["1.starts"]) == words).all()
    starts, ends = got["2.starts"], got["2.ends"]
    assert starts[1] == ends[0] + 1
    assert starts[2] == ends[0] + 1
    for i in range(3, len(slow)):
        assert starts[i] == ends[1 if i == 3 else i - 1] + 1
    starts, ends = got["3.starts"], got["3.ends"]
    assert starts[1] < min(ends[:2]), "both ahead of the fence at once"
    assert starts[4] > max(ends[:2])
    assert starts[6] > ends[4]


def with_words(case: ProgramCase, *words: int) -> ProgramCase:
    """Append words that are no commands."""
    case.words += words
    for values in (case.queues, case.waits, case.signals):
        values += [-1 if values is case.queues else 0] * len(words)
    return case


@pytest.mark.parametrize("name", CONFIGS)
def test_errors_stop_the_program_and_name_the_command(name):
    config, seed = CONFIGS[name], sim.choose_seed()
    rng = np.random.default_rng(seed)
    E = ProgramError

    def ahead(count: int = 9) -> list:
        return random_commands(config, rng, count)

    def after(*words: int) -> list[int]:
        return [*words, *(pack(command, config) for command in ahead(3))]

    used = CommandLayout(LoadTable, config).size
    own, fence = table(wait=LOAD.bit), pack(Fence(), config)
    signalling = fence | LOAD.bit << layout(Fence, config)["signal"][0]
    wrong = [
        (E.ZERO, 0),
        (E.OPCODE, 7 | 1 << 40),
        (E.OPCODE, 31),
        (E.OPCODE, 1 << 500),
        (E.PADDING, pack(table(), config) | 1 << used),
        (E.PADDING, pack(table(), config) | 1 << WORD_BITS - 1),
        (E.TOKENS, pack(own, config)),
        (E.TOKENS, signalling),
    ]
    behaviour = {"busy": (1, 80), "latency": (1, 30), "pause": "bernoulli"}
    cases = []
    for error, word in wrong:
        case = ProgramCase.of(ahead(), config, error=(error, 9), **behaviour)
        cases.append(with_words(case, *after(word)))
        cases.append(ProgramCase.of(ahead(), config, **behaviour))
    flood = [*[table(signal=VECTOR.bit)] * 256, record()]
    cases.append(ProgramCase.of(flood, config, error=(E.OVERFLOW, 255), complete=-1))
    give, take = table(signal=VECTOR.bit | STORE.bit), record(wait=LOAD.bit)
    cases.append(ProgramCase.of([*[give] * 255, *[take] * 255], config))
    # The record has no table ahead of it; commands behind it in other queues cannot help.
    stuck = [table(), record(wait=LOAD.bit), *[record()] * (DEPTHS[name] + 2), table(VECTOR.bit)]
    cases.append(ProgramCase.of(stuck, config, error=(E.DEADLOCK, 1), complete=-1, **behaviour))
    stuck = [record(wait=ARRAY.bit), Fence(), table()]
    cases.append(ProgramCase.of(stuck, config, error=(E.DEADLOCK, 0), complete=0))
    failing = [table(), record(), table(signal=VECTOR.bit), record(wait=LOAD.bit), *[table()] * 9]
    cases.append(
        ProgramCase.of(failing, config, error=(E.FAILED, 2), complete=-1, fails=[2], **behaviour)
    )
    # Offers to units that are not ready stand while another queue fails.
    slow = {"busy": (1, 4), "pause": "mostly_stalled"}
    for fails in range(3):
        commands = [command for _ in range(4) for command in (record(), table())]
        index = 2 * fails + 1
        fault = {"error": (E.FAILED, index), "complete": -1, "fails": [index]}
        cases.append(ProgramCase.of(commands, config, **fault, **slow))
    cases.append(ProgramCase.of([table()], config, error=(E.ADDRESS, 0), complete=0, address=32))
    cases.append(ProgramCase.of([], config))
    cases.append(ProgramCase.of(ahead(20), config, **behaviour))
    got = run(config, cases, seed)
    n = len(cases) - 7
    assert got[f"{n}.starts"][3] == -1, "its token was not given"
    assert (got[f"{n}.starts"][5:] == -1).all()


def test_depth_and_bus_are_checked():
    with pytest.raises(ValueError, match=r"depth: must be in \[2, 64\], got 1"):
        Sequencer(TINY, BusConfig(), 1)
    with pytest.raises(ValueError, match=r"must be a power of two, got 48"):
        BusConfig(word_bits=48)
    with pytest.raises(ValueError, match=r"burst must be at least 8 with word_bits 64"):
        BusConfig(word_bits=64, burst=4)
