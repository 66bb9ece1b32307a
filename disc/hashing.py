"""Column-to-bank hashes: which bank holds key column j, and where in that bank.

A row of the fused operation costs as many cycles as the *fullest* bank has kept columns, so the
hash decides how well dense engines do on sparse masks.  The hardware's hash is linear over
GF(2): with `lo` the low log2(B) bits of j and `hi` the remaining ones,

    bank = lo XOR H * hi        local address = hi

which is one XOR tree per bank bit, a bijection for every H, and its own inverse.  The papers
compare hash functions for load balance (arXiv 2605.25798, figures 13 and 15) without naming
them; this family, its presets and the search are choices of this project.

`bank_assignment` adds assignments that are not of this form, for comparison in software.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

MAX_BANK_BITS = 16
MAX_LOCAL_BITS = 32

AssignmentName = Literal["contiguous", "modulo", "xor-fold", "multiplicative", "random", "searched"]
ASSIGNMENTS: tuple[AssignmentName, ...] = get_args(AssignmentName)

_GOLDEN_RATIO_32 = 0x9E3779B9  # 2**32 / golden ratio, odd: Fibonacci hashing


def _bank_bits(banks: int) -> int:
    if banks < 2 or banks & (banks - 1) or banks > 1 << MAX_BANK_BITS:
        raise ValueError(
            f"banks: must be a power of two from 2 to {1 << MAX_BANK_BITS}, got {banks}"
        )
    return banks.bit_length() - 1


def local_bits_for(columns: int, banks: int) -> int:
    """Return the bits of the local index that `columns` columns in `banks` banks need, >= 1."""
    _bank_bits(banks)
    if columns < 1:
        raise ValueError(f"columns: must be at least 1, got {columns}")
    return max(1, (-(-columns // banks) - 1).bit_length())


@dataclass(frozen=True)
class BankHash:
    """A GF(2) hash of columns to banks.

    Parameters
    ----------
    bank_bits
        log2(B), 1 to 16.
    local_bits
        Bits of the local index `hi`, 1 to 32.
    rows
        H, one bit mask for each bank bit: bank bit r is bit r of j, XOR the parity of
        `hi & rows[r]`.
    """

    bank_bits: int
    local_bits: int
    rows: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 1 <= self.bank_bits <= MAX_BANK_BITS:
            raise ValueError(f"bank_bits: must be 1 to {MAX_BANK_BITS}, got {self.bank_bits}")
        if not 1 <= self.local_bits <= MAX_LOCAL_BITS:
            raise ValueError(f"local_bits: must be 1 to {MAX_LOCAL_BITS}, got {self.local_bits}")
        if len(self.rows) != self.bank_bits:
            raise ValueError(
                f"rows: must have one entry for each of {self.bank_bits} bank bits, "
                f"got {len(self.rows)}"
            )
        for r, row in enumerate(self.rows):
            if not 0 <= row < 1 << self.local_bits:
                raise ValueError(
                    f"rows[{r}]: must be 0 to {(1 << self.local_bits) - 1:#x} "
                    f"({self.local_bits} local bits), got {row:#x}"
                )

    # -- named constructors --------------------------------------------------------------------

    @classmethod
    def modulo(cls, banks: int, local_bits: int) -> BankHash:
        """H = 0: bank = j mod B.  Aliases vertical neighbours of a power-of-two-wide image."""
        bank_bits = _bank_bits(banks)
        return cls(bank_bits, local_bits, (0,) * bank_bits)

    @classmethod
    def xor_fold(cls, banks: int, local_bits: int) -> BankHash:
        """XOR of all log2(B)-bit chunks of j.  On an image B tokens wide this is x XOR y."""
        bank_bits = _bank_bits(banks)
        rows = tuple(sum(1 << k for k in range(r, local_bits, bank_bits)) for r in range(bank_bits))
        return cls(bank_bits, local_bits, rows)

    @classmethod
    def random_gf2(cls, banks: int, local_bits: int, *, seed: int) -> BankHash:
        """Every entry of H by a fair coin."""
        bank_bits = _bank_bits(banks)
        flips = np.random.default_rng(seed).integers(0, banks, local_bits)
        return cls._from_flips(bank_bits, flips.tolist())

    @classmethod
    def _from_flips(cls, bank_bits: int, flips: Sequence[int]) -> BankHash:
        """Build from H's columns: `flips[k]` is what bit k of `hi` XORs into the bank."""
        rows = tuple(
            sum(((flip >> r) & 1) << k for k, flip in enumerate(flips)) for r in range(bank_bits)
        )
        return cls(bank_bits, len(flips), rows)

    # -- text and JSON -------------------------------------------------------------------------

    def __str__(self) -> str:
        return ",".join(f"{row:#x}" for row in self.rows)

    @classmethod
    def parse(cls, text: str, local_bits: int) -> BankHash:
        """Read what `str` prints: H's rows from bank bit 0 up, as in `0x3,0x5`."""
        try:
            rows = tuple(int(item.strip(), 0) for item in text.split(","))
        except ValueError:
            raise ValueError(
                f"rows: must be comma-separated integers such as '0x3,0x5', got {text!r}"
            ) from None
        return cls(len(rows), local_bits, rows)

    def to_json(self) -> dict[str, Any]:
        """Return a mapping of plain integers and lists; `from_json` restores the hash."""
        return {
            "bank_bits": self.bank_bits,
            "local_bits": self.local_bits,
            "rows": list(self.rows),
        }

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> BankHash:
        """Restore a hash from `to_json`'s mapping."""
        expected = {"bank_bits", "local_bits", "rows"}
        if set(fields) != expected:
            raise ValueError(f"hash: must have the fields {sorted(expected)}, got {sorted(fields)}")
        return cls(int(fields["bank_bits"]), int(fields["local_bits"]), tuple(fields["rows"]))

    # -- the mapping ---------------------------------------------------------------------------

    @property
    def banks(self) -> int:
        """B."""
        return 1 << self.bank_bits

    @property
    def max_columns(self) -> int:
        """Columns that the hash can tell apart: B * 2**local_bits."""
        return 1 << (self.bank_bits + self.local_bits)

    def columns_per_bank(self, columns: int) -> int:
        """Return the slots that `columns` columns take in each bank, ceil(columns / B)."""
        if not 1 <= columns <= self.max_columns:
            raise ValueError(f"columns: must be 1 to {self.max_columns}, got {columns}")
        return -(-columns // self.banks)

    def _flip(self, hi: NDArray[np.int64]) -> NDArray[np.int64]:
        """H * hi: what the local index XORs into the bank."""
        out = np.zeros_like(hi)
        for r, row in enumerate(self.rows):
            parity = (np.bitwise_count(hi & row) & 1).astype(np.int64)
            out |= parity << r
        return out

    def bank(self, j: ArrayLike) -> NDArray[np.int64]:
        """Return the bank of each column index."""
        j = _checked(j, "column", self.max_columns)
        return (j & (self.banks - 1)) ^ self._flip(j >> self.bank_bits)

    def local(self, j: ArrayLike) -> NDArray[np.int64]:
        """Return each column's index inside its bank."""
        return _checked(j, "column", self.max_columns) >> self.bank_bits

    def column(self, bank: ArrayLike, local: ArrayLike) -> NDArray[np.int64]:
        """Return the column in a slot: the inverse of `bank` and `local`."""
        bank = _checked(bank, "bank", self.banks)
        local = _checked(local, "local", 1 << self.local_bits)
        return (local << self.bank_bits) | (bank ^ self._flip(local))

    def _slots(self, columns: int) -> NDArray[np.int64]:
        """Column in each slot [B, ceil(columns / B)]; in the last group some are >= columns."""
        local = np.arange(self.columns_per_bank(columns))
        return self.column(np.arange(self.banks)[:, None], local[None, :])

    def to_bank_order(self, bits: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Reorder flags from column order [..., N] to bank order [..., B, ceil(N / B)].

        Slots whose column is N or more read as False.
        """
        bits = np.asarray(bits, dtype=bool)
        slots = self._slots(bits.shape[-1])
        padded = np.zeros((*bits.shape[:-1], slots.size), dtype=bool)
        padded[..., : bits.shape[-1]] = bits
        return padded[..., slots]

    def from_bank_order(self, bits: NDArray[np.bool_], columns: int) -> NDArray[np.bool_]:
        """Undo `to_bank_order`: flags [..., B, ceil(N / B)] to [..., N], N = `columns`."""
        bits = np.asarray(bits, dtype=bool)
        expected = (self.banks, self.columns_per_bank(columns))
        if bits.shape[-2:] != expected:
            raise ValueError(
                f"bits: must have shape [..., {expected[0]}, {expected[1]}] for "
                f"{columns} columns, got {list(bits.shape)}"
            )
        j = np.arange(columns)
        return bits[..., self.bank(j), self.local(j)]


def _checked(values: ArrayLike, field: str, end: int) -> NDArray[np.int64]:
    array = np.asarray(values, dtype=np.int64)
    if array.size and (array.min() < 0 or array.max() >= end):
        raise ValueError(
            f"{field}: must be 0 to {end - 1}, got values from {array.min()} to {array.max()}"
        )
    return array


# -- assignments, hashed or not ----------------------------------------------------------------


def bank_assignment(
    name: str, columns: int, banks: int, *, seed: int = 0, searched: BankHash | None = None
) -> NDArray[np.int64]:
    """Return the bank of each of `columns` columns under a named assignment.

    Parameters
    ----------
    name
        One of `ASSIGNMENTS`: `contiguous` (blocks of neighbours), `modulo`, `xor-fold`,
        `multiplicative` (Fibonacci: the top bits of j * 2**32 / phi; not balanced for few columns
        a bank), `random` (a random balanced permutation) or `searched`.
    seed
        Of `random`.
    searched
        The hash of `searched`, with `banks` banks.
    """
    local_bits = local_bits_for(columns, banks)
    j = np.arange(columns, dtype=np.int64)
    match name:
        case "contiguous":
            return j * banks // columns
        case "modulo":
            return BankHash.modulo(banks, local_bits).bank(j)
        case "xor-fold":
            return BankHash.xor_fold(banks, local_bits).bank(j)
        case "multiplicative":
            return (j * _GOLDEN_RATIO_32 & 0xFFFFFFFF) >> (32 - _bank_bits(banks))
        case "random":
            return np.random.default_rng(seed).permutation(columns).astype(np.int64) % banks
        case "searched":
            if searched is None or searched.banks != banks:
                raise ValueError(f"searched: must be a hash of {banks} banks, got {searched!r}")
            return searched.bank(j)
    raise ValueError(f"name: must be one of {', '.join(ASSIGNMENTS)}, got {name!r}")


def bank_loads(
    masks: NDArray[np.bool_], assignment: NDArray[np.int64], banks: int
) -> NDArray[np.int64]:
    """Count kept columns per bank: masks [..., N], assignment [N] to loads [..., B]."""
    masks = np.asarray(masks, dtype=bool)
    columns = masks.shape[-1]
    if assignment.shape != (columns,):
        raise ValueError(
            f"assignment: must have one bank for each of {columns} columns, "
            f"got shape {list(assignment.shape)}"
        )
    _checked(assignment, "assignment", banks)
    # A product with a one-hot matrix is the fastest count NumPy has; float32 is exact to 2**24.
    one_hot = np.zeros((columns, banks), dtype=np.float32)
    one_hot[np.arange(columns), assignment] = 1
    flat = masks.reshape(-1, columns)
    loads = np.empty((len(flat), banks), dtype=np.int64)
    step = max(1, (1 << 24) // columns)  # bounds the float copy at 64 MiB
    for start in range(0, len(flat), step):
        loads[start : start + step] = flat[start : start + step].astype(np.float32) @ one_hot
    return loads.reshape(*masks.shape[:-1], banks)


def total_fullest(masks: NDArray[np.bool_], assignment: NDArray[np.int64], banks: int) -> int:
    """Sum over rows of the fullest bank's kept columns: cycles of a one-word-a-column engine."""
    return int(bank_loads(masks, assignment, banks).max(axis=-1).sum())


# -- search ------------------------------------------------------------------------------------


def search(
    masks: NDArray[np.bool_],
    banks: int,
    local_bits: int,
    *,
    seed: int = 0,
    restarts: int = 16,
    max_rows: int = 8192,
    progress: Callable[[int, int], None] | None = None,
) -> BankHash:
    """Find an H that keeps the fullest bank low on given masks.

    Coordinate descent: bit k of the local index XORs one log2(B)-bit value into the bank, a
    column of H.  Given the others, the best value for one such column (or, for B up to 16, for a
    pair of them) is found exactly, by trying all; repeat until nothing improves.  Starts are
    modulo, XOR-fold and random matrices; the best local optimum wins.

    Parameters
    ----------
    masks
        Kept columns, bool [..., rows, N], N <= banks * 2**local_bits.
    restarts
        Random starts, beside modulo and XOR-fold.
    max_rows
        More rows than this are thinned out by drawing without replacement (by `seed`).  The
        candidates are compared, and modulo and XOR-fold with them, on all rows.
    progress
        Called with (starts done, starts in all).

    Returns
    -------
    BankHash
        Never worse in `total_fullest` on `masks` than modulo or XOR-fold.  Equal arguments give
        equal results.
    """
    bank_bits = _bank_bits(banks)
    masks = np.asarray(masks, dtype=bool)
    columns = masks.shape[-1]
    if masks.ndim < 2 or not masks.size:
        raise ValueError(f"masks: must be [..., rows, N], not empty, got {list(masks.shape)}")
    if columns > banks << local_bits:
        raise ValueError(
            f"masks: must have at most banks * 2**local_bits = {banks << local_bits} columns, "
            f"got {columns}"
        )
    if restarts < 0 or max_rows < 1:
        raise ValueError(
            f"restarts: must be at least 0 and max_rows at least 1, got {restarts} and {max_rows}"
        )
    rng = np.random.default_rng(seed)
    rows = masks.reshape(-1, columns)
    sample = rows
    if len(rows) > max_rows:
        sample = rows[np.sort(rng.choice(len(rows), max_rows, replace=False))]
    descent = _Descent(sample, banks)

    presets = [BankHash.modulo(banks, local_bits), BankHash.xor_fold(banks, local_bits)]
    starts = [_flips(hash_) for hash_ in presets]
    starts += rng.integers(0, banks, (restarts, local_bits)).tolist()
    candidates = list(presets)
    for done, start in enumerate(starts, 1):
        candidates.append(BankHash._from_flips(bank_bits, descent.run(start)))
        if progress is not None:
            progress(done, len(starts))
    j = np.arange(columns)
    unique = list(dict.fromkeys(candidates))
    return min(unique, key=lambda hash_: total_fullest(rows, hash_.bank(j), banks))


def _flips(hash_: BankHash) -> list[int]:
    """H's columns: what each bit of the local index XORs into the bank."""
    return hash_._flip(1 << np.arange(hash_.local_bits)).tolist()


class _Descent:
    """Local search over H's columns on rows bool [R, N]."""

    def __init__(self, rows: NDArray[np.bool_], banks: int) -> None:
        count, columns = rows.shape
        groups = -(-columns // banks)
        # Small counts add faster; a load is at most one column from each group.
        dtype = np.uint16 if groups < 1 << 16 else np.uint32
        padded = np.zeros((count, groups * banks), dtype=dtype)
        padded[:, :columns] = rows
        # [group, lo, row]: rows contiguous, so that every step below is a long vector addition.
        self.bits = np.ascontiguousarray(padded.T.reshape(groups, banks, count))
        self.banks = banks
        self.active_bits = (groups - 1).bit_length()  # higher bits of `hi` are always 0
        self.order = np.arange(banks)

    def run(self, start: Sequence[int]) -> list[int]:
        flips = list(start)
        cost = self._sweep_to_rest(flips, 1)
        if self.banks <= 16:  # banks**2 trials for each pair
            cost = self._sweep_to_rest(flips, 2, cost)
        return flips

    def _sweep_to_rest(self, flips: list[int], width: int, cost: int | None = None) -> int:
        """Improve `flips` in place until no move of `width` columns of H helps; return the cost."""
        best = cost if cost is not None else 1 << 62
        while True:
            before = best
            for k in range(self.active_bits):
                if width == 1:
                    best = self._best_single(flips, k, best)
                else:
                    for other in range(k):
                        best = self._best_pair(flips, k, other, best)
            if best == before:
                return best

    def _partial(
        self, flips: Sequence[int], bits: Mapping[int, int]
    ) -> NDArray[np.unsignedinteger]:
        """Loads [B, R] from the groups whose index has the given value in each bit of `bits`."""
        loads = np.zeros(self.bits.shape[1:], dtype=self.bits.dtype)
        for group in range(len(self.bits)):
            if all(group >> k & 1 == value for k, value in bits.items()):
                flip = 0
                for k in range(self.active_bits):
                    flip ^= flips[k] if group >> k & 1 else 0
                loads += self.bits[group][self.order ^ flip]
        return loads

    def _best_single(self, flips: list[int], k: int, best: int) -> int:
        rest = flips.copy()
        rest[k] = 0
        fixed, moved = self._partial(rest, {k: 0}), self._partial(rest, {k: 1})
        for flip in range(self.banks):
            cost = _cost(fixed, moved[self.order ^ flip])
            if cost < best:
                best, flips[k] = cost, flip
        return best

    def _best_pair(self, flips: list[int], k: int, other: int, best: int) -> int:
        rest = flips.copy()
        rest[k] = rest[other] = 0
        neither, first, second, both = (
            self._partial(rest, {k: bit, other: bit_other})
            for bit, bit_other in ((0, 0), (1, 0), (0, 1), (1, 1))
        )
        for flip in range(self.banks):
            permuted = self.order ^ flip
            fixed, moved = neither + first[permuted], second + both[permuted]
            for flip_other in range(self.banks):
                cost = _cost(fixed, moved[self.order ^ flip_other])
                if cost < best:
                    best = cost
                    flips[k], flips[other] = flip, flip_other
        return best


def _cost(fixed: NDArray[np.unsignedinteger], moved: NDArray[np.unsignedinteger]) -> int:
    return int((fixed + moved).max(axis=0).sum(dtype=np.int64))
