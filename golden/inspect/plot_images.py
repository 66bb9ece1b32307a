"""The picture of what acceleration does to the images."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from golden.data.glyphs import INK
from golden.plotting import DIVERGING, new_figure


def plot_images(
    dense: NDArray[np.float32],
    accelerated: NDArray[np.float32],
    labels: Sequence[int],
    psnr: Sequence[float],
    finding: str,
) -> Figure:
    """Dense and accelerated images [B, C, px, px] above each other, and their difference.

    Args:
        dense: reference.
        accelerated: of the same seeds.
        labels: classes.
        psnr: of each image in dB.
        finding: title.
    """
    difference = accelerated[:, 0] - dense[:, 0]
    limit = max(float(np.abs(difference).max()), 1e-6)
    figure = new_figure(1.15 * len(labels) + 1.6, 4.4, finding)
    axes = figure.subplots(3, len(labels), squeeze=False)
    shown = None
    for column, label in enumerate(labels):
        ink = {"cmap": "gray_r", "vmin": 0, "vmax": INK}
        axes[0, column].imshow(dense[column, 0], **ink)
        axes[1, column].imshow(accelerated[column, 0], **ink)
        shown = axes[2, column].imshow(difference[column], cmap=DIVERGING, vmin=-limit, vmax=limit)
        axes[0, column].set_title(f"“{label}”")
        value = f"{psnr[column]:.1f} dB" if np.isfinite(psnr[column]) else "equal"
        axes[2, column].set_xlabel(value)
    for row, name in zip(axes, ("dense", "accelerated", "difference"), strict=True):
        row[0].set_ylabel(name)
    for ax in axes.flat:
        ax.set_xticks([])
        ax.set_yticks([])
        ax.spines[:].set_color("#cccccc")
    figure.colorbar(
        shown, ax=axes[2, :], label=f"ink (full: {INK:g})", pad=0.005, fraction=0.02, aspect=8
    )
    return figure
