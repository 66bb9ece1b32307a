"""The picture of a program's cycles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from matplotlib.figure import Figure

from disc.program import Queue
from golden.plotting import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    new_figure,
    styled,
    tidy,
)
from hw_tests.core.utilisation import array_cycles, queue_cycles

__all__ = ["plot_cycles"]

_ARRAY = {
    "dot": (BLUE, "dot"),
    "axpy": (SKY, "axpy"),
    "imbalance": (VERMILION, "fullest bank"),
    "no_room": (PURPLE, "results not taken"),
    "no_row": (ORANGE, "no row ready"),
    "between": (GREEN, "between commands"),
    "blocked": (GREY, "waits for a token"),
    "nothing": ("#e4e4e4", "no command"),
}
_QUEUE = {
    "working": (BLUE, "working"),
    "waiting_data": (ORANGE, "waits for data"),
    "waiting_space": (PURPLE, "waits for space"),
    "blocked": (GREY, "waits for a token"),
    "nothing": ("#e4e4e4", "no command"),
}


def plot_cycles(counters: Mapping[str, Any], finding: str) -> Figure:
    """Draw what array and queues did, as shares of the program's cycles."""
    with styled():
        figure = new_figure(9, 3.6, finding)
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(1, 4))
        _bars(top, {"multipliers": asdict(array_cycles(counters))}, _ARRAY, counters["cycles"])
        queues = {
            f"{queue.name.lower()} queue": asdict(queue_cycles(counters, queue)) for queue in Queue
        }
        _bars(bottom, queues, _QUEUE, counters["cycles"])
        bottom.set_xlabel(f"share of {counters['cycles']:,} cycles, %")
        bottom.set_xlim(0, 100)
    return figure


def _bars(
    ax: Any,
    rows: Mapping[str, Mapping[str, float]],
    parts: Mapping[str, tuple[str, str]],
    cycles: int,
) -> None:
    tidy(ax)
    for place, values in enumerate(rows.values()):
        left = 0.0
        for name, (colour, _) in parts.items():
            width = 100 * values[name] / cycles
            ax.barh(place, width, left=left, color=colour, height=0.7)
            if width > 6:
                dark = colour in (BLUE, VERMILION, PURPLE, GREEN, BLACK)
                ink = "white" if dark else "black"
                ax.text(
                    left + width / 2, place, f"{width:.1f}", ha="center", va="center", color=ink
                )
            left += width
    ax.set_yticks(range(len(rows)), list(rows))
    ax.invert_yaxis()
    handles = [
        ax.barh(0, 0, color=colour, label=label)
        for name, (colour, label) in parts.items()
        if any(values[name] > 0 for values in rows.values())
    ]
    ax.legend(handles=handles, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
