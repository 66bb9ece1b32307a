"""Softmax Thresholding with mask reuse: attention entries that are dropped, and for how long.

DiSC (arXiv 2605.25798): small attention probabilities are dropped, and because attention maps
hardly change between denoising steps, the mask made in one step serves the following ones.  The
threshold is taken relative to the uniform probability 1/N, so one α serves all resolutions.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from golden.attention import attention_probabilities, masked_attention
from golden.sampling import StepHook


@dataclass(frozen=True)
class STConfig:
    """Threshold and schedule.

    Attributes:
        alpha: an entry is kept iff its probability is ≥ alpha / N; 0 keeps everything.
        refresh: masks are made anew in every step divisible by this, and reused in between.

    Raises:
        ValueError: a field is out of range; the message names it, its value and the range.
    """

    alpha: float = 0.5
    refresh: int = 5

    def __post_init__(self) -> None:
        if not self.alpha >= 0:
            raise ValueError(f"alpha: {self.alpha} is below 0")
        if self.refresh < 1:
            raise ValueError(f"refresh: {self.refresh} is below 1")

    def is_refresh(self, step: int) -> bool:
        """Whether masks are made in this step."""
        return step % self.refresh == 0


def make_mask(p: Tensor, alpha: float) -> Tensor:
    """Keep what matters, and the diagonal, so that no row is empty.

    Args:
        p: dense attention probabilities [..., N, N].
        alpha: threshold relative to 1/N.

    Returns:
        bool [..., N, N], True where p ≥ alpha / N or on the diagonal.
    """
    n = p.shape[-1]
    return (p >= alpha / n) | torch.eye(n, dtype=torch.bool)


def density(mask: Tensor) -> float:
    """Fraction of entries kept, over all leading axes."""
    return mask.float().mean().item()


@dataclass
class LayerState:
    """What a layer carries from a refresh step to the steps that reuse its mask.

    Residual sharing, the correction that is added while a mask is reused, is made at the same
    moment as the mask and lives as long, so it belongs here too.
    """

    mask: Tensor
    """bool [B, H, N, N]."""


class SparseAttention(StepHook):
    """Attention core (see `golden.attention`) and step hook in one.

    Register it as a hook of `golden.sampling.sample` and set it on the model.  In refresh steps
    each layer and head makes its mask from its own dense probabilities and uses it at once.
    """

    def __init__(self, config: STConfig) -> None:
        self.config = config
        self.step = 0
        self.layers: dict[int, LayerState] = {}

    def before_step(self, step: int, z: Tensor) -> None:
        """Take note of the step; masks of an earlier sampling run end with step 0."""
        self.step = step
        if self.config.is_refresh(step):
            self.layers.clear()

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, layer: int) -> Tensor:
        """Attend under the layer's mask, q, k and v [B, H, N, d]."""
        p = attention_probabilities(q, k)
        if layer not in self.layers:
            self.layers[layer] = LayerState(make_mask(p, self.config.alpha))
        return masked_attention(p, v, self.layers[layer].mask)
