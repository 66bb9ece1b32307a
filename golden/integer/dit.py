"""`IntegerDiT`: the integer core in place of the float model in a sampling run."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from disc.config import NumberConfig
from disc.hashing import BankHash
from disc.program import MaskMode
from disc.schedule import Schedule
from disc.tables import DISTANCE_BITS, THRESHOLD_BITS, step_ratio_table
from golden.accelerate.feedback import OutputFeedback
from golden.accelerate.tokens import Rows
from golden.ctr import TokenDecision, TokenSelector, quantise_latent
from golden.integer.block import Sparsity
from golden.integer.calibration import Calibration
from golden.integer.lowering import Lowering
from golden.integer.network import ImageState, StepResult, denoise_step
from golden.integer.quantise import quantise
from golden.integer.rounding import Int
from golden.model.dit import DiT

LATENT_SCALE = 2.0**-12
"""Unit of the integer latent that the token selector compares; a power of two, so that its sums
are exact in float as well.  Latents saturate at 8."""


@dataclass
class _Image:
    state: ImageState
    selector: TokenSelector
    feedback: OutputFeedback | None
    trace: list[tuple[TokenDecision, StepResult]] = field(default_factory=list)


class IntegerDiT:
    """Denoiser for `golden.sampling.sample` that computes in integers, under CTR and ST.

    Every image of the batch has its own state; those with equal latents, such as the two of
    guidance, choose the same tokens.  Steps are counted by calls: a timestep that is not below
    that of the call before begins a new run.

    Parameters
    ----------
    model
        Float model: embedding, conditioning and weights.
    calibration
        Its scales.
    schedule
        What is computed when.
    number
        Number formats.
    hot_tau
        Column sparsity of the MLP: a refresh computes all hidden units, other steps only those
        that exceeded this for any token of the same image at the refresh.  None computes all.
    fill
        Columns to banks: masks are filled up, see `new_mask.filled`.

    Raises
    ------
    ValueError
        The schedule asks for something that the integer core does not have.
    """

    def __init__(
        self,
        model: DiT,
        calibration: Calibration,
        schedule: Schedule,
        *,
        number: NumberConfig | None = None,
        hot_tau: float | None = None,
        fill: BankHash | None = None,
    ) -> None:
        self.model, self.schedule, self.fill = model, schedule, fill
        self.number = number or NumberConfig()
        self.lowering = Lowering(model, calibration, self.number, hot_tau=hot_tau)
        tokens = model.config.tokens
        if schedule.st and schedule.st.alpha > tokens:
            raise ValueError(f"st.alpha: must be in [0, {tokens}] (N), got {schedule.st.alpha}")
        if fill and schedule.st and schedule.st.heads == "shared":
            raise ValueError("fill: needs a mask for each head, st.heads is 'shared'")
        if fill and fill.max_columns < tokens:
            raise ValueError(f"fill: the hash is for {fill.max_columns} columns, not {tokens}")
        self.ratios = self._ratios()
        self.keep_trace = False
        """Whether `trace` is filled; it takes some 10 MB a step at 1,024 tokens."""
        self._images: list[_Image] = []
        self._step, self._timestep = -1, 0.0

    def _ratios(self) -> Int | None:
        schedule, ctr = self.schedule, self.schedule.ctr
        if ctr is None:
            return None
        if ctr.forecast > 1:
            raise ValueError(
                f"ctr.forecast: the integer core has orders 0 and 1, got {ctr.forecast}"
            )
        if ctr.reference in ("output", "true-change"):
            raise ValueError(
                f"ctr.reference: the integer core compares latents or draws, got {ctr.reference!r}"
            )
        ends = (*schedule.refresh, schedule.steps)
        longest = max(b - a for a, b in pairwise(ends))
        if longest >= 1 << DISTANCE_BITS:
            raise ValueError(
                f"refresh: {longest} steps between two, allowed below {1 << DISTANCE_BITS}"
            )
        return np.array(step_ratio_table(ctr.damping)) if ctr.forecast else None

    def sparsity(self, step: int) -> Sparsity:
        """How blocks attend in a step."""
        st, refresh = self.schedule.st, self.schedule.is_refresh(step)
        if st is None or st.alpha == 0:
            return Sparsity(make_hot=refresh)
        make = self.schedule.makes_masks(step)
        return Sparsity(
            mode=MaskMode.GENERATE if make else MaskMode.MASKED,
            threshold=round(st.alpha / self.model.config.tokens * (1 << THRESHOLD_BITS)),
            share_residual=st.share_residual,
            one_mask=st.heads == "shared",
            make_hot=refresh,
            fill=self.fill,
        )

    def trace(self, image: int) -> list[tuple[TokenDecision, StepResult]]:
        """Decisions and results of the run so far, by step, if `keep_trace` was set before it."""
        return self._images[image].trace

    def __call__(self, z: Tensor, t: Tensor, y: Tensor) -> Tensor:
        """Predict the velocity, as `DiT` does.

        Raises
        ------
        ValueError
            More steps than the schedule has, a batch of another size than in the step before, or
            NaN in the latent.
        """
        self._begin_step(z, t)
        # One by one: the host's float arithmetic must not depend on the batch.
        return torch.cat(
            [self._one(i, z[i : i + 1], t[i : i + 1], y[i : i + 1]) for i in range(len(z))]
        )

    def _begin_step(self, z: Tensor, t: Tensor) -> None:
        if not torch.isfinite(z).all():
            raise ValueError("z: holds NaN or infinity")
        if self._step < 0 or float(t[0]) >= self._timestep:
            c = self.model.config
            feedback = self.schedule.ctr is not None and self.schedule.ctr.feedback
            self._images = [
                _Image(
                    ImageState.empty(c.depth, c.heads, c.tokens, c.head_dim),
                    TokenSelector(self.schedule, c.patch),
                    OutputFeedback(c.patch, c.channels) if feedback else None,
                )
                for _ in range(len(z))
            ]
            self._step = -1
        self._step, self._timestep = self._step + 1, float(t[0])
        if self._step >= self.schedule.steps:
            raise ValueError(
                f"step: {self._step} is outside 0..{self.schedule.steps - 1}, the steps of "
                f"schedule {self.schedule.name!r}"
            )
        if len(z) != len(self._images):
            raise ValueError(f"z: {len(z)} images, {len(self._images)} in the step before")

    @torch.no_grad()
    def _one(self, index: int, z: Tensor, t: Tensor, y: Tensor) -> Tensor:
        image, lowering, number = self._images[index], self.lowering, self.number
        calibration = lowering.calibration
        embedding = quantise(
            self.model.embed(z)[0].numpy(), float(calibration.residual), number.residual_bits
        )
        latent = quantise_latent(z[0].numpy(), LATENT_SCALE)
        decision = image.selector.decide(self._step, latent * LATENT_SCALE)
        result = denoise_step(
            embedding,
            decision.selected,
            self._step,
            lowering.constants[calibration.group(float(t[0]))],
            lowering.vectors(t, y),
            image.state,
            self.sparsity(self._step),
            self.ratios,
            number,
        )
        if self.keep_trace:
            image.trace.append((decision, result))
        patches = (result.out * calibration.final_out).astype(np.float32)
        out = self.model.unpatchify(torch.from_numpy(patches)[None])
        if image.feedback is None:
            return out
        # Of the host, like the sampler.
        rows = Rows([decision.selected], self.model.config.tokens)
        return image.feedback(self._step, rows, out)
