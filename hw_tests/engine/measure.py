"""Runs the engine on chosen masks and records cycles: raw material for calibration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from disc.config import CoreConfig
from disc.hashing import BankHash
from disc.program import Function, FuseCommand, MaskMode
from hw_tests.engine.simulate import HeadJob, simulate
from sim_models.engine import Operation

__all__ = ["Measurement", "Workload", "measure", "synthetic_workloads"]

HELD_OUT_DENSITIES = (0.2, 0.7)


@dataclass(frozen=True)
class Workload:
    """A command whose cycles are wanted.

    They do not depend on operands, only on masks: the one that is used, and with `share` and `mark`
    the one that is made.
    """

    label: str
    split: str
    mask: NDArray[np.bool_]
    """[rows, columns]; all ones is run as DENSE or GENERATE."""
    operation: Operation
    share: bool = False


@dataclass(frozen=True)
class Measurement:
    """What the RTL took."""

    workload: Workload
    in_banks: NDArray[np.bool_]
    """The mask in bank order, [rows, B, ceil(N / B)]."""
    shared: NDArray[np.bool_] | None
    """With `share` or `mark`, the mask made, likewise."""
    cycles: int


def synthetic_workloads(config: CoreConfig, seed: int) -> list[Workload]:
    """Return random masks of many shapes, of every function: a part to fit on, the rest held out.

    The held-out parts have shapes that are no multiples of anything, row widths that the fit has
    not seen, and densities between those of the fit.
    """
    draw = _Draw(config, np.random.default_rng(seed))
    most_rows, most_columns = config.memory.query_rows, config.memory.columns
    most_dim, lanes, banks = config.memory.head_dim, config.array.lanes, config.array.banks

    for dim in (lanes, most_dim):
        for columns in (banks, most_columns // 4, most_columns):
            head = Operation(dim)
            for density in (0.0, 0.1, 0.4, 1.0):
                for rows in (1, 3, min(48, most_rows)):
                    draw.add("fit", rows, columns, head, density)
            making = Operation(dim, generate=True)
            draw.add("fit", 5, columns, making, 1.0)
            draw.add("fit", 6, columns, making, 1.0, share=True)
            draw.add("fit", 4, columns, Operation(dim, generate=True, mark=True), 1.0)
            draw.add("fit", 7, columns, Operation(dim, raw=True), 0.4)
    for function in (Function.PROJECT, Function.GELU):
        for dim in (lanes, 4 * lanes):
            for columns in (banks, most_columns // 4):
                for density in (0.1, 1.0):
                    for rows in (1, 9):
                        draw.add("fit", rows, columns, Operation(dim, 0, function), density)
    for columns in (banks, most_columns // 4):
        draw.add("fit", 3, columns, Operation(lanes, 0, Function.GELU, generate=True), 1.0)

    for rows in (2, 7, min(61, most_rows)):
        for columns in (banks + 1, most_columns // 3 | 1):
            head, making = Operation(most_dim), Operation(most_dim, generate=True)
            draw.add("unseen shape", rows, columns, head, 0.1)
            draw.add("unseen shape", rows, columns, head, 1.0)
            draw.add("unseen shape", rows, columns, making, 1.0)
            draw.add("unseen shape", rows, columns, making, 1.0, share=True)
            marking = Operation(most_dim, generate=True, mark=True)
            draw.add("unseen second pass", rows, columns, marking, 1.0)
            third = Operation(max(1, most_dim // 3))
            for density in HELD_OUT_DENSITIES:
                draw.add("unseen density", rows, columns, head, density)
                draw.add("unseen head dim", rows, columns, third, density / 2)
            wide = Operation(5 * lanes + 1, 0, Function.PROJECT)
            draw.add("unseen projection", rows, columns, wide, 1.0)
            draw.add("unseen projection", rows, columns, Operation(lanes, 0, Function.PROJECT), 0.2)
            unequal = Operation(3 * lanes - 1, 2 * lanes, Function.GELU)
            draw.add("unseen MLP", rows, columns, unequal, 1.0)
            draw.add("unseen MLP", rows, columns, unequal, 0.2)
            noting = Operation(3 * lanes - 1, 2 * lanes, Function.GELU, generate=True)
            draw.add("unseen MLP", rows, columns, noting, 1.0)
    # A generator of filled masks needs no constant of its own.
    for rows in (2, 7, min(61, most_rows)):
        for columns in (banks, most_columns // 3 | 1, most_columns):
            for dim in (lanes, most_dim // 2, most_dim):
                filling = Operation(dim, generate=True, fill=True)
                draw.add("filled masks", rows, columns, filling, 1.0)
                draw.add("filled masks", rows, columns, filling, 1.0, share=True)
                draw.add("filled masks", rows, columns, replace(filling, mark=True), 1.0)
    return draw.workloads


class _Draw:
    """Collects the workloads that fit a configuration."""

    def __init__(self, config: CoreConfig, rng: np.random.Generator) -> None:
        self.config, self.rng = config, rng
        self.workloads: list[Workload] = []

    def add(
        self,
        split: str,
        rows: int,
        columns: int,
        operation: Operation,
        density: float,
        *,
        share: bool = False,
    ) -> None:
        """Add a command if its columns fit the banks and its rows fit one command."""
        mask = self.rng.random((rows, columns)) < density
        mask[np.arange(rows), self.rng.integers(columns, size=rows)] = True
        function = operation.function.name.lower()
        width = f"d {operation.row_dim}"
        if operation.out_dim:
            width += f" to {operation.out_dim}"
        label = f"{function} {rows}x{columns}, {width}, density {density:g}"
        label += ", generate" * operation.generate + ", share" * share + ", raw" * operation.raw
        label += ", mark" * operation.mark + ", fill" * operation.fill
        workload = Workload(label, split, mask, operation, share)
        try:
            command(self.config, workload).validate(self.config)
        except ValueError:
            return
        hash_ = BankHash.modulo(self.config.array.banks, self.config.local_bits)
        if job(self.config, workload, hash_).tile_rows(self.config) >= rows:
            self.workloads.append(workload)


def command(config: CoreConfig, workload: Workload) -> FuseCommand:
    """Return the workload's command, second operands behind the first."""
    operation = workload.operation
    columns = workload.mask.shape[1]
    mode = MaskMode.DENSE if workload.mask.all() else MaskMode.MASKED
    if operation.generate:
        mode = MaskMode.GENERATE
    beats = -(-operation.row_dim // config.array.lanes)
    return FuseCommand(
        function=operation.function,
        mode=mode,
        columns=columns,
        beats=beats,
        axpy_beats=-(-operation.out_dim // config.array.lanes),
        axpy_base=-(-columns // config.array.banks) * beats,
        row_stride=beats,
        score_multiplier=1 << 15,
        score_shift=20,
        output_multiplier=1 << 15,
        output_shift=15,
        threshold=1000,
        raw=operation.raw,
        share=workload.share,
        mark=operation.mark,
        fill=operation.fill,
    )


def job(config: CoreConfig, workload: Workload, hash_: BankHash) -> HeadJob:
    """Return the workload with random operands."""
    rng = np.random.default_rng(0)
    operation = workload.operation
    rows, columns = workload.mask.shape
    limit = 1 << (config.number.operand_bits - 1)
    out_dim = operation.out_dim or operation.row_dim

    def operands(*shape: int) -> NDArray[np.int64]:
        return rng.integers(1 - limit, limit, size=shape)

    fused = command(config, workload)
    gelu = operation.function == Function.GELU
    return HeadJob(
        q=operands(rows, operation.row_dim),
        k=operands(columns, operation.row_dim),
        v=None if operation.function == Function.PROJECT else operands(columns, out_dim),
        command=fused,
        hash=hash_,
        mask=workload.mask[: 1 if gelu and operation.generate else None],
        tokens=np.arange(rows) % columns,
        # Of a second pass: anything that keeps few columns in some rows and many in others.
        maximum=rng.integers(0, 40, rows),
        total=np.full(rows, 1 << 16),
        constants=np.tile([0, 1 << 15, 24], (columns, 1)) if gelu else None,
        table=operands(2 * limit) if gelu else None,
    )


def measure(
    config: CoreConfig, workloads: Iterable[Workload], hash_: BankHash, *, seed: int | None = None
) -> list[Measurement]:
    """Run the workloads on RTL, without stalls, and return their cycles."""
    workloads = list(workloads)
    jobs = [job(config, workload, hash_) for workload in workloads]
    results = simulate(config, jobs, seed=seed)
    return [
        Measurement(
            workload,
            hash_.to_bank_order(workload.mask),
            hash_.to_bank_order(result.mask) if workload.share or workload.operation.mark else None,
            result.counters.cycles,
        )
        for workload, result in zip(workloads, results, strict=True)
    ]
