"""Cycle model of the attention engine, row by row.

In the long run a row costs `2 * k * beats` cycles, k being the kept columns of its fullest bank:
dot and axpy each visit one column of every bank after the other, and rows follow each other
without a gap.  What remains is filling and draining, and rows so short that listing their columns,
normalising their results or the way once around the rows in flight takes longer.  `schedule`
computes both by the recurrence that the hardware obeys; its few constants are measured
(`sim_models.calibration`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from disc.config import CoreConfig

SCHEMA = 1


class CalibrationError(ValueError):
    """A calibration is missing, unreadable or was made for other hardware."""


@dataclass(frozen=True)
class EngineConstants:
    """Latencies between the stages of a row, in cycles."""

    command: int
    """Command accepted to first row accepted."""
    listing: int
    """Hand-over of a row to the scanners and back, on top of the scan itself."""
    score: int
    """Last dot step issued to the row's maximum known."""
    sums: int
    """Last axpy step issued to the row offered to the normaliser's reader."""
    slot: int
    """Last axpy step issued to the row's slot listing another row."""
    half: int
    """Last element read from the accumulators to their half being summed into again."""
    deliver: int
    """Last element read from the accumulators to the command's end."""
    generate: int
    """When the mask generator is done with a row, less one cycle per column of a bank, counted from
    when the normaliser could read it: that is later than when the generator can, so it may be
    negative."""
    generate_gap: int
    """From one row to the next in the mask generator, on top of one cycle per column of a bank."""


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
class EngineModel:
    """Cycles of attention on one engine of `config`."""

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

    def beats(self, head_dim: int) -> int:
        """Words of a row."""
        return -(-head_dim // self.config.array.lanes)

    def cycles_of_masks(
        self, in_banks: NDArray[np.bool_], head_dim: int, *, generate: bool = False
    ) -> int:
        """Return the cycles of one command with these masks.

        Parameters
        ----------
        in_banks
            [rows, B, ceil(N / B)] kept columns in bank order, columns >= N not kept.
        head_dim
            d.
        generate
            Mask generation runs beside.
        """
        steps = in_banks.sum(axis=2).max(axis=1)
        bits = self.config.memory.mask_word_bits
        padded = np.pad(in_banks, ((0, 0), (0, 0), (0, -in_banks.shape[2] % bits)))
        words = padded.reshape(*padded.shape[:2], -1, bits).sum(axis=3)
        # An empty word costs a cycle too, except the last, behind which nothing waits.
        scan = np.maximum(words, 1).sum(axis=2) - (words[:, :, -1] == 0)
        listing = scan.max(axis=1)
        return self._command(steps, listing, head_dim, in_banks.shape[2] if generate else 0)

    def cycles(
        self,
        rows: int,
        columns: int,
        head_dim: int,
        fullest: ArrayLike,
        *,
        generate: bool = False,
    ) -> float:
        """Return the expected cycles of `rows` query rows over one tile of `columns` columns.

        Parameters
        ----------
        rows, columns, head_dim
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
        groups = -(-columns // self.config.array.banks)
        words = -(-groups // self.config.memory.mask_word_bits)
        steps = np.broadcast_to(np.asarray(fullest, dtype=float), rows)
        tile = self.config.memory.query_rows
        total = 0.0
        for begin in range(0, rows, tile):
            part = steps[begin : begin + tile]
            listing = np.maximum(part, words)
            extra = groups if generate else 0
            total += self._command(part, listing, head_dim, extra)
        return total

    def _command(
        self,
        steps: NDArray[Any],
        listing: NDArray[Any],
        head_dim: int,
        generated_columns: int,
    ) -> Any:
        array, vector = self.config.array, self.config.vector
        beats = self.beats(head_dim)
        return schedule(
            tuple(np.maximum(steps, 1).tolist()),
            tuple(listing.tolist()),
            beats,
            beats * (array.lanes // vector.lanes),
            array.rows_in_flight,
            generated_columns,
            self.constants,
        )


@lru_cache(maxsize=256)
def schedule(
    steps: tuple[float, ...],
    listing: tuple[float, ...],
    beats: int,
    reading: int,
    rows_in_flight: int,
    generated_columns: int,
    c: EngineConstants,
) -> float:
    """Return the cycles from acceptance of a command to its end.

    The array serves the axpy of the oldest row whose maximum is known and whose accumulator half
    is free, else the dot of the next row that has been listed; it idles only when there is neither.

    Parameters
    ----------
    steps
        Per row: kept columns of the fullest bank, at least 1.
    listing
        Per row: cycles of its scan, the most of any bank: the sum over its mask words of
        `max(1, kept)`, less 1 if the last word is empty.
    beats
        Words of a row.
    reading
        Cycles in which the normaliser reads a row.
    rows_in_flight
        Slots between listing and axpy.
    generated_columns
        Columns in a bank if a mask is generated, else 0.
    c
        Measured latencies.
    """
    rows = len(steps)
    listed: list[float] = []
    scored: list[float] = []
    axpy_end: list[float] = []
    read_end: list[float] = []
    made: list[float] = []
    time = 0.0
    while len(axpy_end) < rows:
        # List as far as slots allow: slot i is that of row i - rows_in_flight.
        while len(listed) < rows and len(listed) - rows_in_flight < len(axpy_end):
            i = len(listed)
            begin = listed[-1] if listed else float(c.command)
            if i >= rows_in_flight:
                begin = max(begin, axpy_end[i - rows_in_flight] + c.slot)
            listed.append(begin + c.listing + listing[i])
        a, d = len(axpy_end), len(scored)
        axpy_ready = dot_ready = float("inf")
        if a < d:
            axpy_ready = scored[a]
            if a >= 2:
                axpy_ready = max(axpy_ready, read_end[a - 2] + c.half)
                if generated_columns:
                    axpy_ready = max(axpy_ready, made[a - 2] + c.half)
        if d < len(listed):
            dot_ready = listed[d]
        time = max(time, min(axpy_ready, dot_ready))
        if axpy_ready <= time:
            time += steps[a] * beats
            axpy_end.append(time)
            offered = time + c.sums
            read_end.append(max(offered, read_end[-1] if read_end else 0.0) + reading)
            if generated_columns:
                begin = max(offered + c.generate, made[-1] + c.generate_gap if made else 0.0)
                made.append(begin + generated_columns)
        else:
            time += steps[d] * beats
            scored.append(time + c.score)
    return max(read_end[-1], made[-1] if made else 0.0) + c.deliver


def constant_names() -> Sequence[str]:
    """Names of the constants, in order."""
    return [f.name for f in fields(EngineConstants)]
