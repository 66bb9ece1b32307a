"""Runs programs on the simulated core."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from disc.config import CoreConfig
from disc.program import Fence, Program, Queue
from disc.program.encoding import WORD_BYTES, pack
from disc.verilog import to_verilog
from hw.control.layouts import ProgramError
from hw.counters import CoreCounters
from hw.engine import EngineCounters
from hw_tests.core.dram import DRAM_VERILOG
from hw_tests.core.system import CoreSystem
from hw_tests.lib import decode
from hw_tests.sim import Built, build, run

__all__ = ["CoreJob", "CoreResult", "build_core", "simulate"]

TOP = "core_system"

_DRAM_BYTES = 1 << 24


@dataclass(frozen=True)
class CoreJob:
    """A program on an image of DRAM."""

    program: Program
    dram: NDArray[np.uint8]
    latency: int = 20
    """Cycles that a request takes."""
    spread: int = 0
    """Up to so many more, drawn for each; a power of two less one."""
    stall: float = 0.0
    """Probability with which reads, data and writes are held up in a cycle."""


@dataclass(frozen=True)
class CoreResult:
    """What a program left."""

    dram: NDArray[np.uint8]
    error: ProgramError
    error_index: int
    counters: dict[str, Any]
    """As in `CoreCounters`."""
    spans: NDArray[np.int64]
    """[commands, 2] cycle in which a command started, and in which it was done; -1: never."""
    engine: dict[int, dict[str, int]]
    """What the engine counted in each command of the array queue, by its index."""
    seconds: float
    """Wall-clock time of the simulation."""


@cache
def build_core(config: CoreConfig) -> Built:
    """Return the simulator of a core with DRAM, built if it is not yet."""
    system = CoreSystem(config, _DRAM_BYTES // config.bus.word_bytes)
    verilog = to_verilog(system, top=TOP, header={"configuration": config.digest})
    return build(verilog + DRAM_VERILOG, TOP, opt="-O1")


def simulate(
    config: CoreConfig,
    jobs: Sequence[CoreJob],
    *,
    built: Built | None = None,
    seed: int | None = None,
    most_cycles: int = 20_000_000,
    timeout_s: float = 900.0,
) -> list[CoreResult]:
    """Run jobs one after the other in one simulator process.

    Raises
    ------
    ValueError
        A program does not fit the configuration, or an image the memory.
    AssertionError
        The simulation failed, or a program took more than `most_cycles`.
    """
    size = config.bus.word_bytes
    given: dict[str, Any] = {"config": config.to_toml(), "jobs": len(jobs), "most": most_cycles}
    for n, job in enumerate(jobs):
        job.program.validate(config)
        words = b"".join(
            pack(command, config).to_bytes(WORD_BYTES, "little") for command in job.program.commands
        )
        address = -(-len(job.dram) // WORD_BYTES) * WORD_BYTES
        # Reads take whole words, so there is one behind the end.
        image = np.zeros((-(-(address + len(words)) // size) + 1) * size, np.uint8)
        if len(image) > _DRAM_BYTES:
            raise ValueError(f"dram: must be at most {_DRAM_BYTES} bytes, got {len(image)}")
        image[: len(job.dram)] = job.dram
        image[address : address + len(words)] = np.frombuffer(words, np.uint8)
        given |= {
            f"{n}.image": image,
            f"{n}.program": np.array([address, len(job.program.commands)]),
            f"{n}.hash": np.array(job.program.bank_hash(config).rows),
            f"{n}.traffic": np.array([job.latency, job.spread, round(256 * job.stall)]),
        }
    result = run(
        built or build_core(config),
        "hw_tests.core.bench",
        seed=seed,
        inputs=given,
        timeout_s=timeout_s,
    )
    found = []
    for n, job in enumerate(jobs):
        out = {
            name: result.outputs[f"{n}.{name}"]
            for name in ("image", "state", "counters", "seconds", "running", "begun")
        }
        raw = int.from_bytes(out["counters"].tobytes(), "little")
        found.append(
            CoreResult(
                out["image"][: len(job.dram)],
                ProgramError(int(out["state"][0])),
                int(out["state"][1]),
                decode(CoreCounters(), raw),
                *_seen(job.program, out["running"], int(out["begun"])),
                float(out["seconds"]),
            )
        )
    return found


def _seen(
    program: Program, running: NDArray[np.int64], begun: int
) -> tuple[NDArray[np.int64], dict[int, dict[str, int]]]:
    """Give what was seen of the queues to their commands, which they execute in order."""
    spans = np.full((len(program.commands), 2), -1)
    before = np.concatenate([[0], running[:-1, 1]])
    engine: dict[int, dict[str, int]] = {}
    for queue in Queue:
        now, last = (values >> queue & 1 for values in (running[:, 1], before))
        indices = [
            i
            for i, command in enumerate(program.commands)
            if queue == command.QUEUE and not isinstance(command, Fence)
        ]
        for side, edge in enumerate((now & ~last, last & ~now)):
            at = running[edge.astype(bool)]
            spans[indices[: len(at)], side] = at[:, 0] - begun
        if queue == Queue.ARRAY:
            # `at` is that of the ends.
            counted = np.diff(at[:, 2:], axis=0, prepend=0).tolist()
            for i, row in zip(indices, counted, strict=False):
                engine[i] = dict(zip(dict(EngineCounters()), row, strict=True))
    return spans, engine
