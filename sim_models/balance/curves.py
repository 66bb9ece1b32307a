"""Mask makers over thresholds: how much probability for how many steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim_models.balance.masks import HARDWARE, MAKERS, SortedBanks, hardware_mask, numerators


@dataclass(frozen=True, eq=False)
class Curve:
    """A mask maker over thresholds: mass of a row, its steps, and entries kept."""

    threshold: NDArray[np.float64]
    mass: NDArray[np.float64]
    steps: NDArray[np.float64]
    kept: NDArray[np.float64]

    def at(self, mass: float, what: NDArray[np.float64]) -> float:
        """Interpolate the logarithm of `what` at a mass."""
        order = np.argsort(self.mass)
        if not self.mass[order[0]] <= mass <= self.mass[order[-1]]:
            return float("nan")
        return float(np.exp(np.interp(mass, self.mass[order], np.log(what[order]))))


def exact_curves(
    sorted_banks: Sequence[SortedBanks], thresholds: NDArray[np.float64]
) -> dict[str, Curve]:
    """Curves of the exact makers, own columns always kept; "ideal" is plain masks in even banks."""
    points: dict[str, list[tuple[float, float, float]]] = {name: [] for name in (*MAKERS, "ideal")}
    rows = sum(len(part.own) for part in sorted_banks)
    banks = sorted_banks[0].marked.shape[1]
    for threshold in thresholds:
        sums = {name: np.zeros(3) for name in points}
        for part in sorted_banks:
            counts = part.counts(threshold).sum(axis=1)
            plain_mass = part.plain_mass(threshold)
            sums["ideal"] += (plain_mass, (-(-counts // banks)).sum(), counts.sum())
            for name in MAKERS:
                quota = part.quota(name, threshold)
                if name == "plain":
                    sums[name] += (plain_mass, quota.sum(), counts.sum())
                else:
                    sums[name] += (part.mass(quota).sum(), quota.sum(), banks * quota.sum())
        for name, total in sums.items():
            points[name].append(tuple(total / rows))
    return {name: Curve(thresholds, *np.array(values).T) for name, values in points.items()}


def hardware_curves(
    sorted_banks: Sequence[SortedBanks], thresholds: NDArray[np.float64]
) -> dict[str, Curve]:
    """Curves of what hardware can do in one or two passes over a row's numerators."""
    rows = sum(len(part.own) for part in sorted_banks)
    sums = {name: np.zeros((len(thresholds), 3)) for name in HARDWARE}
    for part in sorted_banks:
        own = part.marked > 1.5
        p = np.where(own, part.own[:, None, None], part.marked)
        e = numerators(p.reshape(len(p), -1)).reshape(p.shape)
        for at, threshold in enumerate(thresholds):
            for name in HARDWARE:
                mask = hardware_mask(name, e, own, threshold)
                steps = mask.sum(axis=-1).max(axis=-1).sum()
                sums[name][at] += (p[mask].sum(dtype=np.float64), steps, mask.sum())
    return {name: Curve(thresholds, *(total / rows).T) for name, total in sums.items()}
