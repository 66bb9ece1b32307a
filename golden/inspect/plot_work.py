"""Pictures of work: its breakdown over resolution (DiSC, figure 1) and savings (figure 17)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from golden.inspect.work import Work
from golden.plotting import (
    BLUE,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    new_figure,
    tidy,
)

_LAYERS = (
    ("QKᵀ and PV", ("attention",), VERMILION),
    ("QKV and output projections", ("projection",), ORANGE),
    ("cross-attention and prompt", ("cross-attention", "prompt"), PURPLE),
    ("MLP", ("mlp",), SKY),
    ("embedding, conditioning, final", ("embedding", "conditioning", "final"), GREY),
)


@dataclass(frozen=True)
class Size:
    """A network at a resolution, and the MACs of its dense step."""

    model: str
    resolution_px: int
    tokens: int
    work: Work

    @property
    def attention_share(self) -> float:
        """QKᵀ and PV, of all."""
        return self.work["attention"] / sum(self.work.values())


@dataclass(frozen=True)
class Saving:
    """What a schedule saves of a network, by `golden.inspect.work.GROUPS`."""

    model: str
    resolution_px: int
    tokens: int
    savings: dict[str, float]
    measured: bool
    """Counted in a run; else its per-step use applied to the network's dense work."""


def plot_flops(sizes: Sequence[Size]) -> Figure:
    """Stacked shares of the work of a dense step, a bar for each network and resolution."""
    most = max(sizes, key=lambda size: size.attention_share)
    least = min((s for s in sizes if s.model == most.model), key=lambda size: size.attention_share)
    figure = new_figure(
        11,
        4.9,
        f"QKᵀ and PV grow from {least.attention_share:.0%} to {most.attention_share:.0%} of "
        f"{most.model} between {least.resolution_px} and {most.resolution_px:,} px",
    )
    ax = figure.subplots()
    places, labels, names = _places([(s.model, s.resolution_px, s.tokens) for s in sizes])
    bottom = np.zeros(len(sizes))
    totals = np.array([sum(size.work.values()) for size in sizes])
    for name, kinds, colour in _LAYERS:
        share = 100 * np.array([sum(s.work.get(k, 0) for k in kinds) for s in sizes]) / totals
        ax.bar(places, share, 0.8, bottom, color=colour, label=name, edgecolor="white", lw=0.5)
        for place, low, part in zip(places, bottom, share, strict=True):
            if part >= 3:
                ax.text(place, low + part / 2, f"{part:.0f}", ha="center", va="center", fontsize=8)
        bottom += share
    for place, total in zip(places, totals, strict=True):
        ax.text(place, 101, _flops(2 * total), ha="center", va="bottom", fontsize=8.5)
    ax.set_xticks(places, labels)
    _group_names(ax, places, names)
    ax.set_ylim(0, 112)
    ax.set_yticks(range(0, 101, 20))
    ax.set_ylabel("FLOPs of a dense step (%)\ntotal on top of each bar")
    ax.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside right center", reverse=True, frameon=False)
    return figure


def plot_savings(savings: Sequence[Saving], source: str) -> Figure:
    """FLOPs saved in self-attention, in QK and PV alone, and in total.

    Args:
        savings: measured ones and others.
        source: where the per-step use of the others comes from.
    """
    derived = [s for s in savings if not s.measured]
    told = max((s.model for s in derived), key=[s.model for s in derived].count)
    mine = sorted((s for s in derived if s.model == told), key=lambda s: s.tokens)
    low, high = mine[0], mine[-1]
    direction = "grows" if high.savings["total"] > low.savings["total"] else "changes"
    figure = new_figure(
        11.5,
        4.9,
        f"The saving {direction} with resolution: {low.savings['total']:.0%} of {told}'s FLOPs "
        f"at {low.resolution_px} px, {high.savings['total']:.0%} at {high.resolution_px:,} px",
    )
    ax = figure.subplots()
    entries = [(s.model, s.resolution_px, s.tokens) for s in savings]
    places, labels, names = _places(entries)
    colours = {"self-attention": ORANGE, "QK and PV": VERMILION, "total": BLUE}
    words = {"self-attention": "self-attention: QKV, QKᵀ, PV, output", "QK and PV": "QKᵀ and PV"}
    for index, (name, colour) in enumerate(colours.items()):
        heights = [100 * s.savings[name] for s in savings]
        x = np.array(places) + (index - 1) * 0.28
        bars = ax.bar(x, heights, 0.27, color=colour, label=words.get(name, name))
        for bar, saving in zip(bars, savings, strict=True):
            if not saving.measured:
                bar.set_hatch("////")
                bar.set_edgecolor("white")
                bar.set_linewidth(0)
        for place, height in zip(x, heights, strict=True):
            ax.text(place, max(height, 0) + 1, f"{height:.0f}", ha="center", fontsize=8.5)
    ax.bar([0], [0], color="#bbbbbb", label="measured in a run")
    ax.bar(
        [0],
        [0],
        color="#bbbbbb",
        hatch="////",
        edgecolor="white",
        lw=0,
        label=f"dense work × per-step use\nof {source}",
    )
    ax.set_xticks(places, labels)
    _group_names(ax, places, names)
    ax.set_ylim(min(0, *(100 * min(s.savings.values()) for s in savings)), 100)
    ax.set_ylabel("FLOPs saved over a run (%)")
    tidy(ax)
    ax.grid(axis="x", visible=False)
    figure.legend(loc="outside right center", frameon=False)
    return figure


def _flops(count: float) -> str:
    for scale, unit in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if count >= scale:
            value = count / scale
            return f"{value:.3g}\n{unit}FLOP"
    return f"{count:.0f} FLOP"


def _places(
    entries: Sequence[tuple[str, int, int]],
) -> tuple[list[float], list[str], list[str]]:
    """Where bars stand, a gap between models, what is written under them, and their models."""
    places: list[float] = []
    for index, (model, _, _) in enumerate(entries):
        gap = 0.0 if index == 0 else 1.0 if model == entries[index - 1][0] else 1.5
        places.append((places[-1] if places else 0.0) + gap)
    labels = [f"{px:,} px\n{tokens:,}\ntokens" for _, px, tokens in entries]
    return places, labels, [model for model, _, _ in entries]


def _group_names(ax: Axes, places: Sequence[float], names: Sequence[str]) -> None:
    for name in dict.fromkeys(names):
        mine = [place for place, other in zip(places, names, strict=True) if other == name]
        ax.annotate(
            name,
            ((mine[0] + mine[-1]) / 2, 0),
            xycoords=("data", "axes fraction"),
            xytext=(0, -44),
            textcoords="offset points",
            ha="center",
            va="top",
            fontweight="bold",
        )
