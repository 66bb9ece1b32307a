"""Work against quality in one picture: all methods, PSNR and Fréchet distance."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from golden.plotting import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, new_figure, tidy
from golden.quality.sweep import FAMILIES, Point

_LOOK = {
    "fewer steps": (BLACK, "o", "-"),
    "CTR as published": (ORANGE, "s", "--"),
    "ST as published": (SKY, "^", "--"),
    "CTR + ST as published": (GREEN, "v", "--"),
    "ours": (VERMILION, "D", "-"),
    "integer core": (PURPLE, "*", ""),
}
_HIGHEST_DB = 60.0


def draw_frontiers(points: Sequence[Point], title: str) -> Figure:
    """Draw PSNR to the dense run, and Fréchet distance to it, over the work saved."""
    figure = new_figure(11, 5.1, title)
    left, right = figure.subplots(1, 2)
    _draw(left, points, lambda p: min(p.quality.psnr_db, _HIGHEST_DB))
    left.set_ylabel("PSNR to the dense run (dB)")
    left.set_title("higher is better")
    _draw(right, points, lambda p: max(p.quality.frechet_to_dense, 1e-4))
    right.set_yscale("log")
    right.set_ylabel("Fréchet distance to the dense run")
    right.set_title("lower is better")
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=6)
    return figure


def _draw(ax: Axes, points: Sequence[Point], value: object) -> None:
    assert callable(value)
    for family in FAMILIES:
        chosen = sorted((p for p in points if p.family == family), key=lambda p: p.work)
        if not chosen:
            continue
        colour, marker, line = _LOOK[family]
        saved = [100 * (1 - p.work) for p in chosen]
        ax.plot(
            saved,
            [value(p) for p in chosen],
            color=colour,
            marker=marker,
            linestyle=line,
            markersize=5,
            label=family,
        )
    ax.axvspan(40, 70, color=BLUE, alpha=0.06, linewidth=0)
    ax.set_xlabel("total multiply-accumulates saved (%)")
    tidy(ax)
