"""Run a trained model densely and with a schedule, and derive what the pictures show."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from disc.schedule import Schedule, STConfig
from golden.inspect.persistence import rank_correlation, same_side, sorted_overlay
from golden.inspect.runs import AcceleratedRun, DenseRun, Tell, run_accelerated, run_dense
from golden.inspect.work import MeasuredWork
from golden.model.checkpoint import SHIPPED, load_checkpoint
from golden.model.dit import DiT
from golden.quality.metrics import psnr, psnr_per_image

DEFAULT_ALPHA = 0.5
"""Of the masks that are tried over distance if the schedule makes none."""
_PAIRS = (0.2, 0.75)
"""Where in a run attention is shown: steps 4/5 and 15/16 of 20, as in the paper."""
_LATENT = 0.65
"""The same for the latent: steps 12/13 of 20."""


@dataclass(frozen=True, eq=False)
class Study:
    """One model under one schedule; image i has seed `seed` + i and class that modulo classes."""

    name: str
    model: DiT
    seed: int
    labels: list[int]
    schedule: Schedule
    st: STConfig
    """Of the masks that are tried over distance."""
    layer: int
    head: int
    pairs: list[tuple[int, int]]
    """Adjacent steps of which attention is shown."""
    latent_step: int
    dense: DenseRun
    accelerated: AcceleratedRun
    others: dict[str, tuple[int, MeasuredWork]]
    """Other checkpoints measured with the same schedule: name to resolution in pixels and work."""

    @property
    def psnr(self) -> float:
        """Of all images together, dB, accelerated against dense."""
        return psnr(self.accelerated.images, self.dense.images)

    @property
    def psnr_per_image(self) -> NDArray[np.float64]:
        """[B], dB."""
        return psnr_per_image(self.accelerated.images, self.dense.images)

    def pair_statistics(self) -> dict[tuple[int, int], dict[str, Any]]:
        """How the entries of a head change within each pair of steps."""
        found = {}
        for pair in self.pairs:
            before, after = (self.dense.probabilities[step] for step in pair)
            found[pair] = {
                "same_side": same_side(before, after, self.st.alpha / len(before)),
                "rank_correlation": rank_correlation(before, after),
                "curve": sorted_overlay(before, after),
            }
        return found


def run_study(
    checkpoint: str | Path,
    schedule: Schedule,
    *,
    seed: int = 0,
    layer: int = 2,
    head: int = 1,
    step: int | None = None,
    every_checkpoint: bool = False,
    tell: Tell = lambda text: None,
) -> Study:
    """Sample every class once, densely and with the schedule.

    Args:
        checkpoint: "digits-256", "digits-1024" or a path.
        schedule: at least 2 steps.
        seed: of the first image.
        layer: whose attention is shown, 0 .. depth − 1.
        head: the same, 0 .. heads − 1.
        step: whose latent and selection are shown, 1 .. steps − 1; None takes one about two
            thirds into the run in which tokens are selected.
        every_checkpoint: also measure the work of the other shipped checkpoints.
        tell: told what is being done.

    Raises:
        ValueError: an argument is out of range; the message names it, its value and the range.
        CheckpointError: (a ValueError) the checkpoint is missing or unusable.
    """
    model = load_checkpoint(checkpoint)
    for field, value, count in (
        ("layer", layer, model.config.depth),
        ("head", head, model.config.heads),
    ):
        if not 0 <= value < count:
            raise ValueError(f"{field}: {value} is outside 0..{count - 1}")
    steps = schedule.steps
    if steps < 2:
        raise ValueError(f"steps: {steps} is below 2, and adjacent steps are to be compared")
    if step is not None and not 1 <= step < steps:
        raise ValueError(f"step: {step} is outside 1..{steps - 1}, the steps that follow another")
    if seed < 0:
        raise ValueError(f"seed: {seed} is below 0")
    count = model.config.classes
    seeds = [seed + i for i in range(count)]
    labels = [s % count for s in seeds]
    pairs = sorted({(step, step + 1) for step in (_scaled(part, steps) for part in _PAIRS)})
    st = schedule.st or STConfig(alpha=DEFAULT_ALPHA)
    accelerated = run_accelerated(model, labels, seeds, schedule, tell)
    dense = run_dense(
        model,
        labels,
        seeds,
        steps=steps,
        st=st,
        at={step for pair in pairs for step in pair},
        layer=layer,
        head=head,
        tell=tell,
    )
    others = {}
    for name in SHIPPED if every_checkpoint else ():
        if name != str(checkpoint):
            other = load_checkpoint(name)
            work = run_accelerated(other, labels, seeds, schedule, tell).work
            others[name] = (other.config.size_px, work)
    return Study(
        name=Path(checkpoint).stem,
        model=model,
        seed=seed,
        labels=labels,
        schedule=schedule,
        st=st,
        layer=layer,
        head=head,
        pairs=pairs,
        latent_step=_selecting(schedule, _scaled(_LATENT, steps)) if step is None else step,
        dense=dense,
        accelerated=accelerated,
        others=others,
    )


def _scaled(part: float, steps: int) -> int:
    """Step at a part of the run that has a next one."""
    return min(int(part * steps), steps - 2)


def _selecting(schedule: Schedule, step: int) -> int:
    """Step from 1 on in which tokens are selected, the first at or after `step` if there is one."""
    steps = range(1, schedule.steps)
    choices = [s for s in steps if schedule.ctr and not schedule.is_refresh(s)] or [max(1, step)]
    return next((s for s in choices if s >= step), choices[-1])
