"""The fused operation of the integer core: against float, and against itself."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disc.config import CoreConfig, preset
from disc.program import FuseCommand, MaskMode
from golden.integer import fused_attention
from golden.integer.fused import FusedResult
from golden.integer.quantise import (
    QuantisedHead,
    float_attention,
    quantise_head,
    quantised_attention,
)

TINY = preset("tiny")
N8 = TINY.number

# About 1 dB below what the worst of the heads below has.
FUSED_SNR_DB = 37.0
"""Softmax in integers and a result of 8 bits, against exact softmax of the same operands."""
OPERANDS_SNR_DB = 33.0
"""Operands of 8 bits, against float ones."""
TOTAL_SNR_DB = 32.0
"""Both."""


def smooth_head(n: int, d: int, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tensors that change slowly with the position, as activations of an image do."""
    rng = np.random.default_rng(seed)
    position = np.arange(n) / n
    waves = np.stack([np.cos(2 * np.pi * (f * position + rng.random())) for f in range(1, 9)])
    return tuple(rng.normal(size=(d, 8)).dot(waves).T for _ in range(3))


def command_of(head: QuantisedHead, mode: MaskMode, **options: object) -> FuseCommand:
    return head.command(TINY, mode, **options)


def run(
    head: QuantisedHead, mode: MaskMode, mask: np.ndarray | None = None, **options: object
) -> FusedResult:
    command = command_of(head, mode, **options)
    return fused_attention(head.q, head.k, head.v, command, N8, mask=mask)


def snr_db(got: np.ndarray, wanted: np.ndarray) -> float:
    return float(10 * np.log10((wanted**2).sum() / ((got - wanted) ** 2).sum()))


def random_integers(n: int, d: int, seed: int) -> QuantisedHead:
    rng = np.random.default_rng(seed)
    return quantise_head(*(rng.normal(size=(n, d)) for _ in range(3)), TINY)


def random_mask(rows: int, columns: int, density: float, seed: int) -> np.ndarray:
    mask = np.random.default_rng(seed).random((rows, columns)) < density
    mask[np.arange(rows), np.arange(rows) % columns] = True
    return mask


# -- against float -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n", [64, 256])
def test_loss_of_each_level(n, seed):
    q, k, v = smooth_head(n, 72, seed=seed)
    head = quantise_head(q, k, v, TINY)
    out = run(head, MaskMode.DENSE).out * head.out_scale
    assert snr_db(out, quantised_attention(head)) > FUSED_SNR_DB
    assert snr_db(quantised_attention(head), float_attention(q, k, v)) > OPERANDS_SNR_DB
    assert snr_db(out, float_attention(q, k, v)) > TOTAL_SNR_DB


@pytest.mark.parametrize("n", [64, 256])
def test_loss_with_a_mask(n):
    q, k, v = smooth_head(n, 72, seed=9)
    head, mask = quantise_head(q, k, v, TINY), random_mask(n, n, 0.2, 9)
    out = run(head, MaskMode.MASKED, mask).out * head.out_scale
    assert snr_db(out, quantised_attention(head, mask)) > FUSED_SNR_DB


# -- every step, written out -------------------------------------------------------------------


