"""The picture of token selection (DiSC, figure 5)."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from golden.ctr import TokenDecision
from golden.plotting import DIVERGING, SEQUENTIAL, new_figure

_PARTS = (0.1, 0.25, 0.5, 1.0)
_SHADES = ("#08306b", "#2f79b5", "#a6cde4", "#f4f4f4")


def concentration(scores: NDArray[np.float32], part: float) -> float:
    """Share of the summed scores that the given part of the tokens has, largest first."""
    ordered = np.sort(scores.astype(np.float64))[::-1]
    return float(ordered[: round(part * len(ordered))].sum() / max(ordered.sum(), 1e-30))


def rank_parts(scores: NDArray[np.float32]) -> NDArray[np.int64]:
    """Into which part each token falls, by score, largest first: 0 is the top 10 %, 3 the rest."""
    order = np.argsort(-scores, kind="stable")
    rank = np.empty(len(scores))
    rank[order] = (np.arange(len(scores)) + 0.5) / len(scores)
    return np.searchsorted(_PARTS, rank).astype(np.int64)


def plot_latent(
    before: NDArray[np.float32], decision: TokenDecision, now: NDArray[np.float32], patch: int
) -> Figure:
    """Latents at adjacent steps, their difference, z_ref, scores and what is computed.

    Args:
        before: latent [C, px, px] of the step before the decision's.
        decision: of the step.
        now: its latent.
        patch: edge of a token in pixels.
    """
    step, n = decision.step, len(decision.scores)
    grid = now.shape[-1] // patch
    figure = new_figure(
        11,
        7.2,
        f"A quarter of the tokens has {concentration(decision.scores, 0.25):.0%} of the change "
        "since z_ref (25% if all changed alike)",
    )
    figure.get_layout_engine().set(w_pad=0.12)
    axes = figure.subplots(2, 3)
    limit = float(np.abs(np.stack([before[0], now[0], decision.z_ref[0]])).max())
    panels = (
        (axes[0, 0], before[0], f"latent z, step {step - 1}"),
        (axes[0, 1], now[0], f"latent z, step {step}"),
        (axes[1, 0], decision.z_ref[0], "z_ref, the latent compared with"),
    )
    for ax, image, title in panels:
        shown = ax.imshow(image, cmap="gray", vmin=-limit, vmax=limit)
        ax.set_title(title)
        figure.colorbar(shown, ax=ax, label="units of the latent", shrink=0.75)
    change = now[0] - before[0]
    limit = float(np.abs(change).max())
    shown = axes[0, 2].imshow(change, cmap=DIVERGING, vmin=-limit, vmax=limit)
    axes[0, 2].set_title(f"change from step {step - 1} to {step}")
    figure.colorbar(shown, ax=axes[0, 2], label="units of the latent", shrink=0.75)

    shown = axes[1, 1].imshow(decision.scores.reshape(grid, grid), cmap=SEQUENTIAL, vmin=0)
    axes[1, 1].set_title("score of each token: mean |z − z_ref|")
    figure.colorbar(shown, ax=axes[1, 1], label="units of the latent", shrink=0.75)

    parts = rank_parts(decision.scores).reshape(grid, grid)
    shown = axes[1, 2].imshow(
        parts, cmap=ListedColormap(_SHADES), norm=BoundaryNorm(np.arange(5) - 0.5, 4)
    )
    chosen = np.zeros(n, bool)
    chosen[decision.selected] = True
    if 0 < len(decision.selected) < n:
        rows, columns = np.nonzero(chosen.reshape(grid, grid))
        size = 80 / grid
        axes[1, 2].plot(columns, rows, "o", ms=size, mfc="#E69F00", mec="black", mew=0.4)
    dots = " (dots)" if 0 < len(decision.selected) < n else ""
    axes[1, 2].set_title(f"by score; computed{dots}: {len(decision.selected)} of {n}")
    bar = figure.colorbar(shown, ax=axes[1, 2], shrink=0.75, ticks=range(4))
    bar.ax.set_yticklabels(["top 10 %", "to 25 %", "to 50 %", "rest"])
    for ax in axes.flat:
        ax.set_xticks([])
        ax.set_yticks([])
    return figure
