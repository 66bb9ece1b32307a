"""Matrix products of integers by floating-point BLAS, where that is exact.

NumPy multiplies integer matrices without BLAS, some hundred times slower.  Products and sums of
integers are exact in float as long as no partial sum can reach 2**24 (float32) or 2**53
(float64), in whatever order they are added.
"""

from __future__ import annotations

import numpy as np

from golden.integer.rounding import Int


def exact_matmul(a: Int, b: Int) -> Int:
    """Return `a @ b` exactly.

    Parameters
    ----------
    a, b
        Integers [..., n, k] and [..., k, m], or anything else that `@` accepts.

    Raises
    ------
    ValueError
        k times the largest magnitudes is 2**53 or more.
    """
    terms = a.shape[-1]
    bound = _peak(a) * _peak(b) * terms
    if bound >= 1 << 53:
        raise ValueError(f"matmul: sums of {terms} products may reach {bound}, allowed below 2**53")
    kind = np.float32 if bound < 1 << 24 else np.float64
    return (a.astype(kind) @ b.astype(kind)).astype(np.int64)


def _peak(x: Int) -> int:
    return max(int(x.max()), -int(x.min())) if x.size else 0
