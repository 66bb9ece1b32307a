"""How long a softmax mask stays right: what ST's reuse of masks rests on."""

from __future__ import annotations

from collections import deque

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from disc.schedule import STConfig
from golden.st import make_mask


def intersection_over_union(a: Tensor, b: Tensor) -> Tensor:
    """Of masks bool [..., R, N]: entries kept by both over entries kept by either, [...]."""
    both, either = (a & b).sum(dim=(-2, -1)), (a | b).sum(dim=(-2, -1))
    return both.double() / either.double()


def kept_mass(p: Tensor, mask: Tensor) -> Tensor:
    """Probability under the mask, mean over rows: p and mask [..., R, N] give [...] in 0 .. 1."""
    return (p * mask).double().sum(dim=-1).mean(dim=-1)


class MaskPersistence:
    """Makes a mask in every step and tries it on the attention of the steps that follow.

    Args:
        st: how masks are made.
        distance: longest distance, in steps, over which a mask is tried.
    """

    def __init__(self, st: STConfig, distance: int) -> None:
        if distance < 1:
            raise ValueError(f"distance: {distance} is below 1 step")
        self.st, self.distance = st, distance
        self._masks: dict[int, deque[Tensor]] = {}
        self._iou: dict[int, list[NDArray[np.float64]]] = {}
        self._mass: dict[int, list[NDArray[np.float64]]] = {}
        self._density: dict[int, list[NDArray[np.float64]]] = {}

    def add(self, layer: int, p: Tensor) -> None:
        """Take the dense probabilities [H, N, N] of a layer in the next step."""
        mask = make_mask(p, self.st).expand_as(p)
        masks = self._masks.setdefault(layer, deque(maxlen=self.distance + 1))
        masks.appendleft(mask)
        iou = np.full((self.distance + 1, len(p)), np.nan)
        mass = iou.copy()
        for d, earlier in enumerate(masks):
            iou[d] = intersection_over_union(earlier, mask).numpy()
            mass[d] = kept_mass(p, earlier).numpy()
        self._iou.setdefault(layer, []).append(iou)
        self._mass.setdefault(layer, []).append(mass)
        density = mask.double().mean(dim=(1, 2)).numpy()
        self._density.setdefault(layer, []).append(density)

    @property
    def iou(self) -> NDArray[np.float64]:
        """[steps, distance + 1, L, H]: the mask made d steps earlier against this step's own.

        NaN where there is no earlier step.
        """
        return np.stack([self._iou[layer] for layer in sorted(self._iou)], axis=2)

    @property
    def mass(self) -> NDArray[np.float64]:
        """[steps, distance + 1, L, H]: probability that the mask of d steps earlier covers."""
        return np.stack([self._mass[layer] for layer in sorted(self._mass)], axis=2)

    @property
    def density(self) -> NDArray[np.float64]:
        """[steps, L, H]: entries kept by the mask made in the step itself, of all."""
        return np.stack([self._density[layer] for layer in sorted(self._density)], axis=1)


def sorted_overlay(
    before: Tensor, after: Tensor, points: int = 200
) -> dict[str, NDArray[np.float64]]:
    """Entries in the order of their probability before, and what became of them.

    Args:
        before: probabilities [N, N] in a step.
        after: the same in a later one.
        points: groups of equally many entries (within one) into which they are divided.

    Returns:
        float64 [points] each: "rank", centre of the group as a fraction of all entries, largest
        first; "before", its median then; "low", "median", "high", the 10 %, 50 % and 90 %
        quantile of its probabilities afterwards.
    """
    first = before.flatten().double().numpy()
    order = np.argsort(-first, kind="stable")
    groups = np.array_split(order, points)
    later = after.flatten().double().numpy()
    quantiles = np.array([np.quantile(later[g], (0.1, 0.5, 0.9)) for g in groups])
    return {
        "rank": (np.arange(points) + 0.5) / points,
        "before": np.array([np.median(first[g]) for g in groups]),
        "low": quantiles[:, 0],
        "median": quantiles[:, 1],
        "high": quantiles[:, 2],
    }


def same_side(before: Tensor, after: Tensor, threshold: float) -> float:
    """Fraction of entries that are at or above the threshold in both steps or in neither."""
    return ((before >= threshold) == (after >= threshold)).double().mean().item()


def rank_correlation(before: Tensor, after: Tensor) -> float:
    """Spearman's: Pearson correlation of the ranks of all entries (ties in order of position)."""
    ranks = [
        torch.argsort(torch.argsort(x.flatten(), stable=True)).double() for x in (before, after)
    ]
    return torch.corrcoef(torch.stack(ranks))[0, 1].item()
