"""Pictures of the balance study."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

Record = dict[str, Any]

TARGET = 90
# Okabe and Ito's palette: told apart with any colour vision.
_GREY, _ORANGE, _SKY, _GREEN, _BLUE, _RED = (
    "#999999",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#0072B2",
    "#D55E00",
)
_HASHES = {
    "modulo": _GREY,
    "xor-fold": _SKY,
    "searched": _BLUE,
    "searched a layer": _GREEN,
    "searched a head": _ORANGE,
}
_MAKERS = {
    "plain": (_GREY, "o-"),
    "uniform": (_ORANGE, "^-"),
    "fill up": (_SKY, "s-"),
    "even": (_BLUE, "o-"),
    "by layer": (_GREEN, "d-"),
}


def _panels(count: int, finding: str) -> tuple[Figure, Sequence[Axes]]:
    figure = Figure(figsize=(9.2, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(finding, fontsize=11, fontweight="bold")
    return figure, figure.subplots(1, count, sharey=True, squeeze=False)[0]


def _finish(figure: Figure, axes: Sequence[Axes], banks: Sequence[int]) -> bytes:
    for ax in axes:
        ax.axhline(TARGET, color="black", lw=0.8, ls=":")
        ax.grid(color="#e4e4e4", lw=0.7)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_xticks(range(len(banks)), [str(count) for count in banks])
        ax.set_xlabel("banks")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=-(-len(labels) // 2) if len(labels) > 5 else len(labels),
        frameon=False,
    )
    content = BytesIO()
    figure.savefig(content, dpi=130, format="png")
    return content.getvalue()


def plot_hashes(records: Sequence[Record]) -> bytes:
    """Of the balanced ideal, by hash without run-ahead, and with 8 rows of it: a PNG."""
    densities = sorted({r["density"] for r in records}, reverse=True)
    banks = sorted({r["banks"] for r in records})
    figure, axes = _panels(
        len(densities),
        "No hash fills more than 8 banks (4 at 10 %) to 90 %; run-ahead does, at a price",
    )
    for ax, density in zip(axes, densities, strict=True):
        value = {
            (r["hash"], r["window"], r["banks"]): 100 * r["of_ideal"]
            for r in records
            if r["density"] == density and r["measure"] == "slide" and r["order"] == "raster"
        }
        for name, colour in _HASHES.items():
            heights = [value[name, 1, count] for count in banks]
            ax.plot(heights, "o-", color=colour, label=name, ms=4)
        heights = [value["searched", 8, count] for count in banks]
        ax.plot(heights, "s--", color=_RED, label="searched, run-ahead over 8 rows", ms=4)
        ax.set_title(f"{100 * density:.0f} % kept", fontsize=10)
    axes[0].set_ylabel("of the balanced ideal (%)")
    return _finish(figure, axes, banks)


def plot_masks(records: Sequence[Record], hash_name: str = "xor-fold") -> bytes:
    """Of the balanced ideal at equal kept mass, by mask maker: a PNG."""
    records = [r for r in records if r["hash"] == hash_name]
    densities = sorted({r["density"] for r in records}, reverse=True)
    banks = sorted({r["banks"] for r in records})
    figure, axes = _panels(
        len(densities), "Even masks reach the ideal at equal mass: with XOR-fold, up to 16 banks"
    )
    for ax, density in zip(axes, densities, strict=True):
        value = {
            (r["maker"], r["banks"]): 100 * r["of_ideal"]
            for r in records
            if r["density"] == density
        }
        for name, (colour, style) in _MAKERS.items():
            heights = [value[name, count] for count in banks]
            ax.plot(heights, style, color=colour, label=name, ms=4)
        ax.set_title(f"mass of plain masks that keep {100 * density:.0f} %", fontsize=10)
    axes[0].set_ylabel("of the balanced ideal at equal mass (%)")
    return _finish(figure, axes, banks)
