"""Arrays into and out of the simulator process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["INPUTS", "OUTPUTS", "inputs", "load", "outputs", "save"]

INPUTS, OUTPUTS = "DISC_SIM_INPUTS", "DISC_SIM_OUTPUTS"


def save(path: Path, values: Mapping[str, Any]) -> None:
    """Write arrays, numbers and strings to an .npz file.

    Raises
    ------
    TypeError
        A value is none of these.
    """
    arrays = {name: np.asarray(value) for name, value in values.items()}
    for name, array in arrays.items():
        if array.dtype == object:
            raise TypeError(f"{name}: must be an array, number or string, got {values[name]!r}")
    np.savez(path, **arrays)


def load(path: Path) -> dict[str, Any]:
    """Read what `save` wrote; numbers and strings come back as such."""
    if not path.is_file():
        return {}
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    return {name: array if array.ndim else array.item() for name, array in arrays.items()}


def inputs() -> dict[str, Any]:
    """Inside a cocotb test: what the caller of `run` passed as `inputs`."""
    return load(Path(os.environ[INPUTS]))


def outputs(**values: Any) -> None:
    """Inside a cocotb test: hand results to the caller of `run`; several calls add up."""
    path = Path(os.environ[OUTPUTS])
    save(path, load(path) | values)
