"""The only two places where the integer core loses information: rounding and saturation."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Int = NDArray[np.int64]


def round_shift(x: ArrayLike, shift: ArrayLike) -> Int:
    """Divide by 2**shift, rounding to nearest and halves towards +infinity.

    Parameters
    ----------
    x
        Integers in [-2**62, 2**62).
    shift
        Integers in [0, 63], broadcast against `x`.
    """
    x = np.asarray(x, dtype=np.int64)
    shift = np.asarray(shift, dtype=np.int64)
    if np.any(shift < 0) or np.any(shift > 63):
        raise ValueError(f"shift: must be in [0, 63], got [{shift.min()}, {shift.max()}]")
    # Half of 2**shift; 2**63 itself does not fit.
    half = np.where(shift > 0, np.int64(1) << np.maximum(shift - 1, 0), 0)
    return (x + half) >> shift


def saturate(x: ArrayLike, bits: int) -> Int:
    """Clamp to the range of a signed integer of `bits` bits."""
    limit = 1 << (bits - 1)
    return np.clip(np.asarray(x, dtype=np.int64), -limit, limit - 1)


def floor_log2(x: ArrayLike) -> Int:
    """Return the position of the highest set bit, `floor(log2(x))`, for integers in [1, 2**63)."""
    x = np.asarray(x, dtype=np.int64)
    # Below 2**32 a float64 holds the integer itself, so that frexp's exponent is exact.
    high = x >> 32
    top = np.where(high > 0, high, x)
    return np.frexp(top.astype(np.float64))[1].astype(np.int64) - 1 + np.where(high > 0, 32, 0)


def require_range(name: str, x: Int, bits: int, *, signed: bool = True) -> None:
    """Raise ValueError that names the operand if a value does not fit in `bits` bits."""
    if not x.size:
        return
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    if int(x.min()) < low or int(x.max()) > high:
        raise ValueError(
            f"{name}: values must be in [{low}, {high}], got [{int(x.min())}, {int(x.max())}]"
        )
