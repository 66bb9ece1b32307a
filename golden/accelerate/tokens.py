"""Which rows of a batch are computed, and what stands in for the others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Rows:
    """Selected tokens of each image of a batch.

    Images may differ in how many they select; shorter lists are padded up to the longest, S, with
    tokens whose results `put` drops.

    Args:
        selected: for each image its tokens, ascending.
        tokens: N.
    """

    def __init__(self, selected: Sequence[NDArray[np.int64]], tokens: int) -> None:
        self.tokens = tokens
        self.counts = [len(s) for s in selected]
        # At least one row, since not every layer can reshape none; `put` drops it.
        self.longest = max(1, *self.counts)
        self._index = torch.zeros(len(selected), self.longest, dtype=torch.int64)
        for row, chosen in zip(self._index, selected, strict=True):
            row[: len(chosen)] = torch.from_numpy(chosen)

    @property
    def all(self) -> bool:
        """Whether every image computes every token."""
        return min(self.counts) == self.tokens

    def mask(self, device: torch.device) -> Tensor:
        """Selected tokens as bool [B, N]."""
        chosen = torch.zeros(len(self.counts), self.tokens, dtype=torch.bool)
        for image, count in enumerate(self.counts):
            chosen[image, self._index[image, :count]] = True
        return chosen.to(device)

    def take(self, x: Tensor, dim: int) -> Tensor:
        """Selected rows of x [B, …, N, …], N being axis `dim`: [B, …, S, …]."""
        if self.all:
            return x
        shape = [1] * x.ndim
        shape[0], shape[dim] = self._index.shape
        size = list(x.shape)
        size[dim] = self.longest
        return x.gather(dim, self._index.to(x.device).view(shape).expand(size))

    def put(self, x: Tensor, rows: Tensor, dim: int) -> None:
        """Write rows [B, …, S, …] to their places in x [B, …, N, …], in place."""
        index = self._index.to(x.device)
        for image, count in enumerate(self.counts):
            x[image].index_copy_(
                dim - 1, index[image, :count], rows[image].narrow(dim - 1, 0, count)
            )


class BranchSums:
    """The sum of all branch outputs of each token when last computed, extrapolated when reused.

    What a token gains between its embedding and the final layer changes smoothly over the steps.
    The polynomial of the given order through its last computed sums, in Newton's form, is
    evaluated at the current step; a token computed fewer times than that gets a lower order.

    Args:
        order: 0 (the last sum as it is), 1 or 2.
        damping: factor on the extrapolated change, in (0, 1].
    """

    def __init__(self, order: int, damping: float) -> None:
        self.order, self.damping = order, damping
        self._sums: list[Tensor] = []
        """Newest first, each [B, N, D]."""
        self._steps: list[Tensor] = []
        """When, int64 [B, N]; −1 for never."""

    def record(self, step: int, rows: Rows, sums: Tensor) -> None:
        """Take note of the sums [B, S, D] of the rows computed in this step."""
        if not self._sums:
            if not rows.all:
                raise ValueError(f"step: {step} reuses tokens before any were computed")
            self._sums = [sums.clone()]
            self._steps = [sums.new_full(sums.shape[:2], step, dtype=torch.int64)]
            return
        if len(self._sums) <= self.order:
            self._sums.append(self._sums[-1].clone())
            self._steps.append(torch.full_like(self._steps[-1], -1))
        for history in (self._sums, self._steps):
            for older in range(len(history) - 1, 0, -1):
                rows.put(history[older], rows.take(history[older - 1], 1), 1)
        rows.put(self._sums[0], sums, 1)
        rows.put(self._steps[0], torch.full_like(rows.take(self._steps[0], 1), step), 1)

    def forecast(self, step: int) -> Tensor:
        """Return every token's sum as expected in this step, [B, N, D]."""
        result = self._sums[0]
        differences = list(self._sums)
        product: Tensor | None = None
        known = torch.ones_like(self._steps[0], dtype=torch.bool)
        change = torch.zeros_like(result)
        for order in range(1, len(self._sums)):
            known = known & (self._steps[order] >= 0)
            for i in range(len(differences) - order):
                span = (self._steps[i] - self._steps[i + order]).clamp(min=1)
                differences[i] = (differences[i] - differences[i + 1]) / span[..., None]
            ahead = (step - self._steps[order - 1])[..., None]
            product = ahead if product is None else product * ahead
            change = change + torch.where(known[..., None], differences[0] * product, 0.0)
        return result + self.damping * change
