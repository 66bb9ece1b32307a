"""Run fused operations on the Verilated engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from disc.config import CoreConfig
from disc.hashing import BankHash
from disc.program import Function, FuseCommand, MaskMode
from disc.verilog import to_verilog
from hw.sram import Sram
from hw_tests.engine.harness import RAW_WORDS, TOP, EngineHarness
from hw_tests.sim import Built, SimResult, build, run

__all__ = [
    "Counters",
    "HeadJob",
    "SimulatedHead",
    "build_engine",
    "check",
    "engine_verilog",
    "simulate",
]

Int = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class HeadJob:
    """One command for the engine.  More rows than its memories hold are run in tiles."""

    q: Int
    """[rows, d], the selected rows only."""
    k: Int
    """[columns, d]."""
    v: Int | None = None
    """[columns, d], or with GELU any number of elements; none for PROJECT."""
    command: FuseCommand
    hash: BankHash
    mask: NDArray[np.bool_] | None = None
    """[rows, columns] for MASKED; all rows alike if the command says `shared_mask`.  [1, columns]
    for GELU with GENERATE: columns that are hot already."""
    constants: Int | None = None
    """GELU: [columns, 3], bias, multiplier and shift."""
    table: Int | None = None
    """GELU: [2**operand_bits]."""
    tokens: Int | None = None
    """[rows] own columns; 0, 1, ... if left out."""
    outside: NDArray[np.bool_] | None = None
    """[rows]: the own column is not among the columns."""
    maximum: Int | None = None
    total: Int | None = None
    """[rows], with `mark`."""
    stall: float = 0.0
    """Fraction of cycles in which each stream is stalled, in [0, 0.99]."""
    read_masks: float = 0.0
    """Fraction of cycles in which somebody would read the mask memory, in [0, 0.99]."""

    def row_tokens(self) -> Int:
        """Token index of every row."""
        return np.arange(len(self.q)) if self.tokens is None else np.asarray(self.tokens)

    def slots(self, config: CoreConfig) -> int:
        """Row slots that the core has for this command."""
        c, stride = self.command, self.command.stride(config)
        most = min(config.memory.query_rows, (config.query_words - c.row_base) // stride)
        own = c.mode == MaskMode.MASKED and not c.shared_mask
        if own or (c.mode == MaskMode.GENERATE and c.function == Function.SOFTMAX):
            most = min(most, config.memory.query_rows - c.mask_slot)
        return most

    def tile_rows(self, config: CoreConfig) -> int:
        """Rows of one command: as many as there are slots, and as the harness can record."""
        c, most = self.command, self.slots(config)
        if c.function == Function.PROJECT:
            return max(1, min(most, RAW_WORDS // c.groups(config)))
        if c.function == Function.GELU or c.raw or c.share or c.mark:
            parts = config.array.lanes // config.vector.lanes
            return max(1, min(most, RAW_WORDS // ((1 + c.share) * c.sum_beats() * parts)))
        return most


@dataclass(frozen=True)
class Counters:
    """The engine's counters, summed over row tiles."""

    cycles: int
    dot: int
    axpy: int
    kept: int
    rows: int
    imbalance: int
    no_room: int
    no_row: int


@dataclass(frozen=True)
class SimulatedHead:
    """What the engine made of a `HeadJob`."""

    out: Int
    """[rows, d] results or sums, or with PROJECT [rows, columns] dot products."""
    mask: NDArray[np.bool_] | None
    """[rows, columns], with GENERATE."""
    counters: Counters
    tiles: tuple[Counters, ...]
    """The same per row tile, which is a command each."""
    seconds: float
    """Wall time of the simulator between start and end of the commands."""
    more: dict[str, Int]
    """Of sums: `total` and `maximum` [rows]; with `share` `kept_out` [rows, d], `kept_total`."""


@cache
def engine_verilog(config: CoreConfig) -> str:
    """Return the harness as Verilog."""
    return to_verilog(EngineHarness(config), top=TOP, header={"configuration": config.digest})


