"""Deterministic DDIM sampling with a hook per step, through which CTR and ST are driven.

DDIM: Song et al., arXiv 2010.02502, with η = 0.  Steps count from 0, the noisiest; step i goes
from time 1 − i/S to 1 − (i + 1)/S.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from golden.model.dit import DiT
from golden.schedule import TIMESTEP_SCALE, clean_and_noise, noise_shift, signal_and_noise

Denoiser = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(z [B, C, px, px], timestep [B], class [B]) to velocity [B, C, px, px], as `DiT` itself."""


class StepHook:
    """Override what you need; both methods run once a step."""

    def before_step(self, step: int, z: Tensor) -> None:
        """Called with the latent z_t [B, C, px, px] before the network sees it."""

    def after_step(self, step: int, z: Tensor, v: Tensor) -> None:
        """Called with z_t and the velocity, after guidance, both [B, C, px, px]."""


def initial_noise(seeds: Sequence[int], channels: int, size_px: int) -> Tensor:
    """Noise float32 [B, C, px, px]; each image's depends on its own seed only."""
    shape = (channels, size_px, size_px)
    return torch.stack(
        [torch.randn(shape, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
    )


@torch.no_grad()
def sample(
    model: DiT,
    labels: Sequence[int],
    seeds: Sequence[int],
    *,
    steps: int = 50,
    guidance: float = 1.0,
    hooks: Sequence[StepHook] = (),
    denoiser: Denoiser | None = None,
    stop_after: int | None = None,
) -> Tensor:
    """Draw one image per label and seed.

    Args:
        model: gives the sizes and, unless `denoiser` is given, the velocity.
        labels: classes; `model.config.null_class` for none.
        seeds: one per image.
        steps: network evaluations S.
        guidance: classifier-free guidance scale w in v = v_null + w (v_class − v_null)
            (Ho and Salimans, arXiv 2207.12598); 1 is off.  Otherwise the network sees a batch of
            2 B: first all with their class, then all with the null class.
        hooks: called in order in every step.
        denoiser: evaluated in place of `model`, for instance one that skips tokens.
        stop_after: return after this step, with the latent as it is then.

    Returns:
        float32 [B, C, px, px]; ink is 1.5, background 0.

    Raises:
        ValueError: steps < 1, or labels and seeds differ in number, or a class does not exist.
    """
    config = model.config
    if steps < 1:
        raise ValueError(f"steps: {steps} is below 1")
    if len(labels) != len(seeds):
        raise ValueError(f"seeds: {len(seeds)} of them for {len(labels)} labels")
    for label in labels:
        if not 0 <= label <= config.null_class:
            raise ValueError(f"labels: {label} is outside 0..{config.null_class}")
    denoise = denoiser or model
    y = torch.tensor(labels, dtype=torch.int64)
    z = initial_noise(seeds, config.channels, config.size_px)
    u = 1 - torch.arange(steps + 1, dtype=torch.float64) / steps
    alpha, sigma = (s.float() for s in signal_and_noise(u, noise_shift(config.size_px)))
    for step in range(steps):
        for hook in hooks:
            hook.before_step(step, z)
        t = torch.full((len(y),), float(u[step]) * TIMESTEP_SCALE)
        if guidance == 1.0:
            v = denoise(z, t, y)
        else:
            null = torch.full_like(y, config.null_class)
            both = denoise(torch.cat([z, z]), torch.cat([t, t]), torch.cat([y, null]))
            v_class, v_null = both.chunk(2)
            v = v_null + guidance * (v_class - v_null)
        for hook in hooks:
            hook.after_step(step, z, v)
        x0, noise = clean_and_noise(z, v, alpha[step], sigma[step])
        z = alpha[step + 1] * x0 + sigma[step + 1] * noise
        if step == stop_after:
            break
    return z
