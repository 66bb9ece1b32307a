"""What evens out the banks: hashes, run-ahead, orders of rows, and masks made even.

Works on queries and keys of a real model.  Hashes are searched on some images and everything is
judged on others.  Results are flat records, one a line of the CSV files of `docs/data/`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from disc.hashing import BankHash, bank_loads, local_bits_for, search
from sim_models.balance.curves import exact_curves, hardware_curves
from sim_models.balance.masks import SortedBanks
from sim_models.balance.run_ahead import (
    ORDERS,
    beside_steps,
    block_steps,
    reorder,
    sliding_steps,
    word_steps,
)

Record = dict[str, Any]
Tell = Callable[[str], None]

HASHES = ("modulo", "xor-fold", "searched", "searched a layer", "searched a head")
BANKS = (2, 4, 8, 16, 32)
WINDOWS = (1, 2, 4, 8, 16)
AXPY = ((4, 2), (4, 4), (4, 8), (3, 2), (3, 3), (3, 6))
"""Words of a row, as of a head on `tiny` or on `edge`, and sets of accumulators."""
RANDOM_ROWS = 128
"""Rows of a head on which mask makers are judged; run-ahead needs them all."""


@dataclass(frozen=True, eq=False)
class Inputs:
    """What attention sees in S evaluations, one an image and step."""

    q: NDArray[np.float32]
    """[S, layers, heads, N, d]."""
    k: NDArray[np.float32]
    """Likewise."""

    def probabilities(self, sample: int) -> NDArray[np.float32]:
        """[layers, heads, N, N] of one evaluation."""
        q, k = self.q[sample], self.k[sample]
        scores = q @ k.swapaxes(-2, -1) / np.float32(np.sqrt(q.shape[-1]))
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        return scores

    @property
    def columns(self) -> int:
        """N."""
        return self.q.shape[-2]


def masks_of(inputs: Inputs, threshold: float) -> NDArray[np.bool_]:
    """Plain masks [S, layers, heads, N, N]: probability at least `threshold`, or own column."""
    own = np.eye(inputs.columns, dtype=bool)
    return np.stack([(inputs.probabilities(s) >= threshold) | own for s in range(len(inputs.q))])


def threshold_for(inputs: Inputs, density: float) -> float:
    """Return the probability that this fraction of all entries reaches."""
    entries = [inputs.probabilities(s)[..., ::7, :].reshape(-1) for s in range(len(inputs.q))]
    return float(np.quantile(np.concatenate(entries), 1 - density))


# -- hashes ------------------------------------------------------------------------------------


def hashes(
    masks: NDArray[np.bool_], banks: int, *, seed: int = 0, tell: Tell = lambda text: None
) -> dict[str, NDArray[np.object_]]:
    """Return each kind's hash of every head, [layers, heads], searched on `masks`."""
    layers, heads, columns = masks.shape[1], masks.shape[2], masks.shape[-1]
    bits = local_bits_for(columns, banks)

    def found(part: NDArray[np.bool_], rows: int, restarts: int) -> BankHash:
        return search(part, banks, bits, seed=seed, max_rows=rows, restarts=restarts)

    def same(hash_: BankHash) -> NDArray[np.object_]:
        return np.full((layers, heads), hash_, dtype=object)

    tell(f"searching one hash for {banks} banks")
    result = {
        "modulo": same(BankHash.modulo(banks, bits)),
        "xor-fold": same(BankHash.xor_fold(banks, bits)),
        "searched": same(found(masks, 4096, 6)),
    }
    a_layer, a_head = (np.empty((layers, heads), dtype=object) for _ in range(2))
    for layer in range(layers):
        tell(f"searching a hash a layer and a head for {banks} banks: layer {layer}")
        a_layer[layer] = found(masks[:, layer], 2048, 3)
        for head in range(heads):
            a_head[layer, head] = found(masks[:, layer, head], 1024, 3)
    return result | {"searched a layer": a_layer, "searched a head": a_head}


def loads_of(masks: NDArray[np.bool_], chosen: NDArray[np.object_]) -> NDArray[np.int64]:
    """Bank loads [S, layers, heads, N, B] under each head's hash."""
    j = np.arange(masks.shape[-1])
    banks = chosen[0, 0].banks
    loads = np.empty((*masks.shape[:-1], banks), dtype=np.int64)
    for (layer, head), hash_ in np.ndenumerate(chosen):
        loads[:, layer, head] = bank_loads(masks[:, layer, head], hash_.bank(j), banks)
    return loads


