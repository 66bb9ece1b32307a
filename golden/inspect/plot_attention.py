"""The picture of attention's persistence (DiSC, its plot of steps 4/5 and 15/16)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray
from torch import Tensor

from golden.inspect.persistence import MaskPersistence
from golden.plotting import (
    BLUE,
    GREY,
    ORANGE,
    SEQUENTIAL,
    VERMILION,
    new_figure,
    tidy,
    whole_steps,
)

_PLAIN = FuncFormatter(lambda value, _: f"{value:g}")
_SHOWN = (0.05, 50.0)
"""Range of the maps, in multiples of 1/N."""


def by_distance(
    values: NDArray[np.float64], first: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Mean, 10 % and 90 % quantile over steps, layers and heads, for masks of one half of a run.

    Args:
        values: [steps, distance + 1, L, H] as of `MaskPersistence`.
        first: masks made in the first half of the steps, else in the second.

    Returns:
        three of [distance + 1]; NaN where that half has no mask old enough.
    """
    steps, count = values.shape[:2]
    rows = []
    for d in range(count):
        made = np.arange(steps) - d
        chosen = values[(made >= 0) & ((made < steps / 2) == first), d]
        if chosen.size:
            rows.append([chosen.mean(), *np.quantile(chosen, (0.1, 0.9))])
        else:
            rows.append([np.nan] * 3)
    mean, low, high = np.array(rows).T
    return mean, low, high


def fresh_mass(mass: NDArray[np.float64], first: bool) -> NDArray[np.float64]:
    """What each step's own mask would cover, averaged over the steps `by_distance` averages."""
    return by_distance(np.repeat(mass[:, :1], mass.shape[1], axis=1), first)[0]


def plot_attention(
    probabilities: Mapping[int, Tensor],
    pairs: Mapping[tuple[int, int], Mapping[str, Any]],
    persistence: MaskPersistence,
    *,
    layer: int,
    head: int,
) -> Figure:
    """Maps at adjacent steps, their entries sorted, and masks over distance.

    Args:
        probabilities: step to [N, N] of the layer and head.
        pairs: adjacent steps to the fields of `sorted_overlay` ("curve"), "same_side" and "rank".
        persistence: of all layers and heads.
        layer: shown.
        head: shown.
    """
    iou, mass = persistence.iou, persistence.mass
    alpha = persistence.st.alpha
    at = min(3, persistence.distance)
    figure = new_figure(
        11.5,
        4 * len(pairs) + 3.6,
        f"A mask {at} step{'s' * (at > 1)} old covers {np.nanmean(mass[:, at]):.1%} of the "
        f"attention probability, a mask made in the step itself {np.nanmean(mass[at:, 0]):.1%};\n"
        f"masks keep {persistence.density.mean():.0%} of the entries",
    )
    parts = figure.subfigures(len(pairs) + 1, 1, height_ratios=[4] * len(pairs) + [3.6])
    for part, (pair, found) in zip(parts, pairs.items(), strict=False):
        axes = part.subplots(1, 3, width_ratios=[1, 1, 1.15])
        shown = None
        for ax, step in zip(axes, pair, strict=False):
            p = probabilities[step]
            shown = ax.imshow(
                (p * len(p)).numpy(), cmap=SEQUENTIAL, norm=LogNorm(*_SHOWN, clip=True)
            )
            ax.set_title(f"probability p: step {step}, layer {layer}, head {head}")
            ax.set_xlabel("key token")
            ax.set_ylabel("query token")
        part.colorbar(
            shown,
            ax=axes[:2],
            label="p × N",
            shrink=0.8,
            pad=0.01,
            extend="both",
            ticks=[0.1, 1, 10],
            format=_PLAIN,
        )
        _overlay(axes[2], pair, found, alpha, len(probabilities[pair[0]]))
    axes = parts[-1].subplots(1, 2)
    distance = np.arange(iou.shape[1])
    for first, colour, name in ((True, ORANGE, "first half"), (False, BLUE, "second half")):
        label = f"made in the {name} of the run"
        for ax, values in zip(axes, (iou, mass), strict=True):
            mean, low, high = by_distance(values, first)
            ax.plot(distance, 100 * mean, color=colour, marker=".", label=label)
            ax.fill_between(distance, 100 * low, 100 * high, color=colour, alpha=0.18, lw=0)
        axes[1].plot(distance, 100 * fresh_mass(mass, first), ":", color=colour, lw=1.8)
    axes[1].plot([], [], ":", color=GREY, lw=1.8, label="a mask made in the step itself")
    density = persistence.density
    random = 100 * float((density / (2 - density)).mean())
    axes[0].axhline(random, color=GREY, ls="--", label=f"two random masks, {random:.0f} %")
    kept = 100 * float(density.mean())
    axes[1].axhline(kept, color=GREY, ls="--", label=f"random mask, {kept:.0f} %")
    axes[0].set_title("does a mask made now equal the old one? (all layers and heads)")
    axes[0].set_ylabel("mask IoU (%)")
    axes[1].set_title("how much of the attention does the old mask cover?")
    axes[1].set_ylabel("probability kept (%)")
    for ax in axes:
        ax.set_ylim(0, 102)
        tidy(ax)
        whole_steps(ax, "age of the mask (steps); bands: 10–90 % of layers, heads, steps")
        ax.legend(loc="lower left")
    return figure


def _overlay(
    ax: Any, pair: tuple[int, int], found: Mapping[str, Any], alpha: float, n: int
) -> None:
    curve = found["curve"]
    rank = 100 * curve["rank"]
    before, after = pair
    ax.fill_between(
        rank,
        curve["low"] * n,
        curve["high"] * n,
        color=BLUE,
        alpha=0.3,
        lw=0,
        label=f"step {after}, 10–90 %",
    )
    ax.plot(rank, curve["median"] * n, color=BLUE, label=f"step {after}, median")
    ax.plot(rank, curve["before"] * n, color=VERMILION, ls="--", label=f"step {before}")
    if alpha > 0:
        ax.axhline(alpha, color="black", lw=0.9, ls=":")
        ax.text(99, alpha * 1.12, f"threshold α = {alpha:g}", ha="right", va="bottom", fontsize=8)
    ax.set_yscale("log")
    ax.yaxis.set_major_formatter(_PLAIN)
    ax.set_ylim(1e-3, max(_SHOWN[1], 2 * float(curve["high"].max()) * n))
    ax.set_xlim(0, 100)
    ax.set_xlabel(f"entries sorted by their probability in step {before} (%)")
    ax.set_ylabel("p × N")
    ax.set_title(
        f"{found['same_side']:.1%} stay on their side of α;\n"
        f"rank correlation {found['rank_correlation']:.3f}"
    )
    tidy(ax)
    ax.legend(loc="upper right")
