"""Pictures over denoising steps: similarity of branches, density of attention."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator
from numpy.typing import NDArray

from disc.schedule import Schedule
from golden.inspect.similarity import Similarity
from golden.plotting import BLACK, BLUE, SEQUENTIAL, new_figure, shades, tidy, whole_steps

_MOST = 0.99999
"""Cosines nearer to 1 are drawn there."""
_TICKS = (0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, _MOST)
_MARKED = 60
"""Steps of a run that have room for a letter each."""
_NAMES = {"attention": "self-attention output", "mlp": "MLP output"}


def plot_similarity(similarity: Similarity, model: str) -> Figure:
    """Cosine similarity of adjacent steps: a line a layer, and the sum that CTR keeps.

    The axis is logarithmic in the distance from 1.
    """
    means = {name: values.mean() for name, values in similarity.branches.items()}
    other = np.mean([values.mean() for values in similarity.other_tokens.values()])
    figure = new_figure(
        12,
        4.4,
        f"{model}, a token in adjacent steps: cosine {means['attention']:.3f} (attention), "
        f"{means['mlp']:.3f} (MLP); against another token {other:.2f}",
    )
    axes = figure.subplots(1, 3, sharey=True)
    steps = np.arange(1, len(similarity.sums) + 1)
    for ax, (name, values) in zip(axes, similarity.branches.items(), strict=False):
        for layer, colour in enumerate(shades(values.shape[1])):
            label = f"layer {layer}" if name == "attention" else None
            ax.plot(steps, _distance(values[:, layer]), color=colour, label=label, marker=".")
        mean = similarity.other_tokens[name].mean(axis=1)
        label = "another token (mean of layers)" if name == "attention" else None
        ax.plot(steps, _distance(mean), "--", color=BLACK, lw=1, label=label)
        ax.set_title(_NAMES[name])
    low, median, high = (_distance(values) for values in similarity.sums.T)
    band = "10–90 % of tokens"
    axes[2].fill_between(steps, low, high, color=BLUE, alpha=0.25, lw=0, label=band)
    axes[2].plot(steps, median, color=BLUE, marker="s", ms=4, label="median token")
    axes[2].set_title("sum of all branches, which CTR keeps")
    for ax in axes:
        tidy(ax)
        whole_steps(ax, "denoising step s, compared with s − 1")
    least, most = similarity.range
    axes[0].set_yscale("log")
    axes[0].set_ylim(1 - min(0.0, least), 0.6 * float(_distance(np.array(most))))
    axes[0].yaxis.set_major_locator(FixedLocator([1 - x for x in _TICKS]))
    axes[0].yaxis.set_major_formatter(FixedFormatter([f"{x:g}" for x in _TICKS]))
    axes[0].yaxis.set_minor_locator(NullLocator())
    axes[0].set_ylabel("cosine similarity")
    figure.legend(loc="outside lower center", ncols=9, frameon=False)
    return figure


def _distance(cosine: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.maximum(1 - cosine, 1 - _MOST)


def plot_density(
    fresh: NDArray[np.float64],
    executed: NDArray[np.float64],
    schedule: Schedule,
    alpha: float,
) -> Figure:
    """Entries kept, per layer, head and step.

    Args:
        fresh: [steps, L, H], by a mask made in each step of a dense run.
        executed: the same of what the schedule computed; NaN where it computes no token.
        schedule: what was run.
        alpha: threshold of the fresh masks, relative to 1/N.
    """
    steps, layers, heads = fresh.shape
    per_head, per_step = fresh.mean(axis=0), fresh.mean(axis=(1, 2))
    figure = new_figure(
        12,
        4.9,
        f"At α = {alpha:g} masks keep {fresh.mean():.0%} of the attention entries: "
        f"{per_head.min():.0%} to {per_head.max():.0%} by head, "
        f"{per_step.min():.0%} to {per_step.max():.0%} by step",
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
    words = "denoising step; grey: no token computed"
    if steps <= _MARKED:
        words = "denoising step; M makes masks, R computes all tokens, grey: no token computed"
        marks = [_mark(schedule, step) for step in range(steps)]
        top = right.secondary_xaxis("top")
        top.set_xticks(range(steps), marks)
        top.tick_params(length=0, pad=1)
    right.set_xlabel(words)
    figure.colorbar(image, ax=[left, right], label="entries, % of computed rows × N", pad=0.01)
    return figure


def _mark(schedule: Schedule, step: int) -> str:
    if schedule.st and schedule.makes_masks(step):
        return "M"
    return "R" if schedule.is_refresh(step) else ""
