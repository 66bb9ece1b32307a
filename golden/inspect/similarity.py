"""How alike a block's branch outputs are in adjacent denoising steps (DiSC, figure 4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from golden.model.dit import DiT

BRANCHES = ("attention", "mlp")
QUANTILES = (0.1, 0.5, 0.9)


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Cosine of the angle between vectors [..., D] and [..., D]: [...], 0 for a zero vector."""
    return torch.nn.functional.cosine_similarity(a, b, dim=-1)


@dataclass(frozen=True, eq=False)
class Similarity:
    """Cosine similarities of steps s and s + 1, for s = 0 .. steps − 2; L layers.

    Of each token with itself, then averaged over tokens and images, unless it says otherwise.
    """

    branches: dict[str, NDArray[np.float64]]
    """"attention" and "mlp", outputs before their gates: [steps − 1, L]."""
    other_tokens: dict[str, NDArray[np.float64]]
    """The same of each token with another one, drawn at random: what all tokens have in common
    and what would be found without any memory of the token."""
    sums: NDArray[np.float64]
    """[steps − 1, 3]: 10 %, 50 % and 90 % quantile over tokens and images of the sum of all
    gated branches, which is what CTR keeps of a token here."""

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest cosine of all."""
        parts = (*self.branches.values(), *self.other_tokens.values(), self.sums)
        return float(min(x.min() for x in parts)), float(max(x.max() for x in parts))


@dataclass(eq=False)
class SimilarityMeter:
    """Watches a model's blocks while it samples; call `end_step` after each step.

    Args:
        model: is hooked until `remove`.
    """

    model: DiT
    _seen: dict[tuple[str, int], Tensor] = field(default_factory=dict)
    _before: dict[tuple[str, int], Tensor] = field(default_factory=dict)
    _rows: list[dict[str, NDArray[np.float64]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        blocks = self.model.blocks
        self._handles = [
            module.register_forward_hook(self._keep(name, layer))
            for layer, block in enumerate(blocks)
            for name, module in (("attention", block.attn), ("mlp", block.mlp))
        ]
        self._handles += [
            blocks[0].register_forward_pre_hook(self._embedding),
            blocks[-1].register_forward_hook(self._sum),
        ]

    def remove(self) -> None:
        """Stop watching."""
        for handle in self._handles:
            handle.remove()

    def end_step(self) -> None:
        """Compare what was seen since the last call with the step before."""
        if self._before:
            self._rows.append(self._compare())
        self._before, self._seen = self._seen, {}

    def result(self) -> Similarity:
        """Return all comparisons; there must have been two steps."""
        columns = {key: np.stack([row[key] for row in self._rows]) for key in self._rows[0]}
        return Similarity(
            branches={name: columns[name] for name in BRANCHES},
            other_tokens={name: columns[f"{name}, other tokens"] for name in BRANCHES},
            sums=columns["sums"],
        )

    def _keep(self, name: str, layer: int) -> Callable[..., None]:
        def hook(module: object, args: object, output: Tensor) -> None:
            self._seen[name, layer] = output.detach()

        return hook

    def _embedding(self, module: object, args: tuple[Tensor, ...]) -> None:
        self._seen["embedding", 0] = args[0].detach()

    def _sum(self, module: object, args: object, output: Tensor) -> None:
        self._seen["sums", 0] = output.detach() - self._seen.pop(("embedding", 0))

    def _compare(self) -> dict[str, NDArray[np.float64]]:
        tokens = self._seen["sums", 0].shape[1]
        other = torch.randperm(tokens, generator=torch.Generator().manual_seed(tokens))
        row: dict[str, list[float]] = {}
        for (name, layer), now in self._seen.items():
            before = self._before[name, layer]
            if name == "sums":
                spread = cosine(before, now).double().flatten()
                row[name] = spread.quantile(spread.new_tensor(QUANTILES)).tolist()
                continue
            row.setdefault(name, []).append(cosine(before, now).double().mean().item())
            row.setdefault(f"{name}, other tokens", []).append(
                cosine(before, now[:, other]).double().mean().item()
            )
        return {name: np.array(values) for name, values in row.items()}
