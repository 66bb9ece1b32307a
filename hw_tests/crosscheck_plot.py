"""The picture of a cross-checked head."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from disc.hashing import BankHash, bank_loads
from hw_tests.crosscheck import Crosscheck

__all__ = ["plot_head"]


def plot_head(result: Crosscheck, path: Path) -> None:
    """Draw latent and selected tokens, the mask, the bank load and RTL against golden core."""
    capture, config = result.prepared.capture, result.config
    figure = Figure(figsize=(11, 8.2), layout="constrained")
    FigureCanvasAgg(figure)
    (latent, mask_axes), (load, scatter) = figure.subplots(2, 2)
    report = result.report
    figure.suptitle(
        f"{report['checkpoint']}, step {report['step']} of {report['steps']}, layer "
        f"{report['layer']}, head {report['head']} on {config.name}: "
        f"{report['mismatches']} mismatches, {report['cycles']:,} cycles"
    )

    image = capture.z_t[0]
    latent.imshow(image, cmap="gray")
    grid = int(np.sqrt(len(capture.q)))
    patch = image.shape[0] // grid
    chosen = np.zeros(grid * grid, dtype=bool)
    chosen[capture.rows] = True
    shade = np.kron(chosen.reshape(grid, grid), np.ones((patch, patch)))
    latent.imshow(np.ma.masked_equal(shade, 0), cmap="autumn", alpha=0.35, vmin=0, vmax=1)
    latent.set_title(f"latent; tokens that CTR computes ({chosen.sum()} of {len(chosen)}) tinted")
    latent.set_axis_off()

    made = "made in this step" if capture.refresh else "reused"
    mask_axes.imshow(capture.mask, cmap="binary", interpolation="nearest")
    mask_axes.set_title(f"mask in force ({made}), {capture.mask.mean():.1%} kept")
    mask_axes.set_xlabel("key column j")
    mask_axes.set_ylabel("query row i")

    banks = config.array.banks
    columns = np.arange(len(capture.k))
    shown = {
        "modulo": BankHash.modulo(banks, config.local_bits).bank(columns),
        "this run's hash": result.hash.bank(columns),
    }
    kept = capture.mask.sum(axis=1)
    for name, assignment in shown.items():
        fullest = bank_loads(capture.mask, assignment, banks).max(axis=1)
        label = f"{name}: {kept.sum() / (banks * fullest.sum()):.1%} full"
        load.plot(np.sort(fullest), label=label)
    load.plot(np.sort(-(-kept // banks)), "k--", label="evenly spread")
    load.set_xlabel("query rows, sorted")
    load.set_ylabel(f"kept columns of the fullest of {banks} banks")
    load.set_title("what a row costs under this mask")
    load.legend()

    golden = result.prepared.golden.out.ravel()
    rtl = result.simulated.out.ravel()
    scatter.plot(golden, rtl, ".", markersize=2)
    scatter.set_xlabel("integer golden core")
    scatter.set_ylabel("RTL")
    scatter.set_title(
        f"results: every one of {rtl.size:,} elements; SNR to float attention "
        f"{report['snr_integer_db']:.1f} dB",
        fontsize=10,
    )
    figure.savefig(path, dpi=110)
