"""Masks whose banks are even by construction, and how much probability they keep for their steps.

A row takes as many steps as its fullest bank keeps columns, so columns kept beyond the threshold
in the other banks are free.  A mask maker here is two choices: a *quota*, the steps that a row
gets, and an *order* in which each bank fills its quota.  In an exact order that is by probability,
so that a bank keeps its `quota` most probable columns; hardware takes a coarser one.

Plain thresholding keeps the most mass (sum of kept probabilities over all rows) that so many
entries can, and is what everything is compared with: utilisation *at equal mass* is the entries
that a plain mask of the same mass keeps, over B times the steps.  On plain masks it is kept columns
over B times those of the fullest bank, as in `sim_models.banking`.

Shapes: R rows, N columns, B banks, G = N / B columns a bank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from disc.hashing import BankHash

Scalar = TypeVar("Scalar", bound=np.generic)

MAKERS = ("plain", "fill up", "even", "by layer", "uniform")
"""Exact makers.  Quotas, with c the columns of a row that reach the threshold, of any bank:
plain, fill up: c of the fullest bank; even: ceil(c of all banks / B); by layer: as many layers as
reach B times the threshold, where a layer is the k-th best column of every bank, which no other
quota beats; uniform: the same for all rows."""


def in_banks(values: NDArray[Scalar], hash_: BankHash) -> NDArray[Scalar]:
    """Reorder columns to bank order: [..., N] to [..., B, G]."""
    columns = values.shape[-1]
    if columns % hash_.banks:
        raise ValueError(
            f"values: columns must be a multiple of {hash_.banks} banks, got {columns}"
        )
    local = np.arange(columns // hash_.banks)
    return values[..., hash_.column(np.arange(hash_.banks)[:, None], local[None, :])]


def own_first(
    p: NDArray[np.float32], rows: NDArray[np.int64], value: float = 2.0
) -> NDArray[np.float32]:
    """Return p [..., R, N] with each row's own column at `value`, ahead of all: it is always kept.

    `rows` [R] are the rows' tokens.
    """
    marked = p.copy()
    marked[..., np.arange(len(rows)), rows] = value
    return marked


@dataclass(frozen=True, eq=False)
class SortedBanks:
    """Rows with every bank's columns by falling probability, the own column first."""

    marked: NDArray[np.float32]
    """[R, B, G], own column 2.0, in bank order; not sorted."""
    layers: NDArray[np.float64]
    """[R, G + 1]: mass of the k best columns of every bank, summed over banks."""
    own: NDArray[np.float32]
    """[R], probability of the own column."""

    @classmethod
    def of(cls, p: NDArray[np.float32], rows: NDArray[np.int64], hash_: BankHash) -> SortedBanks:
        """Sort probabilities [..., R, N] of the tokens `rows` [R]."""
        own = p[..., np.arange(len(rows)), rows].reshape(-1)
        marked = in_banks(own_first(p, rows), hash_).reshape(
            -1, hash_.banks, p.shape[-1] // hash_.banks
        )
        falling = -np.sort(-marked, axis=-1)
        first = falling[..., 0]
        first[...] = np.where(first > 1.5, own[:, None], first)
        layers = np.zeros((len(marked), marked.shape[-1] + 1))
        np.cumsum(falling.sum(axis=1, dtype=np.float64), axis=1, out=layers[:, 1:])
        return cls(marked, layers, own)

    def counts(self, threshold: float) -> NDArray[np.int64]:
        """Columns of each bank [R, B] that reach the threshold, own ones included."""
        return (self.marked >= np.float32(threshold)).sum(axis=-1)

    def quota(self, maker: str, threshold: float) -> NDArray[np.int64]:
        """Steps of each row [R] that a maker gives at a threshold, at least 1."""
        banks = self.marked.shape[1]
        match maker:
            case "plain" | "fill up":
                return self.counts(threshold).max(axis=1)
            case "even":
                return -(-self.counts(threshold).sum(axis=1) // banks)
            case "by layer":
                return np.maximum(
                    (np.diff(self.layers, axis=1) >= banks * threshold).sum(axis=1), 1
                )
            case "uniform":
                mean = self.counts(threshold).sum(axis=1).mean() / banks
                return np.full(len(self.own), max(1, round(mean)))
        raise ValueError(f"maker: must be one of {', '.join(MAKERS)}, got {maker!r}")

    def mass(self, quota: NDArray[np.int64]) -> NDArray[np.float64]:
        """Probability [R] kept if each bank keeps its best `quota` [R] columns."""
        return self.layers[np.arange(len(quota)), quota]

    def plain_mass(self, threshold: float) -> float:
        """Probability kept by plain thresholding, own columns included, over all rows."""
        return float(self.own.sum(dtype=np.float64)) + float(
            self.marked[(self.marked >= np.float32(threshold)) & (self.marked < 1.5)].sum(
                dtype=np.float64
            )
        )


def numerators(p: NDArray[np.float32], bits: int = 10) -> NDArray[np.int32]:
    """Softmax numerators [..., N] as the engine has them, but for the score's rounding.

    Relative to the row's maximum, rounded up to a power of two.
    """
    top = np.exp2(np.ceil(np.log2(p.max(axis=-1, keepdims=True))))
    return np.minimum(np.floor(p / top * (1 << bits) + 0.5), (1 << bits) - 1).astype(np.int32)


def bins(e: NDArray[np.int32], fraction_bits: int) -> NDArray[np.int32]:
    """Bin of a numerator: its leading one's position and `fraction_bits` bits behind; 0 for 0.

    Hardware: a priority encoder and a shifter.  2**fraction_bits bins an octave.
    """
    position = np.frexp(e.astype(np.float32))[1] - 1
    behind = (e << fraction_bits) >> np.maximum(position, 0)
    return np.where(e > 0, (position << fraction_bits) + behind - (1 << fraction_bits) + 1, 0)


def keep_best(order: NDArray[np.int32], quota: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Keep in each bank the `quota` [R] columns of highest order [R, B, G], the first among equals.

    Columns of order 0 are never kept.
    """
    columns = order.shape[-1]
    key = order.astype(np.int32) * columns + np.arange(columns - 1, -1, -1, dtype=np.int32)
    last = np.minimum(quota, columns)
    rising = np.sort(key, axis=-1)
    least = np.take_along_axis(rising, (columns - last)[:, None, None], axis=-1)
    return (key >= least) & (order > 0)


def fill_in_passes(
    e: NDArray[np.int32],
    own: NDArray[np.bool_],
    least: NDArray[np.int64],
    passes: int,
) -> NDArray[np.bool_]:
    """Fill up with columns at half the threshold, then at a quarter, one pass over the row each.

    Parameters
    ----------
    e
        Numerators in bank order [R, B, G].
    own
        The own column, likewise.
    least
        Least numerator to be kept [R].
    passes
        Passes beyond that of the plain mask.
    """
    order = np.zeros_like(e)
    for halvings in range(passes, -1, -1):
        order[e >= np.maximum(least >> halvings, 1)[:, None, None]] = passes + 1 - halvings
    order[own] = passes + 1
    return keep_best(order, (order == passes + 1).sum(axis=-1).max(axis=-1))


def even_by_bins(
    e: NDArray[np.int32], own: NDArray[np.bool_], least: NDArray[np.int64], fraction_bits: int
) -> NDArray[np.bool_]:
    """Even masks whose banks fill their quota bin by bin, by local index within the last bin.

    The quota is ceil(columns that reach the threshold / B), as in "even".  Arguments as
    `fill_in_passes`.
    """
    order = bins(e, fraction_bits)
    above = (e >= np.maximum(least, 1)[:, None, None]) | own
    order[own] = order.max() + 1
    return keep_best(order, -(-above.sum(axis=(-2, -1)) // e.shape[1]))


HARDWARE = ("filled in 1 pass", "filled in 2 passes", "even, 1 bin", "even, 2 bins", "even, 4 bins")
"""Makers on numerators of 10 bits: passes beyond that of the plain mask, or bins an octave."""


def hardware_mask(
    maker: str, e: NDArray[np.int32], own: NDArray[np.bool_], threshold: float
) -> NDArray[np.bool_]:
    """Mask of a maker of `HARDWARE`; numerators and own column in bank order [R, B, G]."""
    least = np.ceil(threshold * e.sum(axis=(-2, -1))).astype(np.int32)
    if maker not in HARDWARE:
        raise ValueError(f"maker: must be one of {', '.join(HARDWARE)}, got {maker!r}")
    number = int(maker.split()[-2])
    if maker.startswith("filled"):
        return fill_in_passes(e, own, least, number)
    return even_by_bins(e, own, least, number.bit_length() - 1)


def make_mask(
    maker: str,
    p: NDArray[np.float32],
    rows: NDArray[np.int64],
    hash_: BankHash,
    threshold: float,
) -> NDArray[np.bool_]:
    """Mask [..., R, N] of any maker, of probabilities p [..., R, N] of the tokens `rows` [R]."""
    marked = in_banks(own_first(p, rows), hash_).reshape(
        -1, hash_.banks, p.shape[-1] // hash_.banks
    )
    if maker == "plain":
        mask = marked >= np.float32(threshold)
    elif maker in HARDWARE:
        own = marked > 1.5
        own_p = p[..., np.arange(len(rows)), rows].reshape(-1)
        e = numerators(np.where(own, own_p[:, None, None], marked).reshape(len(marked), -1))
        mask = hardware_mask(maker, e.reshape(marked.shape), own, threshold)
    else:
        last = SortedBanks.of(p, rows, hash_).quota(maker, threshold) - 1
        best = np.sort(marked, axis=-1)[..., ::-1]
        mask = marked >= np.take_along_axis(best, last[:, None, None], axis=-1)
    columns = p.shape[-1]
    return hash_.from_bank_order(mask, columns).reshape(p.shape)
