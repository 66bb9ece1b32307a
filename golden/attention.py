"""Interchangeable attention: every block of `golden.model.DiT` calls one of these objects.

Contract of a core: ``core(q, k, v, layer) -> out`` with q float [B, H, R, d], k and v float
[B, H, N, d], out float [B, H, R, d].  R may be smaller than N: query rows are gathered when CTR
skips tokens.  `layer` is the block index, 0 nearest to the image.
"""

from __future__ import annotations

import math
from typing import Protocol

import torch
from torch import Tensor, nn


class AttentionCore(Protocol):
    """What a block needs of its attention, see the module's contract."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, layer: int) -> Tensor:
        """Return softmax(q kᵀ / √d) v or something in its place."""
        ...


class DenseAttention:
    """Plain attention in the fastest form that PyTorch has."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, layer: int) -> Tensor:
        """Attend with every query to every key."""
        return nn.functional.scaled_dot_product_attention(q, k, v)


class FixedMaskAttention:
    """Attention under one given mask, the same in every layer.

    Args:
        mask: bool, broadcastable to [B, H, R, N]; True keeps an entry.
    """

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, layer: int) -> Tensor:
        """Attend to the kept keys, renormalised over them."""
        return masked_attention(attention_probabilities(q, k), v, self.mask)


def attention_probabilities(q: Tensor, k: Tensor) -> Tensor:
    """softmax(q kᵀ / √d) over keys: [..., R, d] and [..., N, d] give [..., R, N]."""
    return (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(dim=-1)


def masked_attention(p: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Weigh values by the kept probabilities, renormalised to sum 1 per row.

    Args:
        p: dense probabilities [..., R, N].
        v: values [..., N, d].
        mask: bool, broadcastable to p; True keeps.  Every row must keep an entry.

    Returns:
        [..., R, d].
    """
    kept = torch.where(mask, p, 0.0)
    return (kept / kept.sum(dim=-1, keepdim=True)) @ v
