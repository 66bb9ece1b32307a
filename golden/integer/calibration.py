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

    G groups of steps, equal spans of diffusion time from noise to clean; L layers; H heads of d
    channels; D = H * d.  What is kept from step to step (residual stream, K, V, and with residual
    sharing the attention's result) has one scale for all groups.  `*_channels` are factors on the
    scales of single channels, which the weights behind them absorb.  `*_mean` are averages,
    by which biases make up for what rounding the weights does to a layer's mean result.
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
    attention_in_channels: Array
    """[L, D]"""
    attention_in_mean: Array
    """[G, L, D]"""
    q: Array
    """[G, L, H]"""
    k: Array
    """[L, H]"""
    k_channels: Array
    """[L, D], of k; q has the inverse."""
    k_offset: Array
    """[L, D], taken off k: softmax does not see what all keys have in common."""
    v: Array
    """[L, H]"""
    v_channels: Array
    """[L, D], of v and of the attention's result."""
    attention_out: Array
    """[L, H]"""
    attention_out_mean: Array
    """[G, L, D]"""
    mlp_in: Array
    """[G, L]"""
    mlp_in_channels: Array
    """[L, D]"""
    mlp_in_mean: Array
    """[G, L, D]"""
    hidden_in: Array
    """[G, L], before GELU."""
    hidden_out: Array
    """[G, L], behind it."""
    hidden_out_mean: Array
    """[G, L, hidden]"""
    final_in: Array
    """[G]"""
    final_in_channels: Array
    """[D]"""
    final_in_mean: Array
    """[G, D]"""
    final_out: Array
    """[patch**2 * channels], 16 bit."""

    def __post_init__(self) -> None:
        for name in _DIMS:
            value = np.array(getattr(self, name), dtype=np.float64)
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
            if not name.endswith(("_mean", "_offset")) and not np.all(value > 0):
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
    def dim(self) -> int:
        """D."""
        return self.v_channels.shape[1] if self.v_channels.ndim == 2 else 0

    @property
    def hidden(self) -> int:
        """Hidden units of an MLP."""
        return self.hidden_out_mean.shape[-1] if self.hidden_out_mean.ndim else 0

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
        path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


_DIMS: dict[str, tuple[str, ...]] = {
    "residual": (),
    "attention_in": ("groups", "layers"),
    "attention_in_channels": ("layers", "dim"),
    "attention_in_mean": ("groups", "layers", "dim"),
    "q": ("groups", "layers", "heads"),
    "k": ("layers", "heads"),
    "k_channels": ("layers", "dim"),
    "k_offset": ("layers", "dim"),
    "v": ("layers", "heads"),
    "v_channels": ("layers", "dim"),
    "attention_out": ("layers", "heads"),
    "attention_out_mean": ("groups", "layers", "dim"),
    "mlp_in": ("groups", "layers"),
    "mlp_in_channels": ("layers", "dim"),
    "mlp_in_mean": ("groups", "layers", "dim"),
    "hidden_in": ("groups", "layers"),
    "hidden_out": ("groups", "layers"),
    "hidden_out_mean": ("groups", "layers", "hidden"),
    "final_in": ("groups",),
    "final_in_channels": ("dim",),
    "final_in_mean": ("groups", "dim"),
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
