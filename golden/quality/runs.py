"""Sampling runs to be judged: images and the work they took."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from disc.schedule import Schedule
from golden.accelerate import attach, detach
from golden.model.dit import DiT
from golden.sampling import Denoiser, sample
from golden.st import MaskMaker, make_mask

Tell = Callable[[int, int], None]
"""Called with images done and images in all."""


@dataclass(frozen=True, eq=False)
class Run:
    """Images of one method with the work of all of them together, in multiply-accumulates."""

    images: NDArray[np.float32]
    """[n, C, px, px]; image i has seed i + first seed."""
    macs: dict[str, int]
    """By kind of work, and "total"; empty if another denoiser did it."""
    dense_macs: dict[str, int]
    """The same, had every step computed all there is."""

    @property
    def work(self) -> float:
        """Total MACs relative to dense."""
        return self.macs["total"] / self.dense_macs["total"]

    @property
    def attention(self) -> float:
        """MACs of Q Kᵀ and P V relative to dense."""
        return self.macs["attention"] / self.dense_macs["attention"]


def labels_of(model: DiT, seeds: Sequence[int]) -> list[int]:
    """Classes in turn, so that all occur equally often."""
    return [seed % model.config.classes for seed in seeds]


def batch_size(model: DiT) -> int:
    """Images sampled at a time; bounds the attention masks held to about 100 MB a layer."""
    return max(1, min(10, 4096 // model.config.tokens))


def sample_run(
    model: DiT,
    schedule: Schedule,
    seeds: Sequence[int],
    *,
    guidance: float = 1.0,
    denoiser: Denoiser | None = None,
    maker: MaskMaker = make_mask,
    tell: Tell = lambda done, total: None,
) -> Run:
    """Sample one image a seed with a schedule; class is seed modulo the number of classes.

    Args:
        model: what is sampled.
        schedule: attached while it is.
        seeds: one an image.
        guidance: classifier-free guidance scale, 1 is off.
        denoiser: evaluated in place of the model, and by itself bound to the schedule; the run
            then knows no work.
        maker: makes the masks of ST, see `golden.attach`; a denoiser makes its own.
        tell: called after every batch.

    Raises:
        ValueError: no seeds, or the model is attached already.
    """
    if not seeds:
        raise ValueError("seeds: none given")
    images: list[NDArray[np.float32]] = []
    macs: dict[str, int] = {}
    dense: dict[str, int] = {}
    size = batch_size(model)
    for first in range(0, len(seeds), size):
        part = seeds[first : first + size]
        labels = labels_of(model, part)
        if denoiser is None:
            accelerator = attach(model, schedule, maker=maker)
        try:
            drawn = sample(
                model,
                labels,
                part,
                steps=schedule.steps,
                guidance=guidance,
                denoiser=denoiser,
            )
            images.append(drawn.numpy())
            if denoiser is None:
                _add(macs, accelerator.macs())
                _add(dense, accelerator.dense_macs())
        finally:
            if denoiser is None:
                detach(model)
        tell(first + len(part), len(seeds))
    return Run(np.concatenate(images), macs, dense)


def _add(total: dict[str, int], more: dict[str, int]) -> None:
    for kind, count in more.items():
        total[kind] = total.get(kind, 0) + count
