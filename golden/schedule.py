"""Noise schedule: cosine, shifted with the resolution, and the algebra of v-prediction.

z = α x₀ + σ ε with σ/α = shift · tan(π u / 2), time u in [0, 1].  Cosine schedule: Nichol and
Dhariwal, arXiv 2102.09672.  Shift and v-prediction: Hoogeboom et al., "simple diffusion",
arXiv 2301.11093; Salimans and Ho, arXiv 2202.00512.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

TIMESTEP_SCALE = 1000.0
"""The network is told 1000 u, as if the schedule had a thousand steps."""

BASE_PX = 32
"""Resolution at which the schedule is the plain cosine."""


def noise_shift(size_px: int) -> float:
    """Factor on σ/α: averaging 2x2 pixels halves the noise, so twice the edge needs twice it."""
    return size_px / BASE_PX


def signal_and_noise(u: Tensor, shift: float) -> tuple[Tensor, Tensor]:
    """α and σ, with α² + σ² = 1, at times u; exact at both ends (1, 0 and 0, 1)."""
    angle = torch.atan2(shift * torch.sin(u * math.pi / 2), torch.cos(u * math.pi / 2))
    angle = torch.where(u >= 1, math.pi / 2, angle)
    return torch.where(u >= 1, 0.0, torch.cos(angle)), torch.sin(angle)


def clean_and_noise(z: Tensor, v: Tensor, alpha: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
    """x₀ = α z − σ v and ε = σ z + α v."""
    return alpha * z - sigma * v, sigma * z + alpha * v