def test_every_quantity_by_its_definition():
    """Python integers and fractions of powers of two, from the specification's seven steps."""
    head, mask = random_integers(9, 8, 3), random_mask(9, 9, 0.4, 3)
    command = command_of(head, MaskMode.MASKED)
    result = run(head, MaskMode.MASKED, mask)
    table = [round(2**14 * 2 ** (-f / 64)) for f in range(64)]

    def round_shift(x: int, s: int) -> int:
        return (x + (1 << s) // 2) // (1 << s)

    for i in range(9):
        kept = [j for j in range(9) if mask[i, j]]
        dot = {
            j: sum(int(a) * int(b) for a, b in zip(head.q[i], head.k[j], strict=True)) for j in kept
        }
        t = {j: round_shift(dot[j] * command.score_multiplier, command.score_shift) for j in kept}
        assert all(-(1 << 15) <= x < 1 << 15 for x in t.values())
        maximum = -(-max(t.values()) // 64)
        e = {}
        for j in kept:
            z, f = divmod(maximum * 64 - t[j], 64)
            e[j] = min(1023, round_shift(table[f], 4 + min(z, 12)))
        assert result.maximum[i] == maximum
        assert result.score[i, kept].tolist() == list(t.values())
        assert result.numerator[i].tolist() == [e.get(j, 0) for j in range(9)]
        assert result.total[i] == sum(e.values())
        acc = [sum(e[j] * int(head.v[j, x]) for j in kept) for x in range(8)]
        assert result.acc[i].tolist() == acc
        exact = [
            a / sum(e.values()) * command.output_multiplier / 2**command.output_shift for a in acc
        ]
        assert np.abs(result.out[i] - np.clip(exact, -128, 127)).max() < 0.52
    assert np.array_equal(result.mask, mask)


# -- masks -------------------------------------------------------------------------------------


@given(st.integers(0, 1 << 20), st.integers(1, 40), st.integers(1, 40))
@settings(max_examples=30, deadline=None)
def test_mask_of_ones_is_dense(seed, n, d):
    head = random_integers(n, d, seed)
    dense = run(head, MaskMode.DENSE)
    masked = run(head, MaskMode.MASKED, np.ones((n, n), dtype=bool))
    for field in dataclasses.fields(FusedResult):
        assert np.array_equal(getattr(masked, field.name), getattr(dense, field.name)), field.name


def test_dropped_columns_do_not_matter():
    head, mask = random_integers(16, 8, 4), random_mask(16, 16, 0.3, 4)
    out = run(head, MaskMode.MASKED, mask).out
    for i in range(16):
        kept = np.flatnonzero(mask[i])
        k, v = head.k.copy(), head.v.copy()
        k[~mask[i]], v[~mask[i]] = 127, -128
        command = command_of(head, MaskMode.MASKED)
        changed = fused_attention(head.q[[i]], k, v, command, N8, mask=mask[[i]])
        assert np.array_equal(changed.out[0], out[i])
        # As if the dropped ones had never been there.
        command = dataclasses.replace(command, mode=MaskMode.DENSE, columns=len(kept))
        alone = fused_attention(head.q[[i]], head.k[kept], head.v[kept], command, N8)
        assert np.array_equal(alone.out[0], out[i])


@pytest.mark.parametrize("diagonal", [True, False])
def test_threshold_zero_keeps_all(diagonal):
    head = random_integers(32, 16, 5)
    assert run(head, MaskMode.GENERATE, alpha=0.0, diagonal=diagonal).mask.all()


@given(st.integers(0, 1 << 20), st.lists(st.floats(0, 24), min_size=2, max_size=6))
@settings(max_examples=30, deadline=None)
def test_higher_threshold_keeps_less(seed, alphas):
    head = random_integers(24, 8, seed)
    masks = [
        run(head, MaskMode.GENERATE, alpha=alpha, diagonal=False).mask for alpha in sorted(alphas)
    ]
    for looser, tighter in itertools.pairwise(masks):
        assert not (tighter & ~looser).any()


def test_generated_mask_by_its_definition():
    head = random_integers(24, 16, 6)
    result = run(head, MaskMode.GENERATE, alpha=1.0, diagonal=False)
    theta = round(1.0 / 24 * 2**20)
    kept = result.numerator * 2**20 >= theta * result.total[:, None]
    assert np.array_equal(result.mask, kept)
    assert 0.1 < kept.mean() < 0.9
    # The mask is for later: this result is that of all columns.
    assert np.array_equal(result.out, run(head, MaskMode.DENSE).out)


def test_diagonal_is_that_of_the_tokens():
    head = random_integers(24, 16, 7)
    command = command_of(head, MaskMode.GENERATE, alpha=24.0)
    tokens = np.array([5, 23, 0, 24, 200])  # the last two have no column of their own
    q = head.q[:5]
    result = fused_attention(q, head.k, head.v, command, N8, tokens=tokens)
    assert result.mask.any(axis=1).tolist() == [True, True, True, False, False]
    assert [np.flatnonzero(row).tolist() for row in result.mask[:3]] == [[5], [23], [0]]
    without = dataclasses.replace(command, diagonal=False)
    assert not fused_attention(q, head.k, head.v, without, N8, tokens=tokens).mask.any()


# -- symmetries --------------------------------------------------------------------------------


@given(st.integers(0, 1 << 20), st.sampled_from(list(MaskMode)), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_order_of_columns_does_not_matter(seed, mode, random):
    head, mask = random_integers(20, 12, seed), random_mask(20, 20, 0.3, seed)
    order = np.array(random.sample(range(20), 20))
    command = command_of(head, mode, alpha=0.8, diagonal=False)
    one = fused_attention(head.q, head.k, head.v, command, N8, mask=mask)
    other = fused_attention(head.q, head.k[order], head.v[order], command, N8, mask=mask[:, order])
    assert np.array_equal(other.out, one.out)
    assert np.array_equal(other.total, one.total)
    assert np.array_equal(other.mask, one.mask[:, order])


@given(st.integers(0, 1 << 20), st.sampled_from(list(MaskMode)), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_rows_are_independent(seed, mode, random):
    head, mask = random_integers(20, 12, seed), random_mask(20, 20, 0.3, seed)
    order = np.array(random.sample(range(20), random.randint(1, 20)))
    command = command_of(head, mode, alpha=0.8)
    one = fused_attention(head.q, head.k, head.v, command, N8, mask=mask)
    some = fused_attention(
        head.q[order], head.k, head.v, command, N8, mask=mask[order], tokens=order
    )
    for field in dataclasses.fields(FusedResult):
        assert np.array_equal(getattr(some, field.name), getattr(one, field.name)[order])


def test_equal_scores_give_the_mean():
    head = random_integers(16, 8, 8)
    zero = dataclasses.replace(head, k=np.zeros_like(head.k))
    result = run(zero, MaskMode.GENERATE, alpha=1.0, diagonal=False)
    assert (result.numerator == 1023).all()
    assert (result.total == 16 * 1023).all()
    mean = head.v.mean(axis=0) * head.v_scale / head.out_scale
    assert np.abs(result.out - np.clip(mean, -128, 127)).max() <= 0.51
    # Every probability is the uniform one; a threshold of exactly that keeps it.
    assert result.mask.all()
    above = dataclasses.replace(command_of(zero, MaskMode.GENERATE), threshold=2**20 // 16 + 1)
    above = dataclasses.replace(above, diagonal=False)
    assert not fused_attention(zero.q, zero.k, zero.v, above, N8).mask.any()


def test_one_column_is_copied():
    head = random_integers(1, 8, 9)
    command = dataclasses.replace(
        command_of(head, MaskMode.DENSE), output_multiplier=1 << 15, output_shift=15
    )
    out = fused_attention(head.q, head.k, head.v, command, N8).out
    assert np.array_equal(out, head.v)


def test_smallest_operands():
    """-128, which the quantiser never makes, is accepted everywhere."""
    low = np.full((256, 72), -128)
    command = dataclasses.replace(
        command_of(random_integers(256, 72, 10), MaskMode.DENSE),
        score_multiplier=1 << 15,
        score_shift=15,
        output_multiplier=1 << 15,
        output_shift=15,
    )
    result = fused_attention(low, low, low, command, N8)
    assert (result.score == (1 << 15) - 1).all()  # 72 * 2**14 saturates
    assert (result.maximum == 512).all()
    assert (result.total == 256 * result.numerator[0, 0]).all()
    assert (result.acc == -128 * result.total[0]).all()
    assert (result.out == -128).all()
    high = fused_attention(low, np.full_like(low, 127), low, command, N8)
    assert (high.score == -(1 << 15)).all()
    assert (high.maximum == -512).all()
    assert (high.out == -128).all()


# -- bad input ---------------------------------------------------------------------------------


def call(**changed: object) -> FusedResult:
    head = random_integers(6, 8, 11)
    given: dict[str, object] = {
        "q": head.q,
        "k": head.k,
        "v": head.v,
        "command": command_of(head, MaskMode.MASKED),
        "mask": np.ones((6, 6), dtype=bool),
        **changed,
    }
    operands = [given.pop(name) for name in ("q", "k", "v", "command")]
    return fused_attention(*operands, N8, **given)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"q": np.zeros((6, 7))}, r"^q, k, v: want \[rows, d\].* got \(6, 7\), \(6, 8\), \(6, 8\)"),
        ({"q": np.zeros(8)}, r"^q, k, v: want"),
        ({"v": np.zeros((5, 8))}, r"^q, k, v: want"),
        ({"k": np.zeros((6, 2, 4)), "v": np.zeros((6, 2, 4))}, r"^q, k, v: want"),
        ({"q": np.full((6, 8), 128)}, r"^q: values must be in \[-128, 127\], got \[128, 128\]"),
        ({"k": np.full((6, 8), -129)}, r"^k: values must be in \[-128, 127\], got"),
        ({"v": np.full((6, 8), 500)}, r"^v: values must be in \[-128, 127\], got"),
        ({"k": np.zeros((5, 8)), "v": np.zeros((5, 8))}, "^columns: command says 6, k has 5"),
        ({"tokens": np.arange(5)}, r"^tokens: want shape \(6,\), got \(5,\)"),
        ({"mask": None}, "^mask: mode MASKED needs one"),
        ({"mask": np.ones((6, 5))}, r"^mask: want shape \(6, 6\), got \(6, 5\)"),
        ({"mask": np.arange(36).reshape(6, 6) // 6 % 3 > 0}, r"^mask: row 0 keeps no .*\(2 such"),
    ],
)
def test_bad_operands(changed, message):
    call()
    with pytest.raises(ValueError, match=message):
        call(**changed)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("columns", 0),
        ("columns", 257),
        ("beats", 0),
        ("beats", 10),
        ("dot_base", -1),
        ("dot_base", 1152),
        ("axpy_base", 1151),
        ("score_multiplier", 1 << 16),
        ("score_shift", 64),
        ("output_multiplier", -1),
        ("output_shift", 33),
        ("threshold", (1 << 20) + 1),
    ],
)
def test_command_that_does_not_fit(name, value):
    command = command_of(random_integers(6, 8, 12), MaskMode.DENSE)
    command.validate(TINY)
    with pytest.raises(ValueError, match=rf"^{name}: must be in \[\d+, \d+\] .* got {value}\b"):
        dataclasses.replace(command, **{name: value}).validate(TINY)


def test_operands_that_overlap():
    command = command_of(random_integers(6, 8, 13), MaskMode.DENSE)
    with pytest.raises(ValueError, match=r"^axpy_base: V at word 1 overlaps K at word 0"):
        dataclasses.replace(command, axpy_base=1).validate(TINY)


def test_accumulator_that_is_too_narrow():
    config: CoreConfig = TINY
    head = random_integers(256, 72, 14)
    narrow = config.number.model_copy(update={"accumulator_bits": 16})
    with pytest.raises(ValueError, match=r"^dot: values must be in"):
        fused_attention(head.q, head.k, head.v, command_of(head, MaskMode.DENSE), narrow)
