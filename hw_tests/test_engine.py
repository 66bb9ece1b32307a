"""The attention engine on RTL against the integer golden core."""

from __future__ import annotations

import numpy as np
import pytest

from disc.config import CoreConfig, build, preset
from disc.hashing import BankHash
from disc.program import MaskMode
from golden.capture import capture_all
from golden.integer import fused_attention
from golden.integer.quantise import quantise_head
from hw_tests.crosscheck import choose_hash, job, mismatches, prepare
from hw_tests.engine import HeadJob, SimulatedHead, simulate
from hw_tests.sim import choose_seed

TINY = preset("tiny")


def odd_config() -> CoreConfig:
    """Nothing in it is a default or, where it need not be, a power of two."""
    fields = TINY.model_dump() | {"name": "odd"}
    fields["array"] = {"banks": 8, "lanes": 6, "rows_in_flight": 3}
    fields["memory"] = {
        "bank_words": 100,
        "query_rows": 12,
        "columns": 88,
        "head_dim": 20,
        "mask_word_bits": 8,
    }
    fields["number"] = {
        "operand_bits": 7,
        "numerator_bits": 9,
        "accumulator_bits": 26,
        "score_bits": 15,
        "score_fraction_bits": 5,
    }
    fields["vector"] = {"lanes": 2}
    return build(fields)


def random_job(config: CoreConfig, rng: np.random.Generator) -> tuple[HeadJob, object]:
    """Return a job of random shape, scales, hash and stalls, and its golden result."""
    rows = int(rng.integers(1, 2 * config.memory.query_rows))
    columns = int(rng.integers(1, config.memory.columns + 1))
    d = int(rng.integers(1, config.memory.head_dim + 1))
    while 2 * -(-d // config.array.lanes) * -(-columns // config.array.banks) > (
        config.memory.bank_words
    ):
        d = int(rng.integers(1, config.memory.head_dim + 1))
    spread = rng.choice([0.2, 1.0, 4.0])
    q, k, v = (rng.normal(scale=spread, size=(n, d)) for n in (rows, columns, columns))
    head = quantise_head(q, k, v, config)
    mode = MaskMode(int(rng.integers(3)))
    command = head.command(
        config,
        mode,
        alpha=float(rng.choice([0.0, 0.5, 2.0])) % (columns + 1),
        diagonal=bool(rng.integers(2)),
    )
    tokens = rng.integers(config.memory.columns, size=rows)
    mask = None
    if mode == MaskMode.MASKED:
        mask = rng.random((rows, columns)) < rng.choice([0.02, 0.3, 0.9])
        mask[np.arange(rows), rng.integers(columns, size=rows)] = True
    hash_ = BankHash.random_gf2(
        config.array.banks, config.local_bits, seed=int(rng.integers(1 << 30))
    )
    stall = float(rng.choice([0.0, 0.3, 0.95]))
    golden = fused_attention(
        head.q, head.k, head.v, command, config.number, mask=mask, tokens=tokens
    )
    item = HeadJob(
        q=head.q,
        k=head.k,
        v=head.v,
        command=command,
        hash=hash_,
        mask=mask,
        tokens=tokens,
        stall=stall,
    )
    return item, golden


def array_cycles(item: HeadJob) -> int:
    """Sum over rows of `2 * beats * kept columns of the fullest bank`, by definition."""
    keep = item.mask
    if keep is None:
        keep = np.ones((len(item.q), item.command.columns), dtype=bool)
    bank = item.hash.bank(np.arange(item.command.columns))
    loads = np.stack([keep[:, bank == b].sum(axis=1) for b in range(item.hash.banks)])
    return 2 * item.command.beats * int(loads.max(axis=0).sum())


def check(item: HeadJob, golden: object, got: SimulatedHead) -> None:
    np.testing.assert_array_equal(got.out, golden.out)
    if item.command.mode == MaskMode.GENERATE:
        np.testing.assert_array_equal(got.mask, golden.mask)
    counters = got.counters
    assert counters.dot + counters.axpy == array_cycles(item)
    assert counters.rows == len(item.q)
    dense = item.command.mode != MaskMode.MASKED
    kept = len(item.q) * item.command.columns if dense else int(item.mask.sum())
    assert counters.kept == kept


@pytest.mark.parametrize("config", [TINY, odd_config()], ids=lambda c: c.name)
@pytest.mark.parametrize("batch", [0, pytest.param(range(1, 12), marks=pytest.mark.full)])
def test_random_heads(config: CoreConfig, batch: int | range) -> None:
    """Random shapes, numbers, masks, row lists, hashes and stalls."""
    for _ in [batch] if isinstance(batch, int) else batch:
        seed = choose_seed()
        rng = np.random.default_rng(seed)
        jobs = [random_job(config, rng) for _ in range(40)]
        results = simulate(config, [item for item, _ in jobs], seed=seed)
        for (item, golden), got in zip(jobs, results, strict=True):
            check(item, golden, got)


@pytest.mark.parametrize("name", ["modulo", "xor-fold", "searched"])
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
        got.counters.cycles - array_cycles(item) for item, got in zip(jobs, results, strict=True)
    ]
    assert overheads[0] == overheads[1]
    assert overheads[0] <= 55


def test_stalled_mask_lines_hold_up_the_rows() -> None:
    """Two lines and one result word a row, so the mask generator is what everybody waits for."""
    rng = np.random.default_rng(9)
    head = quantise_head(*(rng.normal(size=(n, 8)) for n in (24, 256, 256)), TINY)
    command = head.command(TINY, MaskMode.GENERATE, alpha=0.8)
    item = HeadJob(
        q=head.q,
        k=head.k,
        v=head.v,
        command=command,
        hash=BankHash.xor_fold(TINY.array.banks, TINY.local_bits),
        stall=0.99,
    )
    (got,) = simulate(TINY, [item])
    check(item, fused_attention(head.q, head.k, head.v, command, TINY.number), got)
    assert got.counters.cycles > 1.2 * array_cycles(item)


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
