"""Cached Token Reuse: which tokens are computed in a denoising step, and which are reused.

The decision of DiSC (arXiv 2605.25798): a token whose latent hardly changed is not computed.
score = mean over the token's patch and channels of |z_t − z_ref|; tokens are numbered row-major
over the patch grid, in the order of the model's token axis.  Lists of tokens ascend.

`select_tokens_int` is the same decision in the integers of the hardware.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

Latent = NDArray[np.float32]
Tokens = NDArray[np.int64]

Reference = Literal["last-computed", "adjacent", "second-difference", "random"]


@dataclass(frozen=True)
class CTRConfig:
    """How tokens are chosen.  Exactly one of `threshold` and `reuse` is set.

    Attributes:
        reference: what z_t is compared with.  "last-computed": z when that token was last
            computed, so slow drift adds up until it is seen; "adjacent": z of the step before;
            "second-difference": 2 z of the step before − z of two steps before; "random": scores
            are drawn, a control that any real score must beat.
        threshold: tokens with score ≥ threshold are computed, in units of the latent.
        reuse: fraction of tokens that is reused, those of lowest score, in 0..1.
        warmup: so many first steps are dense.
        refresh: every step divisible by this is dense.
        seed: of "random".

    Raises:
        ValueError: a field is out of range; the message names it, its value and the range.
    """

    reference: Reference = "last-computed"
    threshold: float | None = None
    reuse: float | None = None
    warmup: int = 2
    refresh: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        if self.reference not in get_args(Reference):
            raise ValueError(
                f"reference: {self.reference!r} is not one of {list(get_args(Reference))}"
            )
        if (self.threshold is None) == (self.reuse is None):
            raise ValueError(
                f"threshold: {self.threshold} and reuse: {self.reuse}; set exactly one of them"
            )
        if self.threshold is not None and not self.threshold >= 0:
            raise ValueError(f"threshold: {self.threshold} is below 0")
        if self.reuse is not None and not 0 <= self.reuse <= 1:
            raise ValueError(f"reuse: {self.reuse} is outside 0..1")
        least = 2 if self.reference == "second-difference" else 1
        if self.warmup < least:
            raise ValueError(
                f"warmup: {self.warmup} is below {least}, the number of earlier latents that "
                f"reference {self.reference!r} needs"
            )
        if self.refresh < 1:
            raise ValueError(f"refresh: {self.refresh} is below 1")

    def is_dense(self, step: int) -> bool:
        """Whether all tokens are computed in this step, whatever their scores."""
        return step < self.warmup or step % self.refresh == 0


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
        config: how to choose.
        patch: edge of a token in pixels of the latent.
    """

    def __init__(self, config: CTRConfig, patch: int) -> None:
        self.config, self.patch = config, patch
        self._step = -1
        self._history: list[Latent] = []
        self._computed: Latent | None = None
        self._random = np.random.default_rng(config.seed)

    def decide(self, step: int, z: ArrayLike) -> TokenDecision:
        """Choose the tokens of a step and take note of them for the next.

        Args:
            step: 0, 1, 2… without a gap.
            z: latent float [C, h, w], h and w multiples of the patch.

        Raises:
            ValueError: a step was skipped or repeated, or z does not fit the patch.
        """
        if step != self._step + 1:
            raise ValueError(f"step: {step} does not follow {self._step}")
        self._step = step
        z = np.array(z, dtype=np.float32)
        z_ref = self._reference(z)
        scores = patch_sums(np.abs(z - z_ref), self.patch) / np.float32(len(z) * self.patch**2)
        if self.config.reference == "random" and step > 0:
            scores = self._random.random(len(scores), dtype=np.float32)
        chosen = self._choose(step, scores)
        if self._computed is None:
            self._computed = z.copy()
        copy_tokens(z, self._computed, np.flatnonzero(chosen), self.patch)
        self._history = [z, *self._history[:1]]
        return TokenDecision(step, np.flatnonzero(chosen), np.flatnonzero(~chosen), scores, z_ref)

    def _reference(self, z: Latent) -> Latent:
        if self._computed is None:
            return z
        if self.config.reference == "adjacent":
            return self._history[0]
        if self.config.reference == "second-difference" and len(self._history) > 1:
            return 2 * self._history[0] - self._history[1]
        return self._computed.copy()

    def _choose(self, step: int, scores: NDArray[np.float32]) -> NDArray[np.bool_]:
        if self.config.is_dense(step):
            return np.ones(len(scores), bool)
        if self.config.threshold is not None:
            return scores >= self.config.threshold
        assert self.config.reuse is not None
        count = len(scores) - round(self.config.reuse * len(scores))
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
