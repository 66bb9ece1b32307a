"""How well sparse masks fill the banks: utilisation under different column-to-bank assignments.

A row costs as many cycles as its fullest bank has kept columns.  Utilisation is kept columns
over B times those cycles, both summed over rows.  With a run-ahead window of W rows the banks
wait for each other only every W rows, so that the *sum* over the window counts in each bank.

The comparison corresponds to figure 15 of arXiv 2605.25798 (load balance of several hash
functions across dot-product units), whose candidates are not published.  The searched hash is
always scored on masks that its search has not seen; see `split_masks`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from disc.hashing import ASSIGNMENTS, bank_assignment, bank_loads, local_bits_for, search

Split = Literal["layer", "step"]
Record = dict[str, Any]

DEFAULT_BANKS = (8, 16, 32)
DEFAULT_WINDOWS: tuple[int | None, ...] = (1, 4, 8, 16, None)

# Okabe and Ito's palette: told apart with any colour vision; the last is the one to look at.
_COLOURS = dict(
    zip(
        ASSIGNMENTS, ("#999999", "#E69F00", "#56B4E9", "#009E73", "#CC79A7", "#0072B2"), strict=True
    )
)


def fullest_bank(
    masks: NDArray[np.bool_], assignment: NDArray[np.int64], banks: int
) -> NDArray[np.int64]:
    """Return the fullest bank's kept columns of each row: masks [..., R, N] to [..., R]."""
    return bank_loads(masks, assignment, banks).max(axis=-1)


def window_loads(loads: NDArray[np.int64], window: int) -> NDArray[np.int64]:
    """Sum bank loads over run-ahead windows: [..., R, B] to [..., ceil(R / window), B].

    The last window holds the rows that are left.
    """
    if window < 1:
        raise ValueError(f"window: must be at least 1 row, got {window}")
    starts = np.arange(0, loads.shape[-2], window)
    return np.add.reduceat(loads, starts, axis=-2)


def score(loads: NDArray[np.int64], window: int) -> Record:
    """Cycles and utilisation of bank loads [..., R, B] with a run-ahead window of rows.

    Returns
    -------
    dict
        `kept` columns in all; `cycles`, the sum of fullest banks; `ideal_cycles`, the sum over
        windows of ceil(kept / B), which no assignment beats; and the `utilisation` of both.
    """
    banks = loads.shape[-1]
    grouped = window_loads(loads, window)
    kept = int(loads.sum())
    if not kept:
        raise ValueError("masks: must keep at least one column")
    cycles = int(grouped.max(axis=-1).sum())
    ideal = int((-(-grouped.sum(axis=-1) // banks)).sum())
    return {
        "kept": kept,
        "cycles": cycles,
        "ideal_cycles": ideal,
        "utilisation": kept / (banks * cycles),
        "ideal_utilisation": kept / (banks * ideal),
    }


def expected_fullest(columns: int, banks: int, density: float) -> float:
    """Return the expected kept columns of the fullest bank for a random mask.

    Every column is kept with probability `density`, independently, and banks hold equally many
    columns, within one: the maximum of B binomial variables.  Attention masks are more skewed
    than random ones, so with a poor hash the true value is higher; see `study`.
    """
    if columns < 1 or banks < 1:
        raise ValueError(f"columns: must be at least 1, as banks, got {columns} and {banks}")
    if not 0 < density <= 1:
        raise ValueError(f"density: must be above 0 and at most 1, got {density}")
    if density == 1:
        return float(-(-columns // banks))
    small, larger_banks = divmod(columns, banks)
    cumulative = [_binomial_cdf(size, small + 1, density) for size in (small, small + 1)]
    at_most = cumulative[0] ** (banks - larger_banks) * cumulative[1] ** larger_banks
    return float((1 - at_most).sum())  # E[X] = sum over k >= 0 of P(X > k)


def _binomial_cdf(trials: int, last: int, p: float) -> NDArray[np.float64]:
    """P(X <= k) for k = 0 ... last."""
    k = np.arange(trials + 1)
    log_factorial = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, trials + 1)))))
    choose = log_factorial[-1] - log_factorial - log_factorial[::-1]
    pmf = np.exp(choose + k * np.log(p) + (trials - k) * np.log1p(-p))
    cdf = np.ones(last + 1)
    cdf[: trials + 1] = np.minimum(np.cumsum(pmf), 1)[: last + 1]
    return cdf


