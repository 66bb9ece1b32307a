"""Real attention inputs, masks and token lists out of a sampling run, for tests and studies."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from disc.schedule import CTRConfig, Schedule, STConfig
from golden.accelerate import attach
from golden.attention import attention_probabilities
from golden.ctr import TokenDecision, TokenSelector
from golden.model.checkpoint import load_checkpoint
from golden.model.dit import DiT
from golden.sampling import StepHook, sample

DEFAULT_CHECKPOINT = "digits-256"
DEFAULT_REUSE = 0.5
"""Fraction of tokens reused when no CTR configuration is given."""


@dataclass(frozen=True, eq=False)
class AttentionCapture:
    """One attention head in one step of one image.  N tokens, d channels of the head.

    Captures of one run share memory where they show the same thing: read, do not write.
    """

    step: int
    layer: int
    head: int
    q: NDArray[np.float32]
    """[N, d]; scores are q kᵀ / √d, the division is not in q."""
    k: NDArray[np.float32]
    """[N, d]."""
    v: NDArray[np.float32]
    """[N, d]."""
    p_dense: NDArray[np.float32]
    """[N, N], softmax of the scores over all keys."""
    mask: NDArray[np.bool_]
    """[N, N], True keeps: the mask in force, made here in a refresh step, else the reused one."""
    refresh: bool
    """Whether `mask` was made in this step."""
    rows: NDArray[np.int64]
    """[S], tokens that CTR selects in this step, ascending."""
    z_t: NDArray[np.float32]
    """[C, px, px], latent of this step."""
    z_ref: NDArray[np.float32]
    """[C, px, px], what CTR compared it with; z_t itself in step 0."""


def capture_attention(
    checkpoint: str | Path = DEFAULT_CHECKPOINT,
    *,
    seed: int = 0,
    label: int | None = None,
    steps: int = 20,
    step: int = 12,
    layer: int = 2,
    head: int = 1,
    alpha: float | None = 0.5,
    refresh: int = 5,
    ctr: CTRConfig | None = None,
) -> AttentionCapture:
    """Sample one image as far as `step` and return what one head saw there.

    Args:
        checkpoint: "digits-256", "digits-1024" or a path.
        seed: of the noise.
        label: class, or None for seed modulo the number of classes.
        steps: of the whole sampling run.
        step: 0 (noisiest) .. steps − 1.
        layer: block, 0 .. depth − 1.
        head: 0 .. heads − 1.
        alpha: threshold of ST relative to 1/N; None samples densely, with masks of ones.
        refresh: ST masks are made in every step divisible by this.
        ctr: token decision; by default half the tokens are reused between refreshes.  CTR
            decides but does not act here: every token is computed in every step.

    Raises:
        ValueError: an argument is out of range; the message names it, its value and the range.
        CheckpointError: (a ValueError) the checkpoint is missing or unusable.
    """
    model = load_checkpoint(checkpoint)
    _check("layer", layer, model.config.depth)
    _check("head", head, model.config.heads)
    run = _run(model, seed, label, steps, [step], alpha, refresh, ctr)
    return run.capture(step, layer, head)


def capture_all(
    checkpoint: str | Path = DEFAULT_CHECKPOINT,
    *,
    at: Collection[int],
    seed: int = 0,
    label: int | None = None,
    steps: int = 20,
    alpha: float | None = 0.5,
    refresh: int = 5,
    ctr: CTRConfig | None = None,
) -> dict[tuple[int, int, int], AttentionCapture]:
    """Return captures of every layer and head at several steps, from one sampling run.

    Args as for `capture_attention`; `at` lists the steps.

    Returns:
        (step, layer, head) to capture.  At 1,024 tokens each takes 5 MB.

    Raises:
        ValueError: as `capture_attention`.
    """
    model = load_checkpoint(checkpoint)
    run = _run(model, seed, label, steps, at, alpha, refresh, ctr)
    return {
        (step, layer, head): run.capture(step, layer, head)
        for step in sorted(set(at))
        for layer in range(model.config.depth)
        for head in range(model.config.heads)
    }


def capture_masks(
    checkpoint: str | Path = DEFAULT_CHECKPOINT,
    *,
    at: Collection[int] | None = None,
    seed: int = 0,
    label: int | None = None,
    steps: int = 20,
    alpha: float = 0.5,
    refresh: int = 5,
) -> tuple[NDArray[np.bool_], list[int]]:
    """Masks in force at several steps, all layers and heads, for studies of bank balance.

    Args as for `capture_attention`; `at` lists the steps, None being all that make masks.

    Returns:
        bool [steps, layers, heads, N, N], and the steps, ascending.

    Raises:
        ValueError: as `capture_attention`.
    """
    chosen = sorted(set(range(0, steps, max(1, refresh)) if at is None else at))
    model = load_checkpoint(checkpoint)
    run = _run(model, seed, label, steps, chosen, alpha, refresh, None)
    layers = range(model.config.depth)
    masks = [[run.inputs[step, layer].mask[0].numpy() for layer in layers] for step in chosen]
    return np.array(masks), chosen


@dataclass(frozen=True, eq=False)
class _LayerInputs:
    """Batch of one: q, k and v [1, H, N, d], mask [1, H, N, N]."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor


