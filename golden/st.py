"""Softmax Thresholding: which attention entries are kept.

DiSC (arXiv 2605.25798): small attention probabilities are dropped, and because attention maps
hardly change between denoising steps, the mask made in one step serves the following ones.  The
threshold is taken relative to the uniform probability 1/N, so one α serves all resolutions.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from disc.schedule import STConfig

MaskMaker = Callable[[Tensor, STConfig, int], Tensor]
"""Arguments and result as of `make_mask`, by whatever rule; no row may be empty."""


def make_mask(p: Tensor, st: STConfig, first: int = 0) -> Tensor:
    """Keep what matters, and the diagonal, so that no row is empty.

    Args:
        p: dense attention probabilities [..., H, R, N] of R query rows.
        st: threshold α relative to 1/N, and whether heads share a mask; if so, their mean
            probability is compared.
        first: token of the first row; row i is token first + i.

    Returns:
        bool [..., H, R, N], or [..., 1, R, N] if heads share it; True where p ≥ α / N or on the
        diagonal.
    """
    rows, n = p.shape[-2:]
    if st.heads == "shared":
        p = p.mean(dim=-3, keepdim=True)
    token = torch.arange(first, first + rows, device=p.device)[:, None]
    return (p >= st.alpha / n) | (torch.arange(n, device=p.device) == token)


def density(mask: Tensor) -> float:
    """Fraction of entries kept, over all leading axes."""
    return mask.float().mean().item()
