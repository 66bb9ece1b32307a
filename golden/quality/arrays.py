"""The checks that all metrics make of their inputs."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

Images = ArrayLike | Tensor
"""Float array or tensor [n, C, px, px]; background 0, full ink `golden.data.glyphs.INK`."""


def as_floats(name: str, values: ArrayLike | Tensor, axes: str) -> NDArray[np.float64]:
    """Copy `values` to float64, checked.

    Args:
        name: of the argument, for messages.
        values: array or tensor of floats.
        axes: their names, for instance "n C px px"; a name that occurs twice is one size.

    Raises:
        ValueError: not floats, another shape, empty, or a value is not finite.
    """
    if isinstance(values, Tensor) and values.is_floating_point():
        values = values.detach().to("cpu", torch.float64).numpy()  # NumPy has no bfloat16
    array = np.asarray(values)
    if not np.issubdtype(array.dtype, np.floating):
        raise ValueError(f"{name}: dtype {array.dtype} is not a float type")
    names = axes.split()
    shape = f"[{', '.join(names)}]"
    sizes = dict(zip(names, array.shape, strict=False))
    if array.ndim != len(names) or tuple(sizes[axis] for axis in names) != array.shape:
        raise ValueError(f"{name}: shape {array.shape} is not {shape}")
    if not array.size:
        raise ValueError(f"{name}: shape {array.shape} has no values")
    bad = array.size - int(np.isfinite(array).sum())
    if bad:
        raise ValueError(f"{name}: {bad} of {array.size} values are NaN or infinite")
    return array.astype(np.float64)


def as_images(name: str, images: Images) -> NDArray[np.float64]:
    """Images float64 [n, C, px, px], checked as `as_floats` does."""
    return as_floats(name, images, "n C px px")


def as_pair(
    name: str, images: Images, reference: Images
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Images and their reference, both float64 [n, C, px, px] and checked.

    Raises:
        ValueError: as `as_floats`, or the shapes differ.
    """
    a, b = as_images(name, images), as_images("reference", reference)
    if a.shape != b.shape:
        raise ValueError(f"{name}: shape {a.shape} differs from that of reference, {b.shape}")
    return a, b


def check_peak(peak: float) -> None:
    """Refuse a peak that is not a positive number.

    Raises:
        ValueError: `peak` is not finite or not above 0.
    """
    if not (np.isfinite(peak) and peak > 0):
        raise ValueError(f"peak: {peak} is not a finite number above 0")
