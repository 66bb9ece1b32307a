"""Softmax thresholding: masks, densities, reuse."""

from itertools import pairwise

import pytest
import torch

from golden.attention import (
    DenseAttention,
    FixedMaskAttention,
    attention_probabilities,
    masked_attention,
)
from golden.st import SparseAttention, STConfig, density, make_mask


@pytest.fixture
def qkv():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, 3, 40, 8, generator=generator) for _ in range(3)]


def test_alpha_zero_keeps_everything_and_equals_dense(qkv):
    q, k, v = qkv
    assert density(make_mask(attention_probabilities(q, k), 0.0)) == 1.0
    sparse = SparseAttention(STConfig(alpha=0.0))
    torch.testing.assert_close(sparse(q, k, v, 0), DenseAttention()(q, k, v, 0))


def test_mask_of_ones_equals_dense(qkv):
    q, k, v = qkv
    out = FixedMaskAttention(torch.ones(40, 40, dtype=torch.bool))(q, k, v, 0)
    torch.testing.assert_close(out, DenseAttention()(q, k, v, 0))


def test_mask_keeps_what_the_definition_says(qkv):
    p = attention_probabilities(*qkv[:2])
    mask = make_mask(p, 0.8)
    for b, h, i, j in [(0, 0, 0, 1), (1, 2, 5, 17), (0, 1, 39, 0), (1, 0, 7, 7)]:
        assert mask[b, h, i, j] == (p[b, h, i, j] >= 0.8 / 40 or i == j)
    assert not torch.equal(mask[0, 0], mask[0, 1])  # per head


def test_density_falls_with_alpha_and_masks_are_nested(qkv):
    p = attention_probabilities(*qkv[:2])
    masks = [make_mask(p, alpha) for alpha in (0.0, 0.25, 0.5, 1.0, 2.0, 1e9)]
    for wider, narrower in pairwise(masks):
        assert not (narrower & ~wider).any()
        assert density(narrower) < density(wider)


def test_diagonal_survives_any_threshold(qkv):
    q, k, v = qkv
    mask = make_mask(attention_probabilities(q, k), 1e9)
    torch.testing.assert_close(mask, torch.eye(40, dtype=torch.bool).expand_as(mask))
    torch.testing.assert_close(SparseAttention(STConfig(alpha=1e9))(q, k, v, 0), v)


def test_masked_attention_is_softmax_over_the_kept_keys(qkv):
    q, k, v = qkv
    p = attention_probabilities(q, k)
    mask = make_mask(p, 1.0)
    scores = (q @ k.transpose(-2, -1) / 8**0.5).masked_fill(~mask, float("-inf"))
    torch.testing.assert_close(masked_attention(p, v, mask), scores.softmax(-1) @ v)


def test_masks_are_reused_until_the_next_refresh(qkv):
    q, k, v = qkv
    sparse = SparseAttention(STConfig(alpha=1.0, refresh=3))
    masks = []
    for step in range(7):
        sparse.before_step(step, torch.empty(0))
        # Other queries in every step, so that a mask made anew would differ.
        sparse(q.roll(step, dims=2), k, v, 0)
        masks.append(sparse.layers[0].mask)
    same = [torch.equal(a, b) for a, b in pairwise(masks)]
    assert same == [True, True, False, True, True, False]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"alpha": -0.1}, "alpha: -0.1 is below 0"), ({"refresh": 0}, "refresh: 0 is below 1")],
)
def test_configuration_errors_name_the_field(arguments, message):
    with pytest.raises(ValueError, match=message):
        STConfig(**arguments)
