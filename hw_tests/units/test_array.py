# amaranth: UnusedElaboratable=no
"""The array unit, on the engine, against the golden executor."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

import synth.lint
from disc.config import CoreConfig
from disc.lower.random_programs import RandomProgram
from disc.program import Attend, AttendEpilogue, MaskMode, Project, ProjectEpilogue, Queue
from disc.program.encoding import WORD_BYTES, pack
from disc.verilog import to_verilog
from golden.executor import execute
from hw.units.array import ArrayUnit
from hw.units.array.translate import words_up
from hw_tests import sim
from hw_tests.units.array_harness import CONFIGS, simulator
from hw_tests.units.array_programs import array_program, directed_program
from synth.release import TOP, WAIVERS

NONE = ("never", "never"), ((1, 1), (1, 1))
TRAFFIC = (
    NONE,
    (("bernoulli", "bernoulli"), ((1, 20), (1, 20))),
    (("never", "mostly_stalled"), ((3, 3), (1, 9))),
    (("bursts", "bursts"), ((1, 60), (1, 3))),
    (("mostly_stalled", "never"), ((1, 3), (1, 40))),
)
"""Pauses of reads and of writes, and their latencies."""

MOST = 100_000

MARGIN = {"plain": 40, "serial": 80, "broad": 80}
"""Cycles of a command of the engine besides those of its rows."""


@dataclass
class Case:
    program: RandomProgram
    traffic: tuple = NONE


def run(config: CoreConfig, cases: list[Case], seed: int) -> dict[str, Any]:
    """Run programs on RTL; what they leave in DRAM must be what golden programs leave."""
    given: dict[str, Any] = {"config": config.model_dump_json(), "cases": len(cases)}
    most = config.bus.word_bytes * config.bus.burst
    for n, case in enumerate(cases):
        program, image = case.program.program, case.program.image
        raw = b"".join(pack(c, config).to_bytes(WORD_BYTES, "little") for c in program.commands)
        code = np.frombuffer(raw, np.uint8)
        # A reader may ask for words behind a row's end, but within its burst.
        address = -(-len(image) // most) * most
        whole = np.zeros(address + -(-len(code) // most) * most, np.uint8)
        whole[: len(image)], whole[address : address + len(code)] = image, code
        given |= {
            f"{n}.image": whole,
            f"{n}.program": np.array([address, len(program.commands)]),
            f"{n}.hash": np.array(program.bank_hash(config).rows),
            f"{n}.pauses": np.array(case.traffic[0]),
            f"{n}.latency": np.array(case.traffic[1]),
            f"{n}.most": MOST,
        }
    got = sim.run(simulator(config), "hw_tests.units.array_bench", seed=seed, inputs=given).outputs
    for n, case in enumerate(cases):
        found, where = case.program, f"{config.name}, case {n}, {case.traffic}, seed {seed}"
        assert got[f"{n}.error"].tolist() == [0, 0], where
        wanted = execute(found.program, config, found.image)
        differ = np.flatnonzero(got[f"{n}.image"][: len(wanted)] != wanted)
        names = {found.program.buffer_at(int(place)) for place in differ}
        assert not len(differ), (
            f"{where}: {len(differ)} bytes of {[b.name for b in names if b]} differ, first "
            f"{differ[:4]}; array commands {[c for c in found.program.commands if c.QUEUE == 2]}"
        )
    return got


def drawn(config: CoreConfig, seed: int, count: int, scenes: int, traffic=TRAFFIC) -> list[Case]:
    return [
        Case(array_program(config, seed + i, scenes), traffic[i % len(traffic)])
        for i in range(count)
    ]


@pytest.mark.parametrize("name", CONFIGS)
def test_random_programs(name):
    """With every kind of traffic, and without; a mask that no row makes."""
    config, seed = CONFIGS[name], sim.choose_seed()
    cleared = directed_program(config, seed, lambda maker: [maker.cleared()])
    run(config, [*drawn(config, seed, 7, 3), Case(cleared)], seed)


@pytest.mark.full
@pytest.mark.parametrize("name", CONFIGS)
def test_many_random_programs(name):
    config, seed = CONFIGS[name], sim.choose_seed()
    run(config, drawn(config, seed, 60, 5), seed)


def legal() -> list[tuple]:
    """Modes, epilogues, and flags of `attend` that may be together."""
    found = []
    for mode, epilogue, *flags in product(MaskMode, AttendEpilogue, (0, 1), (0, 1), (0, 1)):
        fields = dict(zip(("mark", "first", "last"), flags, strict=True))
        sizes = dict.fromkeys(("rows", "width", "columns", "score_multiplier"), 1)
        scales = {"score_shift": 0, "output_multiplier": 1, "output_shift": 8}
        places = {"list": 0, "row_base": 0, "dot_base": 0, "axpy_base": 1}
        command = Attend(mode=mode, epilogue=epilogue, **fields, **sizes, **scales, **places)
        try:
            command.validate(CONFIGS["plain"])
        except ValueError:
            continue
        found.append((mode, epilogue, *flags))
    return found


@pytest.mark.parametrize("name", CONFIGS)
def test_everything_that_attention_may_end_with(name):
    config, seed = CONFIGS[name], sim.choose_seed()
    combinations = legal()
    assert len(combinations) == 27
    cases = []
    for i, traffic in enumerate((NONE, TRAFFIC[1 + seed % (len(TRAFFIC) - 1)])):
        # The second time in any order: what one command leaves behind must not matter to another.
        order = np.random.default_rng(seed + i).permutation(27) if i else np.arange(27)
        chosen = [combinations[n] for n in order[: 27 if i == 0 else 12]]
        program = directed_program(
            config,
            seed + i,
            lambda maker, chosen=chosen: [maker.combination(*one) for one in chosen],
        )
        cases.append(Case(program, traffic))
    run(config, cases, seed)


EVEN = {"plain": (64, 12, 8), "serial": (16, 6, 8), "broad": (80, 10, 8)}
"""Columns, width and rows that fill each configuration."""


@pytest.mark.parametrize("name", CONFIGS)
def test_the_array_does_not_wait(name):
    """However rows end, the engine is as busy as it is by itself, and nothing takes long after."""
    config, seed = CONFIGS[name], sim.choose_seed()
    columns, width, rows = EVEN[name]
    program = directed_program(config, seed, lambda maker: [maker.even(columns, width, rows)])
    got = run(config, [Case(program)], seed)
    engine, total = got["0.engine"], got["0.ends"] - got["0.starts"]
    words = -(-width // config.array.lanes)
    tile = rows * -(-columns // config.array.banks) * words
    # A projection of few rows' words is limited by `vector.lanes`.
    project = max(tile, rows * -(-columns // config.vector.lanes))
    ideal = np.array([2 * tile] * 8 + [project] * 3)
    assert (engine >= ideal).all()
    # The way through the engine, and once more the row's last words.
    assert (engine - ideal <= MARGIN[name]).all(), engine - ideal
    assert (total - engine <= 20).all(), total - engine
    assert (got["0.starts"][1:] - got["0.ends"][:-1] == 1).all()
    assert not got["0.space"].any(), "memory takes every word"
    # Rows and states are there before what they belong to; one word may wait for its fellows.
    assert (got["0.data"] <= MARGIN[name]).all(), got["0.data"]


def test_waiting_for_data():
    """Rows of the residual stream that come late: until then what the engine offers waits."""
    config, seed = CONFIGS["plain"], sim.choose_seed()
    program = directed_program(config, seed, lambda maker: [maker.even(16, 5, 4)])
    array = [c for c in program.program.commands if c.QUEUE == Queue.ARRAY]
    reads = [c for c in array if isinstance(c, Project) and c.epilogue == ProjectEpilogue.GATE]
    (gate,) = (array.index(one) for one in reads)
    (plain,) = (
        i
        for i, c in enumerate(array)
        if isinstance(c, Project) and c.epilogue == ProjectEpilogue.OPERAND
    )
    early, late = (
        run(config, [Case(program, (("never", "never"), ((n, n), (1, 1))))], seed)["0.data"]
        for n in (1, 400)
    )
    assert late[plain] == early[plain], "it reads nothing"
    assert 300 < late[gate] - early[gate] <= 400, "the engine's first result covers the rest"


def test_waiting_for_space():
    """Each cycle in which memory does not take what is offered to it."""
    config, seed = CONFIGS["plain"], sim.choose_seed()
    program = directed_program(config, seed, lambda maker: [maker.even(16, 5, 4)])
    traffic = ("never", "bernoulli"), ((1, 1), (1, 1))
    got = run(config, [Case(program, traffic)], seed)
    assert got["0.space"].any()
    assert np.array_equal(got["0.space"], got["0.stalled"])


@pytest.mark.parametrize("lanes", [2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 24, 36, 72, 100, 127, 128])
def test_words_of_a_row_without_a_divider(lanes):
    width = Signal(13)
    words = Signal(13)
    m = Module()
    m.d.comb += words.eq(words_up(width, lanes))

    async def check(ctx):
        for value in range(0, 1 << 13, 1 if lanes in (24, 127) else 7):
            ctx.set(width, value)
            assert ctx.get(words) == -(-value // lanes), value

    simulator = Simulator(m)
    simulator.add_testbench(check)
    simulator.run()


def test_lint():
    verilog = to_verilog(ArrayUnit(CONFIGS["broad"]), top=TOP, header={})
    waivers = Path(synth.lint.__file__).with_name(WAIVERS).read_text(encoding="utf-8")
    synth.lint.check({f"{TOP}.v": verilog, WAIVERS: waivers})