def run_ahead_study(
    searched_on: NDArray[np.bool_],
    judged: NDArray[np.bool_],
    *,
    banks: Sequence[int] = BANKS,
    windows: Sequence[int] = WINDOWS,
    seed: int = 0,
    tell: Tell = lambda text: None,
) -> tuple[list[Record], dict[int, dict[str, NDArray[np.object_]]]]:
    """Steps of every bank count, hash, kind of run-ahead, window and order of rows.

    Returns
    -------
    records
        `density`, `banks`, `hash`; `measure` ("slide", "block", "beside", "beside, 4 words",
        "axpy of 4 words" or 3); `window` in rows, or words of axpy; `order` of rows; `kept`;
        `steps`; `ideal_steps`, ceil(kept / B) summed over rows; `utilisation`,
        kept / (B * steps); `of_ideal`, ideal_steps / steps.
    hashes
        By B, as `hashes` returns them.
    """
    records: list[Record] = []
    chosen: dict[int, dict[str, NDArray[np.object_]]] = {}
    counts = judged.sum(axis=-1)
    kept, density = int(counts.sum()), float(judged.mean())
    for count in banks:
        chosen[count] = hashes(searched_on, count, seed=seed, tell=tell)
        ideal = int((-(-counts // count)).sum())
        for name, each in chosen[count].items():
            tell(f"{count} banks, {name}: run-ahead")
            loads = loads_of(judged, each)

            def add(measure: str, window: int, order: str, steps: Any, fixed: Record) -> None:
                total = float(np.sum(steps))
                records.append(
                    fixed
                    | {
                        "measure": measure,
                        "window": window,
                        "order": order,
                        "kept": kept,
                        "steps": round(total),
                        "utilisation": kept / (fixed["banks"] * total),
                        "of_ideal": fixed["ideal_steps"] / total,
                    }
                )

            fixed = {"density": density, "banks": count, "hash": name, "ideal_steps": ideal}
            for window in windows:
                add("slide", window, "raster", sliding_steps(loads, window), fixed)
            if name not in ("xor-fold", "searched"):
                continue
            for window in windows[1:]:
                add("block", window, "raster", block_steps(loads, window), fixed)
            for words, sets in AXPY:
                add(f"axpy of {words} words", sets, "raster", word_steps(loads, sets, words), fixed)
            for order, function in ORDERS.items():
                ordered = reorder(loads, function(loads))
                if order != "raster":
                    for window in windows[1:3]:
                        add("slide", window, order, sliding_steps(ordered, window), fixed)
                    add("block", 2, order, block_steps(ordered, 2), fixed)
                add("beside", 2, order, beside_steps(ordered), fixed)
                add("beside, 4 words", 2, order, beside_steps(ordered, beats=4), fixed)
    return records, chosen


# -- masks -------------------------------------------------------------------------------------


def mask_study(
    judged: Inputs,
    thresholds: Sequence[float],
    chosen: dict[int, BankHash],
    name: str,
    *,
    hardware: Sequence[int] = (),
    seed: int = 0,
    tell: Tell = lambda text: None,
) -> list[Record]:
    """Steps of every mask maker at the masses that plain masks keep.

    Parameters
    ----------
    judged
        Inputs to judge on.
    thresholds
        Probabilities whose plain masks set the masses.
    chosen, name
        By B the hash, and its name.
    hardware
        Values of B for which makers of `HARDWARE` are tried too.
    seed
        Of the rows drawn.

    Returns
    -------
    list of dict
        `density` and `mass` of the plain mask, `banks`, `hash`, `maker`; `steps` a row at equal
        mass, and the `alpha` (threshold times N) that gives it; `speed_up` to plain;
        `utilisation` at equal mass; `of_ideal`, steps of plain masks in even banks over these;
        `filling`, entries kept over B times steps.
    """
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.choice(judged.columns, min(RANDOM_ROWS, judged.columns), replace=False))
    records = []
    for banks, hash_ in chosen.items():
        parts = []
        for sample in range(len(judged.q)):
            tell(f"{banks} banks, {name}: sorting, {sample + 1} of {len(judged.q)}")
            p = judged.probabilities(sample)[..., rows, :]
            parts.append(SortedBanks.of(p, rows, hash_))
        tell(f"{banks} banks, {name}: masks")
        grid = np.geomspace(min(thresholds) / 2, max(thresholds) * 2.2, 28)
        curves = exact_curves(parts, grid)
        if banks in hardware:
            tell(f"{banks} banks, {name}: masks as hardware makes them")
            factors = np.array([0.85, 1.0, 1.2, 1.5, 2.2])  # equal mass at a higher threshold
            near = np.outer(sorted(thresholds), factors).reshape(-1)
            curves |= hardware_curves(parts, near)
        for threshold in thresholds:
            plain = exact_curves(parts, np.array([threshold]))["plain"]
            mass, kept = float(plain.mass[0]), float(plain.kept[0])
            ideal = curves["ideal"].at(mass, curves["ideal"].steps)
            for maker, curve in curves.items():
                steps = float(plain.steps[0]) if maker == "plain" else curve.at(mass, curve.steps)
                records.append(
                    {
                        "density": kept / judged.columns,
                        "mass": mass,
                        "banks": banks,
                        "hash": name,
                        "maker": maker,
                        "alpha": judged.columns * curve.at(mass, curve.threshold),
                        "steps": steps,
                        "speed_up": float(plain.steps[0]) / steps,
                        "utilisation": kept / (banks * steps),
                        "of_ideal": ideal / steps,
                        "filling": curve.at(mass, curve.kept) / (banks * steps),
                    }
                )
    return records
