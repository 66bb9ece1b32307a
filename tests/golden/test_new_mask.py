"""Masks filled up to the fullest bank: by hand, by definition, and what they are for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from disc.config import preset
from disc.hashing import BankHash
from disc.lower.shape import BlockShape
from disc.program import Attend, MaskMode
from golden.executor.random_blocks import SIX, Case
from golden.integer.block import Sparsity
from golden.integer.fused import fused_attention
from golden.integer.new_mask import filled, new_mask
from golden.integer.quantise import quantise_head
from golden.integer.softmax import threshold_numerator
from golden.integer.tiled import tiled_attention

TINY = preset("tiny")
QUARTER = 1 << 18
"""Threshold of a quarter of the total."""


def by_hand(numerators: list[int], total: int, own: int | None = None) -> list[int]:
    """Columns kept at a threshold of total / 4 in two banks, even and odd columns."""
    one = None if own is None else np.array([own])
    hash_ = BankHash.modulo(2, 3)
    mask = new_mask(np.array([numerators]), np.array([total]), QUARTER, one, hash_)
    return np.flatnonzero(mask[0]).tolist()


def test_by_hand() -> None:
    # least 20: the even bank keeps two, 0 and 4; the odd one adds 3 and 5 of 10, and is full at 7.
    assert by_hand([20, 9, 19, 10, 30, 10, 5, 19], 80) == [0, 3, 4, 5]
    # Nobody adds a column to the fullest bank, 2 of 19; the odd bank has only one of half at least.
    assert by_hand([20, 9, 19, 10, 30, 9, 5, 9], 80) == [0, 3, 4]
    # A bank with one above the threshold adds one.
    assert by_hand([20, 21, 19, 10, 30, 10, 5, 19], 80) == [0, 1, 3, 4]
    # least 19, and half of it is 10.
    assert by_hand([19, 9, 0, 10, 0, 0, 0, 0], 75) == [0, 3]
    # The own column counts, far below the threshold.
    assert by_hand([0, 0, 0, 0, 0, 0, 0, 10], 80, own=2) == [2, 7]
    # It is in another tile, and no other reaches the threshold: no column is free.
    assert by_hand([19] * 8, 80, own=8) == []
    assert by_hand([19] * 8, 80, own=-1) == []
    # A threshold above twice the largest numerator there is leaves the own column alone.
    assert by_hand([255] * 8, 4 * 511, own=3) == [3]
    assert by_hand([255] * 8, 4 * 510, own=3) == [0, 3]
    # Half of 1 is 1: zeros stay out.
    assert by_hand([1, 0, 0, 0, 0, 0, 0, 0], 4) == [0]


def one_row(numerator: list[int], least: int, own: int | None, bank: list[int]) -> set[int]:
    """The definition, column by column."""
    plain = {j for j, e in enumerate(numerator) if e >= least} | (
        {own} if own is not None else set()
    )
    count = {b: sum(bank[j] == b for j in plain) for b in set(bank)}
    most = max(count.values())
    kept = set(plain)
    for j in range(len(numerator)):  # within a bank, local indices ascend with columns
        if j not in plain and numerator[j] >= (least + 1) // 2 and count[bank[j]] < most:
            kept.add(j)
            count[bank[j]] += 1
    return kept


@pytest.mark.parametrize("banks", [2, 4, 16])
def test_by_definition(banks: int) -> None:
    rng = np.random.default_rng(banks)
    added = 0
    for _ in range(60):
        columns = int(rng.integers(1, 90))
        hash_ = BankHash.random_gf2(banks, 6, seed=int(rng.integers(1 << 30)))
        numerator = np.floor(
            255 * np.exp2(-rng.choice([1.0, 4.0, 9.0]) * rng.random((5, columns)))
        ).astype(np.int64)
        total = numerator.sum(axis=1) * rng.integers(1, 4, 5)
        threshold = round(rng.choice([0.0, 0.7, 1.5, 20.0]) / columns * (1 << 20))
        own = rng.integers(-3, columns + 3, 5)
        diagonal = bool(rng.integers(2))
        plain = new_mask(numerator, total, threshold, own if diagonal else None)
        mask = new_mask(numerator, total, threshold, own if diagonal else None, hash_)
        least = threshold_numerator(total, threshold)
        bank = hash_.bank(np.arange(columns)).tolist()
        for row in range(5):
            inside = diagonal and 0 <= own[row] < columns
            expected = one_row(
                numerator[row].tolist(), int(least[row]), int(own[row]) if inside else None, bank
            )
            assert set(np.flatnonzero(mask[row]).tolist()) == expected
        steps = [hash_.to_bank_order(m).sum(axis=2).max(axis=1) for m in (plain, mask)]
        assert np.array_equal(*steps), "no row takes a step more"
        assert (mask | plain == mask).all()
        added += int((mask & ~plain).sum())
    assert added > 100


def test_filled_up_with_anything_all_banks_are_as_full_as_the_fullest() -> None:
    rng = np.random.default_rng(0)
    hash_ = BankHash.xor_fold(8, 4)
    keep = rng.random((30, 128)) < 0.2
    full = hash_.to_bank_order(filled(keep, np.ones_like(keep), hash_)).sum(axis=2)
    assert (full == full.max(axis=1, keepdims=True)).all()


def test_fused_and_tiled_attention() -> None:
    rng = np.random.default_rng(4)
    head = quantise_head(*(rng.normal(size=(n, 16)) for n in (20, 64, 64)), TINY)
    hash_ = BankHash.xor_fold(TINY.array.banks, TINY.local_bits)
    plain = head.command(TINY, MaskMode.GENERATE, alpha=1.5)
    command = replace(plain, fill=True)
    operands = head.q, head.k, head.v
    without = fused_attention(*operands, plain, TINY.number, hash_=hash_)
    found = fused_attention(*operands, command, TINY.number, hash_=hash_)
    assert np.array_equal(found.out, without.out)
    assert found.mask.sum() > without.mask.sum()
    again = tiled_attention(*operands, command, TINY.number, tile=64, hash_=hash_)
    assert np.array_equal(again.mask, found.mask)
    tiled = tiled_attention(*operands, command, TINY.number, tile=16, hash_=hash_)
    bare = tiled_attention(*operands, plain, TINY.number, tile=16)
    for start in range(0, 64, 16):
        part = np.s_[:, start : start + 16]
        steps = [hash_.to_bank_order(m.mask[part]).sum(axis=2).max(axis=1) for m in (tiled, bare)]
        assert np.array_equal(*steps), "tile by tile"
    assert tiled.mask.sum() > bare.mask.sum()
    for attend in (fused_attention, lambda *a: tiled_attention(*a, tile=16)):
        with pytest.raises(ValueError, match="hash_: fill needs one"):
            attend(*operands, command, TINY.number)


def test_one_mask_for_all_heads_is_not_filled() -> None:
    with pytest.raises(ValueError, match="fill: needs a mask for each head"):
        Sparsity(one_mask=True, fill=BankHash.modulo(4, 6))


def test_lowering() -> None:
    shape = BlockShape(tokens=50, width=36, heads=2, hidden=70)
    case = Case.random(SIX, shape, seed=0)
    hash_, tokens = case.plan.hash, np.arange(shape.tokens)
    for mode in MaskMode:
        commands = case.lowered(Sparsity(mode, 1000, fill=hash_), tokens).commands
        attends = [c for c in commands if isinstance(c, Attend)]
        assert {(c.mode, c.fill) for c in attends} == {(mode, int(mode == MaskMode.GENERATE))}
