"""Steps of rows whose banks need not wait for each other after every row.

All take bank loads [..., R, B], kept columns of each bank in each row, in the order in which the
rows are walked, and give steps [...] of all rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sim_models.banking import window_loads

Loads = NDArray[np.int64]


def block_steps(loads: Loads, window: int) -> NDArray[np.int64]:
    """All banks wait for each other after every `window` rows."""
    return window_loads(loads, window).max(axis=-1).sum(axis=-1)


def sliding_steps(loads: Loads, window: int) -> NDArray[np.int64]:
    """A bank may begin a row when all banks are done with the row `window` rows before.

    The same memory as blocks of `window` rows, without a wait at their ends.
    """
    if window < 1:
        raise ValueError(f"window: must be at least 1 row, got {window}")
    rows = loads.shape[-2]
    done = np.zeros((rows + window, *loads.shape[:-2]), dtype=np.int64)
    free = np.zeros_like(loads[..., 0, :])
    for row in range(rows):
        free = np.maximum(free, done[row][..., None]) + loads[..., row, :]
        done[row + window] = free.max(axis=-1)
    return done[-1]


def word_steps(loads: Loads, window: int, words: int) -> NDArray[np.float64]:
    """Run-ahead of axpy with few accumulators: over `window` words of results, not rows.

    Axpy goes through a row's columns once for each of its `words` words, so a bank that is ahead
    stays with the same row's loads.  In steps of one word.
    """
    return sliding_steps(np.repeat(loads, words, axis=-2), window) / words


def beside_steps(loads: Loads, *, beats: int | None = None) -> NDArray[np.float64]:
    """Dot of a row beside the axpy of the row before: each bank goes from one to the other.

    In steps of one word and half of dot and axpy: comparable with the others' steps.  The rows'
    first dot and last axpy stand alone.

    Parameters
    ----------
    loads
        As above.
    beats
        Words of a row.  All banks begin a word of axpy together; what a bank has left of the time
        that it takes goes to whole columns of dot.  None: as if a row had one word.
    """
    before, after = loads[..., :-1, :], loads[..., 1:, :]
    if beats is None:
        pairs = (before + after).max(axis=-1).sum(axis=-1)
    else:
        # Every word takes the same time, so that a bank finishes ceil(columns / beats) in each.
        pairs = (before + beats * -(-after // beats)).max(axis=-1).sum(axis=-1)
        apart = (before.max(axis=-1) + after.max(axis=-1)).sum(axis=-1)
        pairs = np.minimum(pairs, apart)
    alone = loads[..., 0, :].max(axis=-1) + loads[..., -1, :].max(axis=-1)
    return (pairs + alone) / 2


# -- orders of rows ----------------------------------------------------------------------------


def raster(loads: Loads) -> NDArray[np.int64]:
    """Rows as they are: [R] tokens."""
    return np.arange(loads.shape[-2])


def squares(loads: Loads, edge: int = 4) -> NDArray[np.int64]:
    """Squares of `edge` x `edge` tokens of a square image, one after the other."""
    side = int(np.sqrt(loads.shape[-2]))
    if side * side != loads.shape[-2] or side % edge:
        raise ValueError(
            f"loads: rows must be a square image of a multiple of {edge} tokens a side, "
            f"got {loads.shape[-2]} rows"
        )
    y, x = np.divmod(np.arange(side * side), side)
    return np.lexsort((x, y, x // edge, y // edge))


def far(loads: Loads) -> NDArray[np.int64]:
    """Rows that follow each other are half the image apart, then a quarter: bit reversal."""
    rows = loads.shape[-2]
    bits = (rows - 1).bit_length()
    token = np.arange(1 << bits)
    reversed_ = sum(((token >> k) & 1) << (bits - 1 - k) for k in range(bits))
    return reversed_[reversed_ < rows]


def by_steps(loads: Loads) -> NDArray[np.int64]:
    """Rows by falling steps: [..., R], an order for each head."""
    return np.argsort(-loads.max(axis=-1), axis=-1, kind="stable")


def complements(loads: Loads) -> NDArray[np.int64]:
    """Pairs of rows that fill each other's banks, greedily: [..., R], an order for each head.

    The longest row left takes the row with which it needs the fewest steps beyond that row's own.
    """
    heads = loads.reshape(-1, *loads.shape[-2:]).astype(np.int32)
    orders = np.empty(heads.shape[:2], dtype=np.int64)
    for head, order in zip(heads, orders, strict=True):
        longest = head.max(axis=-1)
        left = np.argsort(-longest, kind="stable")
        for place in range(0, len(left) - 1, 2):
            one, others = left[0], left[1:]
            best = np.argmin((head[one] + head[others]).max(axis=-1) - longest[others])
            order[place], order[place + 1] = one, others[best]
            left = np.delete(others, best)
        if len(left):
            order[-1] = left[0]
    return orders.reshape(loads.shape[:-1])


ORDERS: dict[str, Callable[[Loads], NDArray[np.int64]]] = {
    "raster": raster,
    "squares": squares,
    "far": far,
    "by steps": by_steps,
    "complements": complements,
}


def reorder(loads: Loads, order: NDArray[np.int64]) -> Loads:
    """Put rows in order: [R], or [..., R] for each head its own."""
    if order.ndim == 1:
        return loads[..., order, :]
    return np.take_along_axis(loads, order[..., None], axis=-2)
