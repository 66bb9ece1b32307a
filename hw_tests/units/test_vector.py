# amaranth: UnusedElaboratable=no
"""The vector unit against the golden executor."""

from __future__ import annotations

from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import synth.lint
from disc.config import CoreConfig
from disc.hashing import BankHash
from disc.program import Command, Forecast, Norm, Record, sizes
from disc.program.encoding import WORD_BYTES, pack
from disc.tables import DISTANCE_BITS
from disc.verilog import to_verilog
from golden.executor.machine import step
from golden.executor.memory import Memory
from hw.engine import QueryWord
from hw.units.vector import VectorUnit
from hw.vector.layernorm import LayerNorm
from hw.vector.words import words_of
from hw_tests import sim
from hw_tests.blocks.vector_configs import CONFIGS
from hw_tests.blocks.vectors import from_bytes
from hw_tests.units.vector_cases import KINDS, Case
from hw_tests.units.vector_harness import simulator
from synth.release import TOP, WAIVERS

STALLS = (
    ("never", "never", "never"),
    ("bernoulli", "bernoulli", "bernoulli"),
    ("mostly_stalled", "never", "never"),
    ("never", "mostly_stalled", "never"),
    ("never", "never", "mostly_stalled"),
    ("bursts", "bursts", "bursts"),
)
"""Of reads, of writes, of the row buffer."""


def run(config: CoreConfig, cases: list[Case], seed: int) -> dict[str, Any]:
    """Execute cases on RTL and, command by command, in the golden executor."""
    given: dict[str, Any] = {"config": config.model_dump_json(), "cases": len(cases)}
    images = [case.image for case in cases]
    for n, case in enumerate(cases):
        for command in case.commands:
            command.validate(config)
        raw = b"".join(pack(c, config).to_bytes(WORD_BYTES, "little") for c in case.commands)
        given |= {
            f"{n}.image": images[n],
            **{f"{n}.list.{b}": tokens for b, tokens in enumerate(case.lists)},
            f"{n}.commands": np.frombuffer(raw, np.uint8).reshape(-1, WORD_BYTES),
            f"{n}.pauses": np.array(case.pauses),
            f"{n}.latency": np.array(case.latency),
        }
    module = "hw_tests.units.vector_bench"
    got = sim.run(simulator(config), module, seed=seed, inputs=given).outputs
    hash_ = BankHash.modulo(config.array.banks, config.local_bits)
    for n, case in enumerate(cases):
        golden = Memory(config, hash_, images[n].copy())
        for buffer, tokens in enumerate(case.lists):
            golden.put_list(buffer, tokens)
        rows = from_bytes(QueryWord(config), got[f"{n}.rows"]) if len(got[f"{n}.rows"]) else None
        done = 0
        for i, command in enumerate(case.commands):
            where = f"{config.name}, case {n}, command {i}: {command}, {case.pauses}, seed {seed}"
            space, held = got[f"{n}.space"][i], got[f"{n}.held"][i]
            # A record's three writers share a port.
            assert space >= held if isinstance(command, Record) else space == held, where
            tokens = case.lists[command.list][: command.rows]
            golden.put_list(command.list, tokens)
            try:
                step(command, golden)
            except ValueError:
                assert isinstance(command, Forecast), where
                assert got[f"{n}.failed"][i], where
                golden.dram = got[f"{n}.images"][i].copy()
                continue
            finally:
                golden.put_list(command.list, case.lists[command.list])
            assert not got[f"{n}.failed"][i], where
            wrong = np.flatnonzero(got[f"{n}.images"][i] != golden.dram)
            assert not len(wrong), f"{where}: {len(wrong)} bytes differ, first {wrong[0]:#x}"
            count = got[f"{n}.counts"][i] - done
            wanted = 0
            if isinstance(command, Norm):
                wanted = len(tokens) * sizes.words(command.width, config)
            assert count == wanted, f"{where}: {wanted} words wanted, got {count}"
            if wanted:
                assert rows is not None
                address = rows["address"][done : done + count]
                assert np.array_equal(address, command.base + np.arange(count)), where
                assert np.array_equal(rows["data"][done : done + count], golden._rows[address]), (
                    where
                )
            done += count
    return got


def spread(case: Case) -> int:
    """Draw what memory takes."""
    return int(case.rng.integers(1, 40))


def random_cases(config: CoreConfig, rng: np.random.Generator, repeat: int = 1) -> list[Case]:
    cases = []
    for pauses in STALLS * repeat:
        case = Case(config, rng, pauses)
        case.latency = (1, spread(case)), (1, spread(case))
        kinds = list(KINDS) if "mostly_stalled" in pauses else [*KINDS, *KINDS]
        for i in rng.permutation(len(kinds)):
            case.add(kinds[i])
        cases.append(case)
    return cases


@pytest.mark.parametrize("name", CONFIGS)
def test_random_commands(name):
    config, seed = CONFIGS[name], sim.choose_seed()
    rng = np.random.default_rng(seed)
    longest = Case(config, rng)
    most = min(config.vector.max_channels, 1152)
    longest.add(Norm, list=1, rows=1, width=min(most, config.query_words * config.array.lanes))
    longest.add(Record, list=1, width=most)
    longest.add(Forecast, list=1, width=most)
    # Vectors come behind a row that needs them.
    late = Case(config, rng, ("mostly_stalled", "never", "never"))
    for _ in range(3):
        late.add(Norm, list=0, rows=2, width=2 * config.array.lanes)
    run(config, [*random_cases(config, rng), longest, late], seed)