def build_engine(config: CoreConfig, *, opt: str = "-O1") -> Built:
    """Return the simulator of the harness for a configuration, built if it is not yet."""
    return build(engine_verilog(config), TOP, public=[(Sram.MODULE, "words")], opt=opt)


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
        check(config, job)
    arrays: dict[str, object] = {"config": config.to_toml(), "jobs": len(jobs)}
    for number, job in enumerate(jobs):
        arrays |= {f"{number}.{name}": value for name, value in _pack(config, job).items()}
    result = run(
        built or build_engine(config),
        "hw_tests.engine.bench",
        seed=seed,
        inputs=arrays,
        timeout_s=timeout_s,
    )
    return [_unpack(config, job, result, number) for number, job in enumerate(jobs)]


def check(config: CoreConfig, job: HeadJob) -> None:
    """Raise `ValueError` unless the job fits the configuration."""
    job.command.validate(config)
    rows, d = job.q.shape
    function = job.command.function
    wide = function == Function.GELU
    if job.k.shape[1] != d:
        raise ValueError(f"k: want [columns, {d}], got {job.k.shape}")
    if function != Function.PROJECT and (
        job.v is None or len(job.v) != len(job.k) or (not wide and job.v.shape != job.k.shape)
    ):
        raise ValueError(f"k, v: want [columns, {d}], got {job.k.shape} and {np.shape(job.v)}")
    if wide and (job.constants is None or job.table is None):
        raise ValueError("constants, table: function GELU needs both")
    if job.slots(config) < 1:
        raise ValueError("row_stride, mask_slot: no row slot is left")
    making = job.command.mode == MaskMode.GENERATE
    if rows < 1 and not (wide and making):
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


def _pack(config: CoreConfig, job: HeadJob) -> dict[str, object]:
    command = job.command.encode()
    packed = {
        "q": job.q,
        "k": job.k,
        "slots": job.slots(config),
        "tile_rows": job.tile_rows(config),
        "token": job.row_tokens(),
        "hash": np.array(job.hash.rows, dtype=np.int64),
        "command": np.array(list(command.values()), dtype=np.int64),
        "stall": round(job.stall * 256),
        "read_masks": round(job.read_masks * 256),
    }
    for name in ("v", "mask", "constants", "table"):
        if getattr(job, name) is not None:
            packed[name] = getattr(job, name)
    for name in ("outside", "maximum", "total"):
        value = getattr(job, name)
        packed[name] = np.zeros(len(job.q), dtype=np.int64) if value is None else value
    return packed


def _unpack(config: CoreConfig, job: HeadJob, result: SimResult, number: int) -> SimulatedHead:
    tiles = tuple(Counters(*map(int, row)) for row in result.outputs[f"{number}.counters"])
    mask = None
    if job.command.mode == MaskMode.GENERATE:
        in_banks = result.outputs[f"{number}.mask"].astype(bool)
        if job.command.function == Function.GELU:
            in_banks = in_banks[-1:]
        groups = job.command.groups(config)
        mask = job.hash.from_bank_order(in_banks[:, :, :groups], job.command.columns)
        exists = job.hash.to_bank_order(np.ones((1, job.command.columns), dtype=bool))
        exists = np.pad(exists, ((0, 0), (0, 0), (0, in_banks.shape[2] - groups)))
        assert not (in_banks & ~exists).any(), "mask: bits are set where no column is"
    total = Counters(*np.sum([list(vars(tile).values()) for tile in tiles], axis=0).tolist())
    width = job.command.columns if job.v is None else job.v.shape[1]
    found = {
        name: result.outputs[f"{number}.{name}"]
        for name in ("out", "kept_out", "total", "kept_total", "maximum")
        if f"{number}.{name}" in result.outputs
    }
    for name in ("out", "kept_out"):
        if name in found:
            beyond = found[name][:, width:]
            assert not beyond.any(), f"{name}: the lanes beyond the row's elements are not zero"
            found[name] = found[name][:, :width]
    out = found.pop("out")
    return SimulatedHead(out, mask, total, tiles, result.outputs[f"{number}.seconds"], found)
