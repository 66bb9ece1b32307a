"""What all pictures share: colours that any colour vision tells apart, sizes, writing files."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import AbstractContextManager

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

# Okabe and Ito's palette.
BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#E69F00", "#009E73", "#CC79A7"
SKY, VERMILION, GREY, BLACK = "#56B4E9", "#D55E00", "#999999", "#000000"

SEQUENTIAL, DIVERGING = "viridis", "PuOr_r"
FORMATS = ("png", "svg")
_DPI = 130

_RC = {
    "font.size": 9.5,
    "axes.titlesize": 10,
    "axes.labelsize": 9.5,
    "figure.titlesize": 12,
    "legend.fontsize": 8.5,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "svg.hashsalt": "disc",  # the same picture gives the same file
}


def new_figure(width: float, height: float, finding: str) -> Figure:
    """Return an empty figure, sizes in inches, with its finding on top."""
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(finding, fontweight="bold")
    return figure


def tidy(ax: Axes) -> None:
    """Take the frame's upper and right edge away and add a light grid."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color="#e4e4e4", linewidth=0.7)
    ax.set_axisbelow(True)


def whole_steps(ax: Axes, label: str = "denoising step (0 is the noisiest)") -> None:
    """Let the x axis count steps."""
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel(label)


def shades(count: int) -> Sequence[tuple[float, float, float, float]]:
    """Colours for ordered lines, dark to light, none too light for white paper."""
    return [colormaps[SEQUENTIAL](x) for x in np.linspace(0.0, 0.85, count)]


def rendered(figure: Figure, suffix: str) -> bytes:
    """Draw a figure as "png" or "svg"; the same figure gives the same bytes."""
    picture = io.BytesIO()
    metadata = {"Date": None} if suffix == "svg" else {"Software": None}
    with rc_context(_RC):
        figure.savefig(picture, format=suffix, dpi=_DPI, metadata=metadata)
    return picture.getvalue()


def styled() -> AbstractContextManager[None]:
    """Context in which figures are to be made."""
    return rc_context(_RC)
