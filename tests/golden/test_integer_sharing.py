"""Residual sharing and masks common to all heads, against the fused operation and float."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from disc.config import NumberConfig, preset
from disc.program import FuseCommand, MaskMode
from golden.integer import fused_attention
from golden.integer.fused import FusedResult
from golden.integer.quantise import QuantisedHead, float_attention, quantise_head
from golden.integer.sharing import (
    add_residual,
    common_mask,
    masked_output,
    shared_residual,
)

TINY = preset("tiny")
N8 = TINY.number
FINE = N8.model_copy(update={"sharing_bits": 16, "sharing_guard_bits": 4})
"""Residuals in sixteenths of a unit."""


def head(seed: int = 0, n: int = 48, d: int = 16) -> QuantisedHead:
    rng = np.random.default_rng(seed)
    q, k = (3 * rng.normal(size=(n, d)) for _ in range(2))
    return quantise_head(q, k, rng.normal(size=(n, d)), TINY)


def fuse(
    h: QuantisedHead, command: FuseCommand, mask: np.ndarray | None = None, number=N8
) -> FusedResult:
    return fused_attention(h.q, h.k, h.v, command, number, mask=mask)


def refresh(h: QuantisedHead, alpha: float = 2.0) -> tuple[FusedResult, FuseCommand, FuseCommand]:
    command = h.command(TINY, MaskMode.GENERATE, alpha=alpha)
    return fuse(h, command), command, dataclasses.replace(command, mode=MaskMode.MASKED)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("number", [N8, FINE], ids=["8 bits", "16 bits"])
def test_reusing_a_mask_at_once_restores_the_dense_result(seed: int, number: NumberConfig):
    h = head(seed)
    dense, command, reuse = refresh(h)
    assert 0.02 < dense.mask.mean() < 0.5
    residual = shared_residual(dense, dense.mask, h.v, command, number)
    masked = fuse(h, reuse, dense.mask)
    out = add_residual(masked, residual, command, number)
    # Only a row whose kept columns have a lower maximum, or a double rounding, may differ.
    assert np.abs(out - dense.out).max() <= 1
    assert (out != dense.out).mean() < 0.1
    assert np.abs(masked.out - dense.out).max() > 4


@pytest.mark.parametrize(("number", "rms"), [(N8, 0.5), (FINE, 0.35)], ids=["8 bits", "16 bits"])
def test_residual_is_the_difference_in_real_units(number: NumberConfig, rms: float):
    h = head()
    dense, command, _ = refresh(h)
    residual = shared_residual(dense, dense.mask, h.v, command, number)
    exact = float_attention(h.q * h.q_scale, h.k * h.k_scale, h.v * h.v_scale)
    exact -= float_attention(h.q * h.q_scale, h.k * h.k_scale, h.v * h.v_scale, dense.mask)
    error = residual * h.out_scale / 2**number.sharing_guard_bits - exact
    assert np.abs(error).max() < 2 * h.out_scale
    # Rounding both terms to whole units alone is 0.41 rms.
    assert np.sqrt(np.mean(error**2)) < rms * h.out_scale


def test_guard_bits_pay():
    h = head()
    errors = []
    for number in (N8, FINE):
        dense, command, _ = refresh(h)
        residual = shared_residual(dense, dense.mask, h.v, command, number)
        later = dataclasses.replace(h, q=np.clip(h.q + (np.arange(48) % 3 - 1)[:, None], -127, 127))
        masked = fuse(later, dataclasses.replace(command, mode=MaskMode.MASKED), dense.mask)
        got = add_residual(masked, residual, command, number)
        tensors = (later.q * h.q_scale, h.k * h.k_scale, h.v * h.v_scale)
        wanted = float_attention(*tensors, dense.mask)
        real = (h.q * h.q_scale, *tensors[1:])
        wanted += float_attention(*real) - float_attention(*real, dense.mask)
        errors.append(np.mean((got * h.out_scale - wanted) ** 2))
    assert errors[1] < 0.75 * errors[0]


def test_masked_output_of_a_refresh():
    h = head()
    dense, command, reuse = refresh(h)
    out = masked_output(dense, dense.mask, h.v, command, N8)
    masked = fuse(h, reuse, dense.mask)
    same = dense.maximum == masked.maximum
    assert same.mean() > 0.8
    assert np.array_equal(out[same], masked.out[same])
    everything = np.ones_like(dense.mask)
    assert np.array_equal(masked_output(dense, everything, h.v, command, N8), dense.out)
    assert not shared_residual(dense, everything, h.v, command, N8).any()


def test_residual_saturates():
    h = head()
    dense, command, _ = refresh(h, alpha=40)  # little but the diagonal
    residual = shared_residual(dense, dense.mask, h.v, command, N8)
    assert residual.max() == 127
    assert shared_residual(dense, dense.mask, h.v, command, FINE).max() > 130 * 16


def test_sharing_refuses():
    h = head()
    dense, command, _ = refresh(h)
    residual = shared_residual(dense, dense.mask, h.v, command, N8)
    with pytest.raises(ValueError, match=r"residual: want shape \(48, 16\), got \(47, 16\)"):
        add_residual(dense, residual[1:], command, N8)
    with pytest.raises(ValueError, match=r"residual: values must be in \[-128, 127\]"):
        add_residual(dense, residual + (1 << 8), command, N8)
    coarse = dataclasses.replace(command, output_shift=3)
    with pytest.raises(ValueError, match="output_shift: must be at least sharing_guard_bits = 4"):
        shared_residual(dense, dense.mask, h.v, coarse, FINE)


# -- one mask for all heads ----------------------------------------------------------------------


def test_common_mask_is_that_of_the_mean_probability():
    heads = [head(seed) for seed in range(3)]
    results = [refresh(h)[0] for h in heads]
    threshold = round(1.5 / 48 * 2**20)
    mask = common_mask(results, threshold, np.arange(48))
    p = np.mean([r.numerator / r.total[:, None] for r in results], axis=0)
    clear = np.abs(p - 1.5 / 48) > 1e-4
    wanted = (p >= 1.5 / 48) | np.eye(48, dtype=bool)
    assert clear.mean() > 0.99
    assert np.array_equal(mask[clear], wanted[clear])
    assert mask.diagonal().all()


def test_common_mask_of_one_head_is_its_own():
    dense, command, _ = refresh(head())
    mask = common_mask([dense], command.threshold, np.arange(48))
    # The reciprocal is an approximation where the own mask compares exactly.
    p = dense.numerator / dense.total[:, None]
    clear = np.abs(p * 2**20 / command.threshold - 1) > 2e-4
    assert np.array_equal(mask[clear], dense.mask[clear])
    rows = np.array([3, 7])
    some = fused_attention(head().q[rows], head().k, head().v, command, N8, tokens=rows)
    assert np.array_equal(common_mask([some], command.threshold, rows), mask[rows])


def test_common_mask_of_short_numerators():
    number = NumberConfig(numerator_bits=4, score_bits=12, score_fraction_bits=3)
    h = head()
    command = h.command(TINY, MaskMode.GENERATE, alpha=1.0)
    command = dataclasses.replace(command, score_shift=command.score_shift + 3)
    result = fuse(h, command, number=number)
    assert common_mask([result], command.threshold, np.arange(48)).any(axis=1).all()