class _Recorder(StepHook):
    """Keeps what attention sees, and what CTR decides, in the wanted steps."""

    def __init__(
        self, schedule: Schedule, wanted: Collection[int], selector: TokenSelector
    ) -> None:
        self.schedule, self.wanted, self.selector = schedule, set(wanted), selector
        self.step = 0
        self.inputs: dict[tuple[int, int], _LayerInputs] = {}
        self.latents: dict[int, NDArray[np.float32]] = {}
        self.decisions: dict[int, TokenDecision] = {}

    def before_step(self, step: int, z: Tensor) -> None:
        self.step = step
        decision = self.selector.decide(step, z[0].numpy())
        if step in self.wanted:
            self.latents[step] = z[0].numpy().copy()
            self.decisions[step] = decision

    def observe(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, out: Tensor
    ) -> None:
        if self.step in self.wanted:
            if mask is None:
                mask = torch.ones(*q.shape[:3], k.shape[2], dtype=torch.bool)
            self.inputs[self.step, layer] = _LayerInputs(q, k, v, mask)

    def capture(self, step: int, layer: int, head: int) -> AttentionCapture:
        seen = self.inputs[step, layer]
        q, k, v = (x[0, head].contiguous() for x in (seen.q, seen.k, seen.v))
        return AttentionCapture(
            step=step,
            layer=layer,
            head=head,
            q=q.numpy(),
            k=k.numpy(),
            v=v.numpy(),
            p_dense=attention_probabilities(q, k).numpy(),
            mask=seen.mask[0, head].numpy(),
            refresh=self.schedule.makes_masks(step),
            rows=self.decisions[step].selected,
            z_t=self.latents[step],
            z_ref=self.decisions[step].z_ref,
        )


def _run(
    model: DiT,
    seed: int,
    label: int | None,
    steps: int,
    at: Collection[int],
    alpha: float | None,
    refresh: int,
    ctr: CTRConfig | None,
) -> _Recorder:
    """Sample one image as far as the last wanted step, recording the wanted ones."""
    if steps < 1:
        raise ValueError(f"steps: {steps} is below 1")
    for step in at:
        _check("step", step, steps)
    if not at:
        raise ValueError("at: no step is listed")
    if refresh < 1:
        raise ValueError(f"refresh: {refresh} is below 1")
    # Masks act at once and no residual is added, as on the attention engine.
    st = None if alpha is None else STConfig(alpha=alpha, share_residual=False)
    schedule = Schedule.periodic(steps, every=refresh, st=st)
    decide = Schedule.periodic(steps, every=refresh, ctr=ctr or CTRConfig(reuse=DEFAULT_REUSE))
    recorder = _Recorder(schedule, at, TokenSelector(decide, model.config.patch))
    labels: Sequence[int] = [seed % model.config.classes if label is None else label]
    attach(model, schedule).attention.observer = recorder.observe
    sample(model, labels, [seed], steps=steps, hooks=[recorder], stop_after=max(at))
    return recorder


def _check(field: str, value: int, count: int) -> None:
    if not 0 <= value < count:
        raise ValueError(f"{field}: {value} is outside 0..{count - 1}")
