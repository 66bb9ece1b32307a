"""Pictures over denoising steps: similarity of branches, density of attention."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from disc.schedule import Schedule
from golden.inspect.similarity import Similarity
from golden.inspect.style import BLUE, GREY, SEQUENTIAL, new_figure, shades, tidy, whole_steps

_NAMES = {"attention": "self-attention output", "mlp": "MLP output"}


def plot_similarity(similarity: Similarity, model: str) -> Figure:
    """Cosine similarity of adjacent steps: a line a layer, and the sum that CTR keeps."""
    means = {name: values.mean() for name, values in similarity.branches.items()}
    other = np.mean([values.mean() for values in similarity.other_tokens.values()])
    figure = new_figure(
        12,
        4.2,
        f"{model}: a token's outputs hardly change between adjacent steps\n"
        f"mean cosine: attention {means['attention']:.3f}, MLP {means['mlp']:.3f}; "
        f"with another token {other:.2f}",
    )
    axes = figure.subplots(1, 3, sharey=True)
    steps = np.arange(1, len(similarity.sums) + 1)
    for ax, (name, values) in zip(axes, similarity.branches.items(), strict=False):
        for layer, colour in enumerate(shades(values.shape[1])):
            ax.plot(steps, values[:, layer], color=colour, label=f"layer {layer}", marker=".")
        mean = similarity.other_tokens[name].mean(axis=1)
        ax.plot(steps, mean, "--", color=GREY, label="another token, mean of layers")
        ax.set_title(_NAMES[name])
    low, median, high = similarity.sums.T
    axes[2].fill_between(steps, low, high, color=BLUE, alpha=0.25, lw=0, label="10–90 % of tokens")
    axes[2].plot(steps, median, color=BLUE, marker=".", label="median token")
    axes[2].set_title("sum of all branches, which CTR keeps")
    for ax in axes:
        tidy(ax)
        whole_steps(ax, "denoising step s, compared with s − 1")
        ax.legend(loc="lower right")
    axes[0].set_ylabel("cosine similarity")
    return figure


def plot_density(
    fresh: NDArray[np.float64],
    executed: NDArray[np.float64],
    computed: Sequence[float],
    schedule: Schedule,
    alpha: float,
) -> Figure:
    """Entries kept, per layer, head and step.

    Args:
        fresh: [steps, L, H], by a mask made in each step of a dense run.
        executed: the same of what the schedule computed; NaN where it computes no token.
        computed: tokens computed in each step, of all.
        schedule: what was run.
        alpha: threshold of the fresh masks, relative to 1/N.
    """
    steps, layers, heads = fresh.shape
    per_head = fresh.mean(axis=0)
    figure = new_figure(
        12,
        4.9,
        f"At α = {alpha:g} masks keep {fresh.mean():.0%} of the attention entries; "
        f"heads differ ({per_head.min():.0%} to {per_head.max():.0%}) more than steps "
        f"({fresh.mean(axis=(1, 2)).min():.0%} to {fresh.mean(axis=(1, 2)).max():.0%})",
    )
    left, right = figure.subplots(1, 2, sharey=True)
    image = None
    for ax, values, title in (
        (left, fresh, "a mask made in every step (dense run)"),
        (right, executed, "entries computed under the schedule"),
    ):
        ax.set_facecolor("#d8d8d8")
        image = ax.imshow(
            100 * values.reshape(steps, -1).T,
            aspect="auto",
            cmap=SEQUENTIAL,
            vmin=0,
            vmax=100,
            interpolation="nearest",
        )
        for layer in range(1, layers):
            ax.axhline(layer * heads - 0.5, color="white", lw=1.2)
        ax.set_title(title)
        whole_steps(ax)
    left.set_yticks(
        [layer * heads + (heads - 1) / 2 for layer in range(layers)],
        [f"layer {layer}" for layer in range(layers)],
    )
    left.set_ylabel(f"{heads} heads of each layer")
    left.tick_params(axis="y", length=0)
    marks = [_mark(schedule, step, computed[step]) for step in range(steps)]
    right.set_title(
        "entries computed under the schedule\n"
        "M makes masks, R computes all tokens, grey: no token computed"
        if steps <= 60
        else "entries computed under the schedule; grey: no token computed"
    )
    if steps <= 60:
        top = right.secondary_xaxis("top")
        top.set_xticks(range(steps), marks)
        top.tick_params(length=0, pad=1)
    figure.colorbar(image, ax=[left, right], label="entries, % of computed rows × N", pad=0.01)
    return figure


def _mark(schedule: Schedule, step: int, computed: float) -> str:
    if schedule.st and schedule.makes_masks(step):
        return "M"
    return "R" if schedule.is_refresh(step) else ""
