"""The mask that a row's numerators make: a threshold, and banks filled up to the fullest one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from disc.hashing import BankHash
from golden.integer.rounding import Int
from golden.integer.softmax import threshold_numerator


def new_mask(
    numerator: Int, total: Int, threshold: int, own: Int | None, fill: BankHash | None = None
) -> NDArray[np.bool_]:
    """Return the mask [rows, columns] of GENERATE.

    Parameters
    ----------
    numerator
        [rows, columns] of a key tile.
    total
        [rows], sums of numerators over all tiles.
    threshold
        As in `FuseCommand`.
    own
        [rows], index in the tile of the column that a row keeps whatever its numerator, outside
        [0, columns) if it is in another tile; None keeps none.
    fill
        Columns to banks: banks are filled up, see `filled`.
    """
    least = threshold_numerator(total, threshold)[:, None]
    keep = numerator >= least
    if own is not None:
        here = np.flatnonzero((own >= 0) & (own < numerator.shape[1]))
        keep[here, own[here]] = True
    return keep if fill is None else filled(keep, numerator >= (least + 1) >> 1, fill)


def filled(keep: NDArray[np.bool_], more: NDArray[np.bool_], hash_: BankHash) -> NDArray[np.bool_]:
    """Add columns to a mask [rows, columns] that cost no step.

    A row takes as many steps as its fullest bank keeps columns.  The other banks add columns of
    `more`, by ascending local index, until they keep as many.
    """
    kept = hash_.to_bank_order(keep)
    spare = hash_.to_bank_order(more) & ~kept
    count = kept.sum(axis=2, keepdims=True)
    spare &= np.cumsum(spare, axis=2) <= count.max(axis=1, keepdims=True) - count
    return hash_.from_bank_order(kept | spare, keep.shape[1])
