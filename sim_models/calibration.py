"""Fits the engine's constants to measured cycles, and judges the fit on samples held out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from disc.config import CoreConfig
from sim_models.engine import EngineModel, Operation
from sim_models.schedule import EngineConstants, constant_names

MAX_LATENCY = 48
"""No stage of the engine takes longer; bounds the search."""


@dataclass(frozen=True)
class Sample:
    """One command that was run on RTL."""

    label: str
    split: str
    """`fit`, or the name of a held-out set."""
    in_banks: NDArray[np.bool_]
    """[rows, B, ceil(N / B)]."""
    operation: Operation
    measured: int
    """Cycles."""
    shared: NDArray[np.bool_] | None = None
    """With residual sharing or a second pass the masks made, as `in_banks`."""

    def modelled(self, model: EngineModel) -> int:
        """Cycles by the model."""
        return model.cycles_of_masks(self.in_banks, self.operation, shared=self.shared)


def fit(config: CoreConfig, samples: Sequence[Sample]) -> EngineConstants:
    """Return the constants with the least summed squared relative error on the `fit` samples.

    The constants are whole cycles and the schedule is a maximum of sums, so this is a descent over
    integers, one or two constants at a time, from the designed latencies until none moves: a local
    optimum, so the start matters.  Constants that only ever appear in one sum cannot be told apart;
    any split of that sum predicts the same cycles.

    Raises
    ------
    ValueError
        No sample is marked `fit`.
    """
    chosen = [sample for sample in samples if sample.split == "fit"]
    if not chosen:
        raise ValueError("samples: none is marked 'fit'")

    def cost(constants: EngineConstants) -> float:
        model = EngineModel(config, constants)
        return sum((s.modelled(model) / s.measured - 1) ** 2 for s in chosen)

    best = designed_constants(config)
    best_cost = cost(best)
    moved = best_cost > 0
    while moved:
        moved = False
        for move in _moves():
            values = {name: getattr(best, name) + step for name, step in move.items()}
            if any(not 0 <= value <= MAX_LATENCY for value in values.values()):
                continue
            candidate = replace(best, **values)
            candidate_cost = cost(candidate)
            if candidate_cost < best_cost - 1e-15:
                best, best_cost, moved = candidate, candidate_cost, True
    return best


def _moves() -> Iterator[dict[str, int]]:
    """Yield changes to try: of one constant, then of two against each other."""
    names = constant_names()
    for name in names:
        for step in (-8, -4, -2, -1, 1, 2, 4, 8):
            yield {name: step}
    for one, other in combinations(names, 2):
        for step in (-2, -1, 1, 2):
            yield {one: step, other: -step}


def designed_constants(config: CoreConfig) -> EngineConstants:
    """Return the constants as the pipeline's register stages give them: where the fit starts.

    Adder trees have a register after every second level.
    """

    def tree(terms: int) -> int:
        return -(-(terms - 1).bit_length() // 2)

    dot, axpy = 3 + tree(config.array.lanes), 3 + tree(config.array.banks)
    return EngineConstants(
        command=2,
        listing=3,
        score=dot + 7,
        look_up=dot + 6,
        slot=1,
        scale=axpy + 6,
        word=axpy + 3,
        room=0,
        deliver=4,
        deliver_sums=2,
        dots=dot + 3,
        deliver_dots=dot + 5,
        generate=axpy + 4,
        generate_gap=3,
        half=1,
        kept=2,
        deliver_mask=2,
        hot=2,
    )


def errors(
    config: CoreConfig, constants: EngineConstants, samples: Sequence[Sample]
) -> dict[str, dict[str, float]]:
    """Return, per split, the number of samples and the signed mean and worst relative error."""
    model = EngineModel(config, constants)
    result = {}
    for split in sorted({sample.split for sample in samples}):
        relative = np.array(
            [s.modelled(model) / s.measured - 1 for s in samples if s.split == split]
        )
        result[split] = {
            "samples": len(relative),
            "mean_error": float(relative.mean()),
            "worst_error": float(relative[np.abs(relative).argmax()]),
        }
    return result
