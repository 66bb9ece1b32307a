"""Extrapolation of a reused token from the values that it had when it was last computed."""

from __future__ import annotations

import numpy as np

from disc.config import NumberConfig
from disc.tables import DISTANCE_BITS, RATIO_BITS
from golden.integer.rounding import Int, require_range, round_shift, saturate


def forecast(
    last: Int, before: Int, since: Int, apart: Int, table: Int, number: NumberConfig
) -> Int:
    """Continue the line through the last two computed values, or hold the last.

    `saturate(last + round_shift((last - before) * (since * table[apart]), RATIO_BITS))`

    Parameters
    ----------
    last, before
        [rows, D] signed `residual_bits`: branch sums when the token was last computed and the
        time before.
    since
        [rows], steps since it was last computed, 1 .. 63.
    apart
        [rows], steps between the two computations, 1 .. 63; 0 where there is one value only
        or the order is 0, which holds it.
    table
        `disc.tables.step_ratio_table`.
    """
    if last.shape != before.shape or last.ndim != 2:
        raise ValueError(f"last, before: want two of [rows, D], got {last.shape}, {before.shape}")
    for name, steps in (("since", since), ("apart", apart)):
        if steps.shape != last.shape[:1]:
            raise ValueError(f"{name}: want [{len(last)}], got {steps.shape}")
        require_range(name, steps, DISTANCE_BITS, signed=False)
    require_range("last", last, number.residual_bits)
    require_range("before", before, number.residual_bits)
    ratio = since * np.asarray(table, dtype=np.int64)[apart]
    step = round_shift((last - before) * ratio[:, None], RATIO_BITS)
    return saturate(last + step, number.residual_bits)
