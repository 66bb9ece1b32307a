"""Run heads of attention on the Verilated engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from disc.config import CoreConfig
from disc.hashing import BankHash
from disc.program import FuseCommand, MaskMode
from disc.verilog import to_verilog
from hw_tests.engine.harness import TOP, EngineHarness
from hw_tests.sim import Built, SimResult, build, run

__all__ = ["Counters", "HeadJob", "SimulatedHead", "build_engine", "engine_verilog", "simulate"]

Int = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class HeadJob:
    """One head for the engine.  More rows than the query buffer holds are run in tiles."""

    q: Int
    """[rows, d], the selected rows only."""
    k: Int
    """[columns, d]."""
    v: Int
    """[columns, d]."""
    command: FuseCommand
    hash: BankHash
    mask: NDArray[np.bool_] | None = None
    """[rows, columns] for MASKED."""
    tokens: Int | None = None
    """[rows]; 0, 1, ... if left out."""
    stall: float = 0.0
    """Fraction of cycles in which each stream is stalled, in [0, 0.99]."""

    def row_tokens(self) -> Int:
        """Token index of every row."""
        return np.arange(len(self.q)) if self.tokens is None else np.asarray(self.tokens)


@dataclass(frozen=True)
class Counters:
    """The engine's counters, summed over row tiles."""

    cycles: int
    dot: int
    axpy: int
    kept: int
    rows: int


@dataclass(frozen=True)
class SimulatedHead:
    """What the engine made of a `HeadJob`."""

    out: Int
    """[rows, d]."""
    mask: NDArray[np.bool_] | None
    """[rows, columns], with GENERATE."""
    counters: Counters
    tiles: tuple[Counters, ...]
    """The same per row tile, which is a command each."""
    seconds: float
    """Wall time of the simulator between start and end of the commands."""


@cache
def engine_verilog(config: CoreConfig) -> str:
    """Return the harness as Verilog."""
    return to_verilog(EngineHarness(config), top=TOP, header={"configuration": config.digest})


def build_engine(config: CoreConfig, *, opt: str = "-O1") -> Built:
    """Return the simulator of the harness for a configuration, built if it is not yet."""
    memories = (
        "engine.distributor.bank_*",
        "engine.mask.mask_*",
        "engine.queries_buffer",
        "row_list",
        "result",
        "mask_line",
    )
    public = [(f"{TOP}.{name}", "words") for name in memories]
    return build(engine_verilog(config), TOP, public=public, opt=opt)


def simulate(
    config: CoreConfig,
    jobs: Sequence[HeadJob],
    *,
    built: Built | None = None,
    seed: int | None = None,
    timeout_s: float = 900.0,
) -> list[SimulatedHead]:
    """Run jobs one after the other in one simulator process.

    Raises
    ------
    ValueError
        A job does not fit the configuration.
    ToolchainError, BuildError
        The simulator cannot be built.
    AssertionError
        The simulation failed; with the end of its log.
    """
    for job in jobs:
        job.command.validate(config)
        _validate(config, job)
    arrays: dict[str, object] = {"config": config.to_toml(), "jobs": len(jobs)}
    for number, job in enumerate(jobs):
        arrays |= {f"{number}.{name}": value for name, value in _pack(job).items()}
    result = run(
        built or build_engine(config),
        "hw_tests.engine.bench",
        seed=seed,
        inputs=arrays,
        timeout_s=timeout_s,
    )
    return [_unpack(config, job, result, number) for number, job in enumerate(jobs)]


def _validate(config: CoreConfig, job: HeadJob) -> None:
    rows, d = job.q.shape
    if job.k.shape != job.v.shape or job.k.shape[1] != d:
        raise ValueError(f"k, v: want [columns, {d}], got {job.k.shape} and {job.v.shape}")
    if rows < 1:
        raise ValueError("q: needs at least one row")
    if (job.hash.bank_bits, job.hash.local_bits) != (config.bank_bits, config.local_bits):
        raise ValueError(
            f"hash: is for {job.hash.bank_bits} bank and {job.hash.local_bits} local bits, "
            f"configuration {config.name!r} has {config.bank_bits} and {config.local_bits}"
        )
    if job.command.mode == MaskMode.MASKED and job.mask is None:
        raise ValueError("mask: mode MASKED needs one")
    if not 0 <= job.stall <= 0.99:
        raise ValueError(f"stall: must be in [0, 0.99], got {job.stall}")


def _pack(job: HeadJob) -> dict[str, object]:
    command = job.command.encode()
    packed = {
        "q": job.q,
        "k": job.k,
        "v": job.v,
        "tokens": job.row_tokens(),
        "hash": np.array(job.hash.rows, dtype=np.int64),
        "command": np.array(list(command.values()), dtype=np.int64),
        "stall": round(job.stall * 256),
    }
    if job.mask is not None:
        packed["mask"] = job.mask
    return packed


def _unpack(config: CoreConfig, job: HeadJob, result: SimResult, number: int) -> SimulatedHead:
    tiles = tuple(Counters(*map(int, row)) for row in result.outputs[f"{number}.counters"])
    mask = None
    if job.command.mode == MaskMode.GENERATE:
        in_banks = result.outputs[f"{number}.mask"][:, :, : job.command.groups(config)]
        mask = job.hash.from_bank_order(in_banks.astype(bool), job.command.columns)
    total = Counters(*np.sum([list(vars(tile).values()) for tile in tiles], axis=0).tolist())
    return SimulatedHead(
        result.outputs[f"{number}.out"], mask, total, tiles, result.outputs[f"{number}.seconds"]
    )
