"""Scales of every quantised tensor of a network: a frozen object and its file."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CALIBRATIONS = Path(__file__).parent / "calibrations"
FORMAT = "disc-int-1"

Array = NDArray[np.float64]


class CalibrationError(ValueError):
    """A calibration is missing, damaged or of another model.  The message says what to do."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Calibration:
    """Values of one unit, in real units.

    G groups of steps, equal spans of diffusion time from noise to clean; L layers; H heads.  What
    is kept from step to step (residual stream, K, V, and with residual sharing the attention's
    result) has one scale for all groups.
    """

    model: str
    """`fingerprint` of the weights."""
    tokens: int
    command: str
    """How it was made."""
    residual: Array
    """[], the residual stream."""
    attention_in: Array
    """[G, L]"""
    q: Array
    """[G, L, H]"""
    k: Array
    """[L, H]"""
    v: Array
    """[L, H]"""
    attention_out: Array
    """[L, H]"""
    mlp_in: Array
    """[G, L]"""
    hidden_in: Array
    """[G, L], before GELU."""
    hidden_out: Array
    """[G, L], behind it."""
    final_in: Array
    """[G]"""
    final_out: Array
    """[patch**2 * channels], 16 bit."""

    def __post_init__(self) -> None:
        for name in _DIMS:
            value = _short(np.array(getattr(self, name), dtype=np.float64))
            value.setflags(write=False)
            object.__setattr__(self, name, value)
        for name, dims in _DIMS.items():
            value = getattr(self, name)
            shape = tuple(getattr(self, dim) for dim in dims)
            if value.shape != shape:
                raise CalibrationError(
                    f"{name}: shape {value.shape} is not {shape}, [{', '.join(dims)}]"
                )
            if not np.all(np.isfinite(value)):
                raise CalibrationError(f"{name}: holds NaN or infinity")
            if not np.all(value > 0):
                raise CalibrationError(f"{name}: scales must be positive, got {value.min()}")

    @property
    def groups(self) -> int:
        """G."""
        return self.attention_in.shape[0] if self.attention_in.ndim else 0

    @property
    def layers(self) -> int:
        """L."""
        return self.v.shape[0] if self.v.ndim else 0

    @property
    def heads(self) -> int:
        """H."""
        return self.v.shape[1] if self.v.ndim == 2 else 0

    @property
    def outputs(self) -> int:
        """Values that the final layer gives a token."""
        return self.final_out.size

    def group(self, timestep: float) -> int:
        """Group of a timestep, 1000 (noise) .. 0 (clean)."""
        if not 0 <= timestep <= 1000:
            raise ValueError(f"timestep: must be in [0, 1000], got {timestep}")
        return min(int((1 - timestep / 1000) * self.groups), self.groups - 1)

    def save(self, path: Path) -> None:
        """Write as JSON."""
        record: dict[str, Any] = {"format": FORMAT}
        for field in fields(self):
            value = getattr(self, field.name)
            record[field.name] = value.tolist() if isinstance(value, np.ndarray) else value
        lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in record.items())
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def _short(x: Array) -> Array:
    """Keep six significant digits, plenty for a scale, so that files are short and exact."""
    return np.array([float(f"{v:.6g}") for v in x.ravel()]).reshape(x.shape)


_DIMS: dict[str, tuple[str, ...]] = {
    "residual": (),
    "attention_in": ("groups", "layers"),
    "q": ("groups", "layers", "heads"),
    "k": ("layers", "heads"),
    "v": ("layers", "heads"),
    "attention_out": ("layers", "heads"),
    "mlp_in": ("groups", "layers"),
    "hidden_in": ("groups", "layers"),
    "hidden_out": ("groups", "layers"),
    "final_in": ("groups",),
    "final_out": ("outputs",),
}


def load_calibration(name_or_path: str | Path) -> Calibration:
    """Return the calibration of a shipped checkpoint by name, or read a file.

    Raises
    ------
    CalibrationError
        No file, damaged, or not a calibration.
    """
    path = Path(name_or_path)
    if path.suffix != ".json":
        path = CALIBRATIONS / f"{name_or_path}.json"
    hint = "make one: python -m golden.integer.calibrate --help"
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CalibrationError(
            f"calibration: cannot read {path.name}: {error.strerror}; {hint}"
        ) from None
    except ValueError as error:
        raise CalibrationError(f"calibration {path.name} is damaged ({error}); {hint}") from None
    if not isinstance(record, dict) or record.pop("format", None) != FORMAT:
        raise CalibrationError(f"calibration {path.name} is not of format {FORMAT!r}; {hint}")
    try:
        return Calibration(**record)
    except (TypeError, ValueError) as error:
        raise CalibrationError(f"calibration {path.name} is damaged ({error}); {hint}") from None
