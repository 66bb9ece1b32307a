"""Cycle model of the engine, row by row.

In the long run a row costs `k * (beats + axpy_beats)` cycles, k being the kept columns of its
fullest bank: dot and axpy each visit one column of every bank after the other, and rows follow each
other without a gap.  What remains is filling and draining, and rows so short that listing their
columns, reading their sums or the way once around the rows in flight takes longer.
`sim_models.schedule` computes both by the recurrence that the hardware obeys; its constants are
measured (`sim_models.calibration`).
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from disc.config import CoreConfig
from disc.program import Function
from sim_models.schedule import EngineConstants, Plan, schedule

SCHEMA = 3


class CalibrationError(ValueError):
    """A calibration is missing, unreadable or was made for other hardware."""


@dataclass(frozen=True)
class EngineCalibration:
    """Constants with their provenance, as `disc calibrate` writes them."""

    schema: int
    config_digest: str
    config_name: str
    constants: EngineConstants
    tools: dict[str, str]
    design_digest: str
    """SHA-256 of the Verilog that was measured, first 12 hex digits."""
    errors: dict[str, dict[str, float]]
    """Per split: samples, mean_error, worst_error (relative)."""
    samples: list[dict[str, Any]]
    """Every run: what it was, measured and modelled cycles."""

    @property
    def id(self) -> str:
        """Short name for reports."""
        return f"engine-{self.config_name}-{self.config_digest}-{self.design_digest}"

    def to_json(self) -> str:
        """Return the calibration as JSON."""
        return json.dumps(asdict(self), indent=1) + "\n"


def load_calibration(path: str | Path) -> EngineCalibration:
    """Read what `disc calibrate` wrote, or raise `CalibrationError`."""
    try:
        return _parse(Path(path).read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise CalibrationError(f"calibration: cannot read {path}: {error}") from None


def shipped_calibration(config: CoreConfig) -> EngineCalibration:
    """Return the calibration that comes with the project for this configuration.

    Raises `CalibrationError` if there is none; `disc calibrate` makes one.
    """
    folder = resources.files("sim_models") / "calibrations"
    for item in folder.iterdir():
        if item.name.endswith(".json"):
            calibration = _parse(item.read_text(encoding="utf-8"), item.name)
            if calibration.config_digest == config.digest:
                return calibration
    raise CalibrationError(
        f"calibration: none shipped for configuration {config.name!r} ({config.digest}); make one "
        f"with `disc calibrate --config ... --out calibration.json` and pass --calibration"
    )


def chosen_calibration(config: CoreConfig, path: str | Path | None) -> EngineCalibration:
    """Return the calibration in a file, or without one the shipped one."""
    return shipped_calibration(config) if path is None else load_calibration(path)


def _parse(text: str, source: str) -> EngineCalibration:
    try:
        data = json.loads(text)
        if data["schema"] != SCHEMA:
            raise CalibrationError(
                f"calibration: {source} has schema {data['schema']}, this program reads {SCHEMA}"
            )
        data["constants"] = EngineConstants(**data["constants"])
        return EngineCalibration(**data)
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        raise CalibrationError(f"calibration: {source} is not a calibration: {error}") from None


@dataclass(frozen=True)
class Operation:
    """What a command does, apart from its rows and columns."""

    row_dim: int
    """Elements of a row."""
    out_dim: int = 0
    """GELU: elements of a row of sums; 0 stands for `row_dim`."""
    function: Function = Function.SOFTMAX
    generate: bool = False
    """A mask is generated beside."""
    raw: bool = False
    """Sums leave instead of normalised results."""
    mark: bool = False
    """Second pass over a key tile: a mask is generated, only sums over its columns leave."""
    fill: bool = False
    """The mask generated is filled up: the generator reads every row twice."""


@dataclass(frozen=True)
class EngineModel:
    """Cycles of commands on one engine of `config`."""

    config: CoreConfig
    constants: EngineConstants

    @classmethod
    def calibrated(cls, config: CoreConfig, calibration: EngineCalibration) -> EngineModel:
        """Return the model; `CalibrationError` if it was calibrated on other hardware."""
        if calibration.config_digest != config.digest:
            raise CalibrationError(
                f"calibration: made for configuration {calibration.config_name!r} "
                f"({calibration.config_digest}), not for {config.name!r} ({config.digest})"
            )
        return cls(config, calibration.constants)

    def beats(self, row_dim: int) -> int:
        """Words of a row."""
        return -(-row_dim // self.config.array.lanes)

    def cycles_of_masks(
        self,
        in_banks: NDArray[np.bool_],
        operation: Operation,
        *,
        shared: NDArray[np.bool_] | None = None,
    ) -> int:
        """Return the cycles of one command with these masks.

        Parameters
        ----------
        in_banks
            [rows, B, ceil(N / B)] kept columns in bank order, columns >= N not kept.
        operation
            What is done with them.
        shared
            The masks made, if the kept columns' sums leave too, or only they (`mark`).
        """
        steps = in_banks.sum(axis=2).max(axis=1)
        bits = self.config.memory.mask_word_bits
        padded = np.pad(in_banks, ((0, 0), (0, 0), (0, -in_banks.shape[2] % bits)))
        words = padded.reshape(*padded.shape[:2], -1, bits).sum(axis=3)
        # An empty word costs a cycle too, except the last, behind which nothing waits.
        scan = np.maximum(words, 1).sum(axis=2) - (words[:, :, -1] == 0)
        kept = None if shared is None else shared.sum(axis=2).max(axis=1)
        return int(self._command(steps, scan.max(axis=1), operation, in_banks.shape[2], kept))

    def cycles(
        self,
        rows: int,
        columns: int,
        row_dim: int,
        fullest: ArrayLike,
        *,
        generate: bool = False,
    ) -> float:
        """Return the expected cycles of `rows` query rows over one tile of `columns` columns.

        Parameters
        ----------
        rows, columns, row_dim
            Rows beyond `memory.query_rows` take further commands.
        fullest
            Kept columns of the fullest bank: one (expected) value, or one per row.
        generate
            Mask generation runs beside.
        """
        if not 1 <= columns <= self.config.memory.columns:
            raise ValueError(
                f"columns: must be in [1, {self.config.memory.columns}], got {columns}"
            )
        if rows < 1:
            raise ValueError(f"rows: must be at least 1, got {rows}")
        operation = Operation(row_dim, generate=generate)
        groups = -(-columns // self.config.array.banks)
        words = -(-groups // self.config.memory.mask_word_bits)
        steps = np.broadcast_to(np.asarray(fullest, dtype=float), rows)
        tile = self.config.memory.query_rows
        total = 0.0
        for begin in range(0, rows, tile):
            part = steps[begin : begin + tile]
            total += self._command(part, np.maximum(part, words), operation, groups, None)
        return total

    def _command(
        self,
        steps: NDArray[Any],
        listing: NDArray[Any],
        operation: Operation,
        groups: int,
        kept: NDArray[Any] | None,
    ) -> float:
        array, vector = self.config.array, self.config.vector
        project = operation.function == Function.PROJECT
        gelu = operation.function == Function.GELU
        sums = gelu or operation.raw or kept is not None
        comparing = groups + (groups + 1 if operation.fill else 0)
        plan = Plan(
            beats=self.beats(operation.row_dim),
            axpy_beats=0 if project else self.beats(operation.out_dim or operation.row_dim),
            reading=array.lanes // vector.lanes,
            # Two rows of the longest head, and not less than 8: `hw.softmax.sum_queue`.
            room=max(8, 2 * self.config.max_beats),
            rows_in_flight=array.rows_in_flight,
            looked_up=gelu,
            normalised=not sums,
            comparing=comparing if operation.generate and not gelu else 0,
            marked=operation.mark,
            hot_lines=-(-groups // self.config.memory.mask_word_bits)
            if operation.generate and gelu
            else 0,
        )
        again = () if kept is None else tuple(np.maximum(kept, 1).tolist())
        return schedule(
            tuple(np.maximum(steps, 1).tolist()),
            tuple(listing.tolist()),
            plan,
            self.constants,
            again,
        )