def split_masks(
    masks: NDArray[np.bool_], split: Split
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Divide masks [steps, layers, heads, R, N] into (to search on, to score on).

    `layer`: even layers against odd ones, at all steps.  Masks of neighbouring steps are nearly
    alike, those of different layers are not, so this asks whether one hash serves a whole model.
    `step`: first half of the steps against the second, in all layers: whether a hash found early
    in a run serves the rest of it.
    """
    if masks.ndim != 5:
        raise ValueError(
            f"masks: must be [steps, layers, heads, rows, columns], got shape {list(masks.shape)}"
        )
    steps, layers = masks.shape[:2]
    if split == "layer":
        if layers < 2:
            raise ValueError(f"split: 'layer' needs masks of at least 2 layers, got {layers}")
        return masks[:, ::2], masks[:, 1::2]
    if split == "step":
        if steps < 2:
            raise ValueError(f"split: 'step' needs masks of at least 2 steps, got {steps}")
        return masks[: steps // 2], masks[steps // 2 :]
    raise ValueError(f"split: must be 'layer' or 'step', got {split!r}")


def study(
    masks: NDArray[np.bool_],
    *,
    banks: Sequence[int] = DEFAULT_BANKS,
    windows: Sequence[int | None] = DEFAULT_WINDOWS,
    split: Split = "layer",
    seed: int = 0,
    restarts: int = 16,
    max_rows: int = 8192,
    progress: Callable[[str], None] | None = None,
) -> list[Record]:
    """Score every assignment on held-out masks.

    Parameters
    ----------
    masks
        Kept columns, bool [steps, layers, heads, rows, columns].
    banks
        Values of B.
    windows
        Run-ahead windows in rows; `None` is all rows of a head.
    split
        What the searched hash is searched on; every assignment is scored on the other part.
    seed
        Of the search and of the random permutation.
    restarts, max_rows
        Of `disc.hashing.search`.
    progress
        Told what is about to be done.

    Returns
    -------
    list of dict
        One tidy record for each B, assignment and window: `banks`, `hash`, `window`, `split`,
        `rows` (of a head), `columns`, `density`, the fields of `score`, and `matrix`, the
        searched hash as text (else empty).
    """
    searched_on, scored_on = split_masks(np.asarray(masks, dtype=bool), split)
    rows, columns = scored_on.shape[-2:]
    density = float(scored_on.mean())
    records = []
    for count in banks:
        if progress is not None:
            progress(f"searching a hash for {count} banks")
        found = search(
            searched_on,
            count,
            local_bits_for(columns, count),
            seed=seed,
            restarts=restarts,
            max_rows=max_rows,
        )
        for name in ASSIGNMENTS:
            if progress is not None:
                progress(f"scoring {name} with {count} banks")
            assignment = bank_assignment(name, columns, count, seed=seed, searched=found)
            loads = bank_loads(scored_on, assignment, count)
            for window in windows:
                size = rows if window is None else min(window, rows)
                records.append(
                    {
                        "banks": count,
                        "hash": name,
                        "window": size,
                        "split": split,
                        "rows": rows,
                        "columns": columns,
                        "density": density,
                        **score(loads, size),
                        "matrix": str(found) if name == "searched" else "",
                    }
                )
    return records


def plot_utilisation(records: Sequence[Record], path: Path | str) -> None:
    """Draw utilisation as grouped bars, one panel for each B; PNG or SVG by `path`'s suffix.

    Bars are assignments, groups are run-ahead windows, and a black tick over a group marks the
    ideal, ceil(kept / B) cycles a window.
    """
    path = Path(path)
    if path.suffix not in (".png", ".svg"):
        raise ValueError(f"path: must end in .png or .svg, got {path.name!r}")
    if not records:
        raise ValueError("records: must not be empty")
    banks = sorted({record["banks"] for record in records})
    windows = sorted({record["window"] for record in records})
    names = [name for name in ASSIGNMENTS if any(record["hash"] == name for record in records)]
    found = {(r["banks"], r["window"], r["hash"]): r for r in records}

    width = max(2.2 * len(banks) * max(len(windows), 2) * len(names) / 15, 6.5)
    figure = Figure(figsize=(width, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(banks), sharey=True, squeeze=False)[0]
    bar = 0.84 / len(names)
    for ax, count in zip(axes, banks, strict=True):
        for index, name in enumerate(names):
            offset = (index - (len(names) - 1) / 2) * bar
            group = [i for i, window in enumerate(windows) if (count, window, name) in found]
            heights = [100 * found[count, windows[i], name]["utilisation"] for i in group]
            ax.bar(
                [i + offset for i in group],
                heights,
                bar,
                label=name,
                color=_COLOURS[name],
                zorder=2,
            )
        for i, window in enumerate(windows):
            record = next((found[key] for key in found if key[:2] == (count, window)), None)
            if record is not None:
                ideal = 100 * record["ideal_utilisation"]
                label = "ideal" if i == 0 else None
                ax.hlines(ideal, i - 0.45, i + 0.45, colors="black", lw=1.2, label=label, zorder=3)
        ax.set_title(f"{count} banks", fontsize=10)
        labels = [
            "all" if window == records[0]["rows"] and window > 1 else str(window)
            for window in windows
        ]
        ax.set_xticks(range(len(windows)), labels)
        ax.set_xlabel("run-ahead window (rows)")
        ax.set_ylim(0, 104)
        ax.grid(axis="y", color="#dddddd", zorder=0)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("bank utilisation (%)")
    first = records[0]
    figure.suptitle(
        f"Kept columns over banks × fullest bank: {first['columns']} columns, "
        f"{100 * first['density']:.0f} % kept, held out by {first['split']}",
        fontsize=10,
    )
    handles, labels = axes[0].get_legend_handles_labels()
    entries = len(labels) if width > 9 else 4  # the legend in one line if it fits
    figure.legend(handles, labels, loc="outside lower center", ncols=entries, frameon=False)
    figure.savefig(path, dpi=150)
