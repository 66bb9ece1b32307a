"""What reuse and masks save, from work by kind and what each step uses of it.

Work is counted in multiply-accumulates (MAC); a FLOP count is twice that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from golden.accelerate.session import Accelerator

KINDS = (
    "projection",
    "attention",
    "cross-attention",
    "prompt",
    "mlp",
    "embedding",
    "conditioning",
    "final",
)
"""As `golden.accelerate.adapters.Category`, but for "prompt": what depends on the prompt alone, the
caption's MLP and the keys and values of cross-attention."""
PER_TOKEN = ("projection", "attention", "cross-attention", "mlp")
"""Kinds of which a reused token needs nothing."""

GROUPS: Mapping[str, tuple[str, ...]] = {
    "self-attention": ("projection", "attention"),
    "QK and PV": ("attention",),
    "total": KINDS,
}
"""What savings are told of."""

Work = Mapping[str, float]
"""MACs by kind; a kind that a network does not have may be missing."""


@dataclass(frozen=True)
class StepUse:
    """What a step computes of its work, mean over images, layers and heads."""

    computed: float
    """Tokens computed, of all."""
    density: float
    """Attention entries computed, of computed tokens × N; 0 where no token is computed."""

    @property
    def attention(self) -> float:
        """MACs of QKᵀ and P·V, of the dense ones."""
        return self.computed * self.density


def reduced(dense: Work, uses: Sequence[StepUse]) -> dict[str, float]:
    """MACs a step, mean over the steps, of a network whose dense step takes `dense`."""
    tokens = float(np.mean([use.computed for use in uses]))
    attention = float(np.mean([use.attention for use in uses]))
    factor = dict.fromkeys(PER_TOKEN, tokens) | {"attention": attention}
    return {kind: macs * factor.get(kind, 1.0) for kind, macs in dense.items()}


def savings(dense: Work, done: Work) -> dict[str, float]:
    """Fraction saved of each of `GROUPS`: 1 − done / dense."""

    def total(work: Work, kinds: Sequence[str]) -> float:
        return sum(work.get(kind, 0.0) for kind in kinds)

    return {
        name: 1 - total(done, kinds) / total(dense, kinds)
        for name, kinds in GROUPS.items()
        if total(dense, kinds)
    }


@dataclass(frozen=True, eq=False)
class MeasuredWork:
    """Of one generation with a schedule attached; MACs are means over steps and images."""

    tokens: int
    dense: dict[str, float]
    done: dict[str, float]
    uses: list[StepUse]

    @property
    def savings(self) -> dict[str, float]:
        """Fractions saved, see `savings`."""
        return savings(self.dense, self.done)

    def to_json(self) -> dict[str, Any]:
        """Return a document for JSON."""
        return {
            "tokens": self.tokens,
            "dense_macs": self.dense,
            "done_macs": self.done,
            "savings": self.savings,
            "steps": [asdict(use) for use in self.uses],
        }


def measured_work(accelerator: Accelerator) -> MeasuredWork:
    """Read the log of an accelerator, still attached, after a generation."""
    log = accelerator.log
    images = len(log[0].computed)
    each = len(log) * images
    dense, done = accelerator.dense_macs(), accelerator.macs()
    dense.pop("total")
    done.pop("total")
    uses = [
        StepUse(
            computed=sum(r.computed) / (r.tokens * images),
            density=float(np.mean(r.density)),
        )
        for r in log
    ]
    return MeasuredWork(
        tokens=log[0].tokens,
        dense={kind: count / each for kind, count in dense.items()},
        done={kind: count / each for kind, count in done.items()},
        uses=uses,
    )
