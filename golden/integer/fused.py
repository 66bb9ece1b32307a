"""The fused operation of one attention head: dot, softmax numerators, axpy, normalise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from disc.config import NumberConfig
from disc.hashing import BankHash
from disc.program import FuseCommand, MaskMode
from golden.integer.matmul import exact_matmul
from golden.integer.new_mask import new_mask
from golden.integer.rounding import Int, require_range
from golden.integer.softmax import (
    integer_maximum,
    normalise,
    numerators,
    requantise_score,
)


@dataclass(frozen=True)
class FusedResult:
    """Result of `fused_attention` with what a debugger wants to see on the way."""

    out: Int
    """[rows, d], `operand_bits` signed."""
    mask: NDArray[np.bool_]
    """[rows, columns]: columns kept, or with GENERATE the new mask."""
    score: Int
    """[rows, columns], fixed point in units of log2."""
    maximum: Int
    """[rows], whole units of log2."""
    numerator: Int
    """[rows, columns], 0 where dropped."""
    total: Int
    """[rows], sums of numerators."""
    acc: Int
    """[rows, d], sums of numerator times v."""


def fused_attention(
    q: Int,
    k: Int,
    v: Int,
    command: FuseCommand,
    number: NumberConfig,
    *,
    mask: NDArray[np.bool_] | None = None,
    tokens: Int | None = None,
    hash_: BankHash | None = None,
) -> FusedResult:
    """Execute a `FuseCommand` on tensors.

    Parameters
    ----------
    q
        [rows, d] signed `operand_bits` queries, the selected rows only.
    k, v
        [columns, d] signed `operand_bits`.
    command
        Mode, scales and threshold.  `beats` and the bases say where data lies in hardware; they
        do not change the result.
    number
        Number formats.
    mask
        [rows, columns], needed when the mode is MASKED.
    tokens
        [rows] token index of each row, for the diagonal; 0, 1, ... if left out.
    hash_
        Columns to banks, needed with `fill`.

    Raises
    ------
    ValueError
        A shape, a range or the mask does not fit; the message names the operand.
    """
    q, k, v = (np.asarray(x, dtype=np.int64) for x in (q, k, v))
    if q.ndim != 2 or k.ndim != 2 or k.shape != v.shape or q.shape[1] != k.shape[1]:
        raise ValueError(
            f"q, k, v: want [rows, d], [columns, d], [columns, d], "
            f"got {q.shape}, {k.shape}, {v.shape}"
        )
    for name, operand in (("q", q), ("k", k), ("v", v)):
        require_range(name, operand, number.operand_bits)
    rows, columns = len(q), len(k)
    if command.columns != columns:
        raise ValueError(f"columns: command says {command.columns}, k has {columns}")
    tokens = np.arange(rows) if tokens is None else np.asarray(tokens, dtype=np.int64)
    if tokens.shape != (rows,):
        raise ValueError(f"tokens: want shape ({rows},), got {tokens.shape}")

    keep = np.ones((rows, columns), dtype=bool)
    if command.mode == MaskMode.MASKED:
        keep = checked_mask(mask, rows, columns)

    dot = exact_matmul(q, k.T)
    require_range("dot", dot, number.accumulator_bits)
    score = requantise_score(dot, command.score_multiplier, command.score_shift, number)
    maximum = integer_maximum(score, keep, number)
    numerator = np.where(keep, numerators(score, maximum, number), 0)
    total = numerator.sum(axis=1)
    acc = exact_matmul(numerator, v)
    require_range("acc", acc, number.accumulator_bits)
    out = normalise(acc, total, command.output_multiplier, command.output_shift, number)

    if command.mode == MaskMode.GENERATE:
        own = tokens if command.diagonal else None
        fill = fill_hash(command, hash_)
        keep = new_mask(numerator, total, command.threshold, own, fill)
    return FusedResult(out, keep, score, maximum, numerator, total, acc)


def fill_hash(command: FuseCommand, hash_: BankHash | None) -> BankHash | None:
    """Return the hash if the command fills masks up, or raise ValueError if there is none."""
    if command.fill and hash_ is None:
        raise ValueError("hash_: fill needs one")
    return hash_ if command.fill else None


def checked_mask(mask: NDArray[np.bool_] | None, rows: int, columns: int) -> NDArray[np.bool_]:
    """Return the mask as bool [rows, columns], or raise ValueError that says what is wrong."""
    if mask is None:
        raise ValueError("mask: mode MASKED needs one")
    mask = np.asarray(mask, dtype=bool)
    if mask.shape != (rows, columns):
        raise ValueError(f"mask: want shape ({rows}, {columns}), got {mask.shape}")
    empty = np.flatnonzero(~mask.any(axis=1))
    if len(empty):
        raise ValueError(
            f"mask: row {empty[0]} keeps no column ({len(empty)} such rows); "
            "a row needs at least one, usually its own (the diagonal)"
        )
    return mask
