"""The attention engine on RTL against the integer golden core."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from disc.config import preset
from disc.hashing import BankHash
from disc.program import Function, MaskMode
from golden.capture import capture_all
from golden.integer.quantise import quantise_head
from hw_tests.crosscheck import choose_hash, job, mismatches, prepare
from hw_tests.engine import HeadJob, simulate
from hw_tests.engine.jobs import array_cycles

TINY = preset("tiny")


@pytest.mark.parametrize(
    "name", ["xor-fold", *(pytest.param(n, marks=pytest.mark.full) for n in ("modulo", "searched"))]
)
def test_every_trained_head(name: str) -> None:
    """Each layer and head, a dense step that makes a mask and one that reuses it, with stalls."""
    hash_ = choose_hash(name, TINY)
    heads = [
        prepare(TINY, capture, alpha=0.5) for capture in capture_all(at=[10, 12], steps=20).values()
    ]
    assert len(heads) == 2 * 6 * 4
    assert {head.capture.refresh for head in heads} == {True, False}
    jobs = [job(head, hash_, stall=0.25) for head in heads]
    results = simulate(TINY, jobs)
    wrong = {
        (head.capture.step, head.capture.layer, head.capture.head): count
        for head, got in zip(heads, results, strict=True)
        if (count := mismatches(head, got))
    }
    assert not wrong, wrong


@pytest.mark.full
@pytest.mark.parametrize("name", ["edge", "server"])
def test_trained_heads_of_1024_tokens(name: str) -> None:
    """Four row tiles a head; L = 24 and 72; mask made and mask reused."""
    config = preset(name)
    captures = capture_all("digits-1024", at=[5, 6], steps=20)
    chosen = [c for (_, layer, head), c in captures.items() if layer in (0, 2, 5) and head == 1]
    heads = [prepare(config, capture, alpha=0.5) for capture in chosen]
    hash_ = choose_hash("xor-fold", config)
    results = simulate(config, [job(head, hash_, stall=0.1) for head in heads])
    for head, got in zip(heads, results, strict=True):
        assert len(got.tiles) == 4
        assert mismatches(head, got) == 0


def _fixed_job(mode: MaskMode, *, alpha: float = 0.0, ones: bool = False) -> HeadJob:
    rng = np.random.default_rng(3)
    q, k, v = (rng.normal(size=(n, 24)) for n in (9, 50, 50))
    head = quantise_head(q, k, v, TINY)
    return HeadJob(
        q=head.q,
        k=head.k,
        v=head.v,
        command=head.command(TINY, mode, alpha=alpha),
        hash=BankHash.xor_fold(TINY.array.banks, TINY.local_bits),
        mask=np.ones((9, 50), dtype=bool) if ones else None,
    )


def test_mask_of_ones_is_dense_and_threshold_zero_keeps_everything() -> None:
    dense, ones, generated = simulate(
        TINY,
        [
            _fixed_job(MaskMode.DENSE),
            _fixed_job(MaskMode.MASKED, ones=True),
            _fixed_job(MaskMode.GENERATE),
        ],
    )
    np.testing.assert_array_equal(ones.out, dense.out)
    np.testing.assert_array_equal(generated.out, dense.out)
    assert generated.mask.all()


def test_rows_follow_each_other_without_a_gap() -> None:
    """A constant, 55 cycles here, is all that a command costs beyond its array cycles."""
    rng = np.random.default_rng(5)
    q, k, v = (rng.normal(size=(n, 32)) for n in (200, 256, 256))
    head = quantise_head(q, k, v, TINY)
    mask = rng.random((200, 256)) < 0.1
    mask[:, 0] = True
    hash_ = BankHash.xor_fold(TINY.array.banks, TINY.local_bits)
    jobs = [
        HeadJob(
            q=head.q[:rows],
            k=head.k,
            v=head.v,
            command=head.command(TINY, MaskMode.MASKED),
            hash=hash_,
            mask=mask[:rows],
        )
        for rows in (50, 200)
    ]
    results = simulate(TINY, jobs)
    overheads = [
        got.counters.cycles - sum(array_cycles(item))
        for item, got in zip(jobs, results, strict=True)
    ]
    assert overheads[0] == overheads[1]
    assert overheads[0] <= 55


def test_a_filled_mask_takes_the_cycles_of_the_plain_one() -> None:
    """It keeps more, though; and making it takes as long, too, beside rows of several words."""
    rng = np.random.default_rng(6)
    head = quantise_head(*(rng.normal(size=(n, 32)) for n in (60, 256, 256)), TINY)
    hash_ = BankHash.xor_fold(TINY.array.banks, TINY.local_bits)
    plain = head.command(TINY, MaskMode.GENERATE, alpha=1.5)
    commands = [plain, replace(plain, fill=True)]
    items = [HeadJob(q=head.q, k=head.k, v=head.v, command=c, hash=hash_) for c in commands]
    made = simulate(TINY, items)
    masks = [got.mask for got in made]
    assert masks[1].sum() > 1.1 * masks[0].sum()
    assert (masks[1] | masks[0] == masks[1]).all()
    assert made[1].counters.cycles == made[0].counters.cycles
    use = head.command(TINY, MaskMode.MASKED)
    used = simulate(TINY, [replace(items[0], command=use, mask=mask) for mask in masks])
    counters = [got.counters for got in used]
    for name in ("dot", "axpy", "cycles"):
        assert getattr(counters[0], name) == getattr(counters[1], name), name
    assert counters[1].imbalance < counters[0].imbalance / 2


def test_an_empty_row_gives_zeros() -> None:
    """Software refuses such masks; hardware that gets one anyway must not hang."""
    item = _fixed_job(MaskMode.MASKED, ones=True)
    mask = item.mask.copy()
    mask[4] = False
    (got,) = simulate(TINY, [HeadJob(**{**vars(item), "mask": mask})])
    assert not got.out[4].any()
    others = np.arange(9) != 4
    assert got.out[others].any(axis=1).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stall": 1.0}, "stall: must be in"),
        ({"hash": BankHash.modulo(8, 6)}, "hash: is for 3 bank"),
        ({"mask": None, "mode": MaskMode.MASKED}, "mask: mode MASKED needs one"),
        ({"columns": 257}, "columns: must be in"),
        ({"axpy_base": 3}, "axpy_base: V at word 3 overlaps K"),
        ({"mark": True}, "mark: needs mode GENERATE, got DENSE"),
        ({"mark": True, "share": True, "mode": MaskMode.GENERATE}, "share, mark: at most one"),
        ({"fresh": True, "mode": MaskMode.GENERATE}, "fresh: needs GELU and mode GENERATE"),
        ({"fill": True, "mode": MaskMode.MASKED}, "fill: needs SOFTMAX and mode GENERATE"),
        ({"raw": True, "function": Function.GELU}, "function: GELU takes no raw, share or mark"),
        (
            {"mode": MaskMode.GENERATE, "function": Function.PROJECT},
            "function: PROJECT takes no mode GENERATE",
        ),
    ],
)
def test_bad_jobs_are_refused(change: dict, message: str) -> None:
    item = _fixed_job(MaskMode.DENSE)
    fields = vars(item).copy()
    command = vars(item.command).copy()
    for name, value in change.items():
        (command if name in command else fields)[name] = value
    fields["command"] = type(item.command)(**command)
    with pytest.raises(ValueError, match=message):
        simulate(TINY, [HeadJob(**fields)])