@pytest.mark.full
@pytest.mark.parametrize("name", CONFIGS)
def test_many_random_commands(name):
    config, seed = CONFIGS[name], sim.choose_seed()
    run(config, random_cases(config, np.random.default_rng(seed), repeat=8), seed)


class Work:
    """Words of V elements and of the bus that a command moves, its rows beginning with a bus word.

    A header takes a bus word, as do the ages of a token.  `tail` is what comes behind the last word
    of V elements, `ahead` and `ratios` are bus words and ratios before the first.
    """

    def __init__(self, config: CoreConfig, command: Command, rows: int) -> None:
        size = config.bus.word_bytes
        row = -(-2 * command.width // size)
        self.row_words = words_of(command.width, config.vector.lanes)
        self.words = rows * self.row_words
        self.ahead, self.ratios = 0, 0
        if isinstance(command, Norm):
            self.ahead = 1 + 2 * (row + 1)
            self.reads, self.writes = rows * row + self.ahead, 0
            self.tail = LayerNorm(config).latency + self.row_words + 3
        elif isinstance(command, Record):
            self.tail = 2 * row + 1
            self.writes = rows * self.tail
            self.reads = rows * (3 * row + 1) + 1
        else:
            self.tail, self.writes = row, rows * row
            self.reads = 2 * rows * row
            if not command.hold:
                self.ratios = 1 << DISTANCE_BITS
                self.ahead = 2 - -self.ratios * sizes.RATIO_BYTES // size
                self.reads += rows * (row + 1) + self.ahead


@pytest.mark.parametrize("name", CONFIGS)
def test_cycles(name):
    """A word a cycle if the bus keeps up, else the bus is busy; rows are asked for ahead."""
    config, seed = CONFIGS[name], sim.choose_seed()
    rng = np.random.default_rng(seed)
    slow, rows = 30, 8
    case = Case(config, rng, align=64)
    width = 2 * config.array.lanes
    for kind, fixed in (
        (Norm, {}),
        (Record, {}),
        (Forecast, {"hold": 0}),
        (Forecast, {"hold": 1}),
    ):
        case.add(kind, list=0, rows=rows, width=width, **fixed)
    for kind in KINDS:
        case.add(kind, list=2)
    later = copy(case)
    later.latency = (slow, slow), (1, 1)
    got = run(config, [case, later], seed)
    cycles, data, space = got["0.ends"] - got["0.starts"], got["0.data"], got["0.space"]
    more = got["1.ends"] - got["1.starts"] - cycles
    for i, command in enumerate(case.commands):
        where = f"{name}: {command}, {cycles[i]} cycles, {data[i]} {space[i]} waiting, seed {seed}"
        if i >= 4:
            assert (cycles[i], data[i], space[i], more[i]) == (2, 0, 0, 0), where
            continue
        work = Work(config, command, rows)
        busy = cycles[i] - data[i] - space[i]
        if isinstance(command, Record):
            # Rows of a bus word make more requests than the arbiter lets be on their way.
            assert slow - 1 <= more[i] <= 2 * slow, where
        else:
            assert more[i] == slow - 1, where
            assert space[i] == 0, where
            assert got["1.data"][i] == data[i] + more[i], where
            # Nothing but waiting comes between words.
            tails = (work.tail,) if isinstance(command, Norm) else (9, 10)
            assert busy - work.words in tails, where
        if work.reads - work.ahead <= work.words and work.writes <= work.words:
            waits = VectorUnit.LATENCY + work.ahead + 2 * work.row_words
            assert VectorUnit.LATENCY - 2 <= data[i] <= waits + work.ratios, where
            if name == "wide" and not work.ratios:
                assert data[i] <= VectorUnit.LATENCY, where  # two bus words go first
        else:
            most = max(work.words + work.ratios, work.reads, work.writes)
            assert cycles[i] <= most + work.tail + 20, where


def test_lint():
    verilog = to_verilog(VectorUnit(CONFIGS["odd"]), top=TOP, header={})
    waivers = Path(synth.lint.__file__).with_name(WAIVERS).read_text(encoding="utf-8")
    synth.lint.check({f"{TOP}.v": verilog, WAIVERS: waivers})


def test_ages_that_a_forecast_cannot_use():
    """They fail the command, if a token in the list has them; what follows is executed."""
    config, seed = CONFIGS["tiny"], sim.choose_seed()
    rng = np.random.default_rng(seed)
    case = Case(config, rng)
    token = case.lists[3][-1]
    outside = np.setdiff1d(np.arange(case.tokens), case.lists[3])[0]
    wanted = []
    for now, last, before, failed in (
        (63, 0, -1, 0),
        (64, 0, -1, 1),  # too long ago
        (1 << 30, 4, 3, 1),
        (2, -1, -1, 1),  # never
        (9, -(1 << 15), 3, 1),
        (100, 63, 0, 0),
        (100, 64, 0, 1),  # too far apart
        (100, 70, 71, 1),
        (100, 101, 71, 1),  # later
        (100, 100, 100, 0),
    ):
        for place in (token, outside):
            ages = np.full((case.tokens, 2), -1)
            ages[:, 0] = min(now, 1000) - 1
            ages[place] = last, before
            for hold in (0, 1):
                case.add(Forecast, ages=ages, list=3, rows=9, step=now, hold=hold)
                usual = now < 1000 or hold
                wanted.append(int(failed and place == token and not hold) if usual else 1)
        case.add(Record, ages=ages, list=3, rows=9, step=min(now, 1 << 14))
        wanted.append(0)
    got = run(config, [case], seed)
    assert got["0.failed"].tolist() == wanted
