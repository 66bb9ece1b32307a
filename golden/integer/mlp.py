"""The MLP as the fused operation: columns are hidden units, f is a GELU table.

Column sparsity is that of Activation Concentration (arXiv 2606.00567): a hidden unit is hot iff
its activation exceeds a threshold for any token; the others are not computed and count as 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from disc.config import NumberConfig
from golden.integer.linear import Linear, Requantisation, accumulate, requantise
from golden.integer.rounding import Int, require_range


def look_up(x: Int, table: Int, number: NumberConfig) -> Int:
    """Apply a table of 2**operand_bits entries; entry 0 is that of the most negative input."""
    entries = 1 << number.operand_bits
    if table.shape != (entries,):
        raise ValueError(f"table: want {entries} entries, got shape {table.shape}")
    require_range("x", x, number.operand_bits)
    return table[x + (entries >> 1)]


def hidden_units(
    x: Int,
    up: Linear,
    scale: Requantisation,
    table: Int,
    number: NumberConfig,
    *,
    hot: NDArray[np.bool_] | None = None,
) -> Int:
    """First half of the MLP: dot, requantise, GELU.

    Parameters
    ----------
    x
        [rows, D] signed `operand_bits`.
    up, scale, table
        fc1, its requantisation, and the GELU table for the scales on both sides.
    hot
        [hidden], False for columns that are not computed; None computes all.

    Returns
    -------
    [rows, hidden] signed `operand_bits`, 0 in cold columns.
    """
    hidden = look_up(
        requantise(accumulate(x, up, number), scale, number.operand_bits), table, number
    )
    if hot is None:
        return hidden
    if hot.shape != hidden.shape[1:] or hot.dtype != np.bool_:
        raise ValueError(f"hot: want bool [{hidden.shape[1]}], got {hot.dtype} {hot.shape}")
    return np.where(hot, hidden, 0)


def hot_columns(hidden: Int, threshold: int) -> NDArray[np.bool_]:
    """Return [hidden]: whether any row's magnitude exceeds `threshold`, an integer activation.

    A threshold tau in real units is `floor(tau / scale)` here.
    """
    if hidden.ndim != 2:
        raise ValueError(f"hidden: want [rows, hidden], got {hidden.shape}")
    if threshold < 0:
        raise ValueError(f"threshold: must not be negative, got {threshold}")
    return np.any(np.abs(hidden) > threshold, axis=0, keepdims=True)[0]
