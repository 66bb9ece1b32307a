"""Runs the engine on chosen masks and records cycles: raw material for calibration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from disc.config import CoreConfig
from disc.hashing import BankHash
from disc.program import FuseCommand, MaskMode
from hw_tests.engine.simulate import HeadJob, simulate

__all__ = ["Measurement", "Workload", "measure", "synthetic_workloads"]


@dataclass(frozen=True)
class Workload:
    """A command whose cycles are wanted.  Cycles do not depend on operands, only on the mask."""

    label: str
    split: str
    mask: NDArray[np.bool_]
    """[rows, columns]; all ones is run as DENSE or GENERATE."""
    head_dim: int
    generate: bool = False


@dataclass(frozen=True)
class Measurement:
    """What the RTL took."""

    workload: Workload
    in_banks: NDArray[np.bool_]
    """The mask in bank order, [rows, B, ceil(N / B)]."""
    cycles: int


def synthetic_workloads(config: CoreConfig, seed: int) -> list[Workload]:
    """Return random masks of many shapes: a part to fit on, three parts held out.

    The held-out parts have shapes that are no multiples of anything, head dimensions that the fit
    has not seen, and densities between those of the fit.
    """
    rng = np.random.default_rng(seed)
    most_rows, most_columns = config.memory.query_rows, config.memory.columns
    most_dim = config.memory.head_dim
    workloads = []

    def add(split: str, rows: int, columns: int, dim: int, density: float, *, generate=False):
        mask = rng.random((rows, columns)) < density
        mask[np.arange(rows), rng.integers(columns, size=rows)] = True
        label = f"{rows}x{columns}, d {dim}, density {density:g}{', generate' * generate}"
        workloads.append(Workload(label, split, mask, dim, generate))

    def fits(columns: int, dim: int) -> bool:
        beats = -(-dim // config.array.lanes)
        return 2 * beats * -(-columns // config.array.banks) <= config.memory.bank_words

    for dim in (config.array.lanes, most_dim):
        for columns in (config.array.banks, most_columns // 4, most_columns):
            if not fits(columns, dim):
                continue
            for density in (0.0, 0.1, 0.4, 1.0):
                for rows in (1, 3, min(48, most_rows)):
                    add("fit", rows, columns, dim, density)
            add("fit", 5, columns, dim, 1.0, generate=True)
    for rows in (2, 7, min(61, most_rows)):
        for columns in (config.array.banks + 1, most_columns // 3 | 1):
            if not fits(columns, most_dim):
                continue
            add("unseen shape", rows, columns, most_dim, 0.1)
            add("unseen shape", rows, columns, most_dim, 1.0)
            add("unseen shape", rows, columns, most_dim, 1.0, generate=True)
            add("unseen density", rows, columns, most_dim, 0.2)
            add("unseen density", rows, columns, most_dim, 0.7)
            add("unseen head dim", rows, columns, max(1, most_dim // 3), 0.1)
            add("unseen head dim", rows, columns, max(1, most_dim // 3), 0.4)
    return workloads


def measure(
    config: CoreConfig, workloads: Iterable[Workload], hash_: BankHash, *, seed: int | None = None
) -> list[Measurement]:
    """Run the workloads on RTL, without stalls, and return their cycles."""
    workloads = list(workloads)
    rng = np.random.default_rng(0)
    jobs = []
    for workload in workloads:
        rows, columns = workload.mask.shape
        dense = bool(workload.mask.all())
        mode = MaskMode.MASKED
        if workload.generate:
            mode = MaskMode.GENERATE
        elif dense:
            mode = MaskMode.DENSE
        beats = -(-workload.head_dim // config.array.lanes)
        groups = -(-columns // config.array.banks)
        command = FuseCommand(
            mode=mode,
            columns=columns,
            beats=beats,
            dot_base=0,
            axpy_base=groups * beats,
            score_multiplier=1 << 15,
            score_shift=20,
            output_multiplier=1 << 15,
            output_shift=15,
            threshold=1000,
        )
        q, k, v = (
            rng.integers(-127, 128, size=(n, workload.head_dim)) for n in (rows, columns, columns)
        )
        jobs.append(
            HeadJob(
                q=q,
                k=k,
                v=v,
                command=command,
                hash=hash_,
                mask=workload.mask if mode == MaskMode.MASKED else None,
                tokens=np.arange(rows) % columns,
            )
        )
    results = simulate(config, jobs, seed=seed)
    return [
        Measurement(workload, hash_.to_bank_order(workload.mask), result.counters.cycles)
        for workload, result in zip(workloads, results, strict=True)
    ]
