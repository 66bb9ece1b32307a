# amaranth: UnusedElaboratable=no
"""The vector unit against the golden executor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from disc.config import CoreConfig
from disc.hashing import BankHash
from disc.program import Forecast, Norm, Record, sizes
from disc.program.encoding import WORD_BYTES, pack
from golden.executor.machine import step
from golden.executor.memory import Memory
from hw.engine import QueryWord
from hw_tests import sim
from hw_tests.blocks.vector_configs import CONFIGS
from hw_tests.blocks.vectors import from_bytes
from hw_tests.units.vector_cases import KINDS, Case
from hw_tests.units.vector_harness import simulator

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


@pytest.mark.parametrize("name", CONFIGS)
def test_random_commands(name):
    config, seed = CONFIGS[name], sim.choose_seed()
    rng = np.random.default_rng(seed)
    cases = []
    for pauses in STALLS:
        case = Case(config, rng, pauses)
        case.latency = (1, spread(case)), (1, spread(case))
        kinds = list(KINDS) if "mostly_stalled" in pauses else [*KINDS, *KINDS, *KINDS]
        for i in rng.permutation(len(kinds)):
            case.add(kinds[i])
        cases.append(case)
    run(config, cases, seed)


@pytest.mark.parametrize("name", CONFIGS)
def test_cycles(name):
    config, seed = CONFIGS[name], sim.choose_seed()
    rng = np.random.default_rng(seed)
    case = Case(config, rng, align=64)
    lanes = config.array.lanes
    for kind in (Norm, Record):
        case.add(kind, list=0, rows=8, width=2 * lanes, stride=-(-4 * lanes // 64) * 64)
    case.add(Forecast, list=0, rows=8, width=2 * lanes, stride=-(-4 * lanes // 64) * 64, hold=0)
    case.add(Forecast, list=0, rows=8, width=2 * lanes, stride=-(-4 * lanes // 64) * 64, hold=1)
    for kind in KINDS:
        case.add(kind, list=2)
    got = run(config, [case], seed)
    print(name, got["0.ends"] - got["0.starts"], got["0.data"], got["0.space"])
    print(got["0.rows.cycles"] - got["0.starts"][0])
    print((got["0.reads"] - got["0.starts"][0])[:80])
