"""Sampling runs with everything written down that the pictures need."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from disc.schedule import Schedule, STConfig
from golden.accelerate import attach, detach
from golden.attention import attention_probabilities
from golden.ctr import TokenDecision, TokenSelector, patch_sums
from golden.inspect.persistence import MaskPersistence
from golden.inspect.similarity import Similarity, SimilarityMeter
from golden.inspect.work import MeasuredWork, measured_work
from golden.model.dit import DiT
from golden.sampling import StepHook, sample

Tell = Callable[[str], None]

LONGEST_DISTANCE = 10
"""Steps over which masks are tried at most."""


@dataclass(frozen=True, eq=False)
class DenseRun:
    """Everything computed in every step.  Attention is that of the first image."""

    images: NDArray[np.float32]
    """[B, C, px, px], the results."""
    similarity: Similarity
    persistence: MaskPersistence
    probabilities: dict[int, Tensor]
    """Step to [N, N], of the wanted steps, one layer and head."""


@dataclass(frozen=True, eq=False)
class AcceleratedRun:
    """The same seeds with a schedule attached.  Latents and decisions are the first image's."""

    images: NDArray[np.float32]
    latents: list[NDArray[np.float32]]
    """z_t [C, px, px] of every step."""
    decisions: list[TokenDecision]
    work: MeasuredWork
    head_density: NDArray[np.float64]
    """[steps, L, H]: attention entries computed, of computed tokens × N; NaN if there are none."""


class _Steps(StepHook):
    """Knows the step, tells about it, and lets a function run after each."""

    def __init__(
        self, what: str, steps: int, tell: Tell, after: Callable[[], None] = lambda: None
    ) -> None:
        self.what, self.steps, self.tell, self.after = what, steps, tell, after
        self.step = 0

    def before_step(self, step: int, z: Tensor) -> None:
        self.step = step
        self.tell(f"{self.what}: step {step + 1} of {self.steps}")

    def after_step(self, step: int, z: Tensor, v: Tensor) -> None:
        self.after()


def run_dense(
    model: DiT,
    labels: Sequence[int],
    seeds: Sequence[int],
    *,
    steps: int,
    st: STConfig,
    at: Collection[int],
    layer: int,
    head: int,
    tell: Tell,
) -> DenseRun:
    """Sample with everything computed, watching branches and attention.

    Args:
        model: must not be attached.
        labels: classes.
        seeds: as many.
        steps: at least 2.
        st: how the masks that are tried on later steps are made; none acts.
        at: steps whose attention probabilities are kept, of `layer` and `head`.
        layer: 0 .. depth − 1.
        head: 0 .. heads − 1.
        tell: told what is being done.
    """
    persistence = MaskPersistence(st, min(LONGEST_DISTANCE, steps - 1))
    probabilities: dict[int, Tensor] = {}
    meter = SimilarityMeter(model)
    hook = _Steps("dense run", steps, tell, meter.end_step)

    def observe(
        where: int, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, out: Tensor
    ) -> None:
        p = attention_probabilities(q[0], k[0])
        persistence.add(where, p)
        if where == layer and hook.step in at:
            probabilities[hook.step] = p[head].clone()

    attach(model, Schedule(steps=steps, refresh=(0,))).attention.observer = observe
    try:
        images = sample(model, labels, seeds, steps=steps, hooks=[hook])
    finally:
        detach(model)
        meter.remove()
    return DenseRun(images.numpy(), meter.result(), persistence, probabilities)


class _Decisions(StepHook):
    """Decides as the accelerator does, from the same latents and outputs, and keeps it."""

    def __init__(self, schedule: Schedule, patch: int) -> None:
        self.selector, self.patch = TokenSelector(schedule, patch), patch
        self.latents: list[NDArray[np.float32]] = []
        self.decisions: list[TokenDecision] = []
        self._outputs: list[NDArray[np.float32]] = []

    def before_step(self, step: int, z: Tensor) -> None:
        scores = None
        if len(self._outputs) == 2:
            scores = patch_sums(np.abs(self._outputs[0] - self._outputs[1]), self.patch)
        self.latents.append(z[0].numpy().copy())
        self.decisions.append(self.selector.decide(step, self.latents[-1], scores))

    def after_step(self, step: int, z: Tensor, v: Tensor) -> None:
        self._outputs = [v[0].numpy().copy(), *self._outputs[:1]]


def run_accelerated(
    model: DiT, labels: Sequence[int], seeds: Sequence[int], schedule: Schedule, tell: Tell
) -> AcceleratedRun:
    """Sample with the schedule attached.

    Args:
        model: must not be attached.
        labels: classes.
        seeds: as many.
        schedule: its steps are the run's.
        tell: told what is being done.

    Raises:
        ValueError: the schedule chooses tokens by "true-change", which is known only inside.
    """
    if schedule.ctr is not None and schedule.ctr.reference == "true-change":
        raise ValueError(
            "ctr.reference: 'true-change' takes a dense pass a step and is no method; inspect one "
            "of last-computed, adjacent, second-difference, output, random"
        )
    decisions = _Decisions(schedule, model.config.patch)
    accelerator = attach(model, schedule)

    hook = _Steps(f"accelerated run, {model.config.tokens} tokens", schedule.steps, tell)
    try:
        images = sample(model, labels, seeds, steps=schedule.steps, hooks=[hook, decisions])
        density = np.stack([record.head_density for record in accelerator.log])
        density[[sum(record.computed) == 0 for record in accelerator.log]] = np.nan
        work = measured_work(accelerator)
        for decision, record in zip(decisions.decisions, accelerator.log, strict=True):
            assert len(decision.selected) == record.computed[0]
    finally:
        detach(model)
    return AcceleratedRun(images.numpy(), decisions.latents, decisions.decisions, work, density)
