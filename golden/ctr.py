"""Cached Token Reuse: which tokens are computed in a denoising step, and which are reused.

The decision of DiSC (arXiv 2605.25798): a token whose latent hardly changed is not computed.
score = mean over the token's patch and channels of |z_t − z_ref|; tokens are numbered row-major
over the patch grid, in the order of the model's token axis.  Lists of tokens ascend.

`select_tokens_int` is the same decision in the integers of the hardware.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from disc.schedule import Schedule

Latent = NDArray[np.float32]
Tokens = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TokenDecision:
    """The lists of one step.  `selected` and `reused` ascend and partition 0..N − 1."""

    step: int
    selected: Tokens
    """int64 [S], computed in this step."""
    reused: Tokens
    """int64 [N − S]."""
    scores: NDArray[np.float32]
    """float32 [N], units of the latent; 0 in step 0, which has nothing to compare with."""
    z_ref: Latent
    """float32 [C, h, w], what z_t was compared with; z_t itself in step 0."""


class TokenSelector:
    """Decides step by step for one image; both guidance branches share its lists.

    Args:
        schedule: refresh steps, and with `ctr` how to choose in the others; without, all tokens
            are computed in every step.
        patch: edge of a token in pixels of the latent.
    """

    def __init__(self, schedule: Schedule, patch: int) -> None:
        self.schedule, self.patch = schedule, patch
        self._step = -1
        self._history: list[Latent] = []
        self._computed: Latent | None = None

    def decide(self, step: int, z: ArrayLike, scores: ArrayLike | None = None) -> TokenDecision:
        """Choose the tokens of a step and take note of them for the next.

        Args:
            step: 0, 1, 2… without a gap.
            z: latent float [C, h, w], h and w multiples of the patch.
            scores: [N], of the references that do not compare latents: "output", "true-change".

        Raises:
            ValueError: a step was skipped or repeated, or goes beyond the schedule, z does not
                fit the patch or holds NaN or infinity, or scores are missing.
        """
        if step != self._step + 1:
            raise ValueError(f"step: {step} does not follow {self._step}")
        if step >= self.schedule.steps:
            raise ValueError(
                f"step: {step} is outside 0..{self.schedule.steps - 1}, the steps of schedule "
                f"{self.schedule.name!r}"
            )
        z = np.array(z, dtype=np.float32)
        if not np.isfinite(z).all():
            raise ValueError(f"latent: holds NaN or infinity in step {step}")
        self._step = step
        z_ref = self._reference(z)
        change = patch_sums(np.abs(z - z_ref), self.patch) / np.float32(len(z) * self.patch**2)
        if step > 0 and self.schedule.ctr:
            change = self._scores(change, scores)
        chosen = self._choose(step, change)
        if self._computed is None:
            self._computed = z.copy()
        copy_tokens(z, self._computed, np.flatnonzero(chosen), self.patch)
        self._history = [z, *self._history[:1]]
        return TokenDecision(step, np.flatnonzero(chosen), np.flatnonzero(~chosen), change, z_ref)

    def _reference(self, z: Latent) -> Latent:
        reference = self.schedule.ctr.reference if self.schedule.ctr else None
        if self._computed is None:
            return z
        if reference == "adjacent":
            return self._history[0]
        if reference == "second-difference" and len(self._history) > 1:
            return 2 * self._history[0] - self._history[1]
        return self._computed.copy()

    def _scores(self, change: NDArray[np.float32], given: ArrayLike | None) -> Latent:
        assert self.schedule.ctr is not None
        reference = self.schedule.ctr.reference
        if reference == "random":
            random = np.random.default_rng((self.schedule.ctr.seed, self._step))
            return random.random(len(change), dtype=np.float32)
        if reference not in ("output", "true-change") or self.schedule.is_refresh(self._step):
            return change
        scores = np.array([] if given is None else given, dtype=np.float32)
        if scores.shape != change.shape:
            raise ValueError(
                f"scores: shape {scores.shape} is not {change.shape}, one a token, as reference "
                f"{reference!r} needs"
            )
        return scores

    def _choose(self, step: int, scores: NDArray[np.float32]) -> NDArray[np.bool_]:
        ctr = self.schedule.ctr
        if ctr is None or self.schedule.is_refresh(step):
            return np.ones(len(scores), bool)
        threshold = self.schedule.threshold(step)
        if threshold is not None:
            return scores >= threshold
        reuse = self.schedule.reuse(step)
        assert reuse is not None
        count = len(scores) - round(reuse * len(scores))
        chosen = np.zeros(len(scores), bool)
        chosen[np.argsort(-scores, kind="stable")[:count]] = True  # ties: lower index first
        return chosen


def patch_sums(x: NDArray[Any], patch: int) -> NDArray[Any]:
    """Sum [C, h, w] over channels and each patch, giving [N], row-major over the patch grid.

    Raises:
        ValueError: x is not three-dimensional, or h or w is no multiple of `patch`.
    """
    if x.ndim != 3 or x.shape[1] % patch or x.shape[2] % patch:
        raise ValueError(
            f"latent: shape {x.shape} is not [C, h, w] with h and w multiples of patch = {patch}"
        )
    c, h, w = x.shape
    return x.reshape(c, h // patch, patch, w // patch, patch).sum(axis=(0, 2, 4)).reshape(-1)


def copy_tokens(source: NDArray[Any], target: NDArray[Any], tokens: Tokens, patch: int) -> None:
    """Copy the patches of some tokens from `source` to `target`, both [C, h, w], in place."""
    c, h, w = source.shape
    grid = (c, h // patch, patch, w // patch, patch)
    row, column = np.divmod(tokens, w // patch)
    target.reshape(grid)[:, row, :, column] = source.reshape(grid)[:, row, :, column]


def quantise_latent(z: ArrayLike, scale: float) -> NDArray[np.int64]:
    """round(z / scale), ties to even, saturated to −32767..32767 (int16, symmetric).

    Args:
        z: latent, any shape.
        scale: latent units of one integer step, above 0.

    Raises:
        ValueError: scale ≤ 0.
    """
    if not scale > 0:
        raise ValueError(f"scale: {scale} is not above 0")
    rounded = np.rint(np.asarray(z, dtype=np.float64) / scale)
    return np.clip(rounded, -32767, 32767).astype(np.int64)


def select_tokens_int(
    z_q: NDArray[np.integer], ref_q: NDArray[np.integer], patch: int, threshold: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The decision of the hardware: sums, not means, and no rounding anywhere.

    Args:
        z_q: latent of this step, int16 values, [C, h, w].
        ref_q: latent to compare with, the same.
        patch: edge of a token.
        threshold: tokens with score ≥ threshold are selected; 0 selects all.  The threshold t of
            the float decision is ceil(t · C · patch² / scale).

    Returns:
        selected int64 [S] and reused int64 [N − S], both ascending, and scores int64 [N], the
        sums of |z_q − ref_q| over channels and patch.

    Raises:
        ValueError: the shapes differ or do not fit the patch, a value does not fit int16, or
            threshold < 0.
    """
    if z_q.shape != ref_q.shape:
        raise ValueError(f"ref_q: shape {ref_q.shape} differs from that of z_q, {z_q.shape}")
    for name, value in (("z_q", z_q), ("ref_q", ref_q)):
        if value.size and (value.min() < -32768 or value.max() > 32767):
            raise ValueError(f"{name}: a value is outside -32768..32767")
    if threshold < 0:
        raise ValueError(f"threshold: {threshold} is below 0")
    difference = np.abs(z_q.astype(np.int64) - ref_q.astype(np.int64))
    scores = patch_sums(difference, patch).astype(np.int64)
    chosen = scores >= threshold
    return np.flatnonzero(chosen), np.flatnonzero(~chosen), scores
