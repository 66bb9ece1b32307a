"""Softmax thresholding: masks, densities, reuse."""

from itertools import pairwise

import pytest
import torch

from disc.schedule import STConfig
from golden.attention import (
    DenseAttention,
    FixedMaskAttention,
    attention_probabilities,
    masked_attention,
)
from golden.st import density, make_mask


@pytest.fixture
def qkv():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, 3, 40, 8, generator=generator) for _ in range(3)]


def test_alpha_zero_keeps_everything_and_equals_dense(qkv):
    q, k, v = qkv
    p = attention_probabilities(q, k)
    mask = make_mask(p, STConfig(alpha=0.0))
    assert density(mask) == 1.0
    torch.testing.assert_close(masked_attention(p, v, mask), DenseAttention()(q, k, v, 0))


def test_mask_of_ones_equals_dense(qkv):
    q, k, v = qkv
    out = FixedMaskAttention(torch.ones(40, 40, dtype=torch.bool))(q, k, v, 0)
    torch.testing.assert_close(out, DenseAttention()(q, k, v, 0))


def test_mask_keeps_what_the_definition_says(qkv):
    p = attention_probabilities(*qkv[:2])
    mask = make_mask(p, STConfig(alpha=0.8))
    for b, h, i, j in [(0, 0, 0, 1), (1, 2, 5, 17), (0, 1, 39, 0), (1, 0, 7, 7)]:
        assert mask[b, h, i, j] == (p[b, h, i, j] >= 0.8 / 40 or i == j)
    assert not torch.equal(mask[0, 0], mask[0, 1])  # per head


def test_density_falls_with_alpha_and_masks_are_nested(qkv):
    p = attention_probabilities(*qkv[:2])
    masks = [make_mask(p, STConfig(alpha=alpha)) for alpha in (0.0, 0.25, 0.5, 1.0, 2.0, 1e9)]
    for wider, narrower in pairwise(masks):
        assert not (narrower & ~wider).any()
        assert density(narrower) < density(wider)


def test_diagonal_survives_any_threshold(qkv):
    q, k, v = qkv
    p = attention_probabilities(q, k)
    mask = make_mask(p, STConfig(alpha=1e9))
    torch.testing.assert_close(mask, torch.eye(40, dtype=torch.bool).expand_as(mask))
    torch.testing.assert_close(masked_attention(p, v, mask), v)


def test_masked_attention_is_softmax_over_the_kept_keys(qkv):
    q, k, v = qkv
    p = attention_probabilities(q, k)
    mask = make_mask(p, STConfig(alpha=1.0))
    scores = (q @ k.transpose(-2, -1) / 8**0.5).masked_fill(~mask, float("-inf"))
    torch.testing.assert_close(masked_attention(p, v, mask), scores.softmax(-1) @ v)


def test_heads_may_share_one_mask_made_from_their_mean(qkv):
    p = attention_probabilities(*qkv[:2])
    shared = make_mask(p, STConfig(alpha=1.0, heads="shared"))
    assert shared.shape == (2, 1, 40, 40)
    mean = (p[:, 0] + p[:, 1] + p[:, 2]) / 3
    expected = (mean >= 1 / 40) | torch.eye(40, dtype=torch.bool)
    differ = (shared[:, 0] != expected).sum()  # a sum in another order may round otherwise
    assert differ <= 2


def test_row_tiles_of_a_mask_join_to_the_whole(qkv):
    p, st = attention_probabilities(*qkv[:2]), STConfig(alpha=1.5)
    tiles = [make_mask(p[:, :, first : first + 16], st, first) for first in (0, 16, 32)]
    assert torch.equal(torch.cat(tiles, dim=2), make_mask(p, st))
