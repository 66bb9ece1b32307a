# amaranth: UnusedElaboratable=no
"""The array unit, on the engine, against the golden executor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from disc.config import CoreConfig
from disc.lower.random_programs import RandomProgram
from disc.program.encoding import WORD_BYTES, pack
from golden.executor import execute
from hw_tests import sim
from hw_tests.units.array_harness import CONFIGS, simulator
from hw_tests.units.array_programs import SCENES, array_program

NONE = ("never", "never"), ((1, 1), (1, 1))
TRAFFIC = (
    NONE,
    (("bernoulli", "bernoulli"), ((1, 20), (1, 20))),
    (("never", "mostly_stalled"), ((3, 3), (1, 9))),
    (("bursts", "bursts"), ((1, 60), (1, 3))),
    (("mostly_stalled", "never"), ((1, 3), (1, 40))),
)
"""Pauses of reads and of writes, and their latencies."""

MOST = 60_000


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


@pytest.mark.parametrize("name", CONFIGS)
def test_random_programs(name):
    config, seed = CONFIGS[name], sim.choose_seed()
    cases = [
        Case(array_program(config, seed + 10 * i + t, 3), traffic)
        for t, traffic in enumerate(TRAFFIC)
        for i in range(3 if traffic == NONE else 1)
    ]
    run(config, cases, seed)
