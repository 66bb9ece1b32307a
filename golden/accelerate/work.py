"""Multiply-accumulates of a forward pass, counted where they happen."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch import Tensor, nn

from golden.accelerate.adapters import Adapter
from golden.accelerate.tokens import Rows


class WorkCounter:
    """Counts the MACs of linear and convolution layers and of cross-attention as they run.

    Rows that pad an image's token list up to the longest of its batch do not count.

    Args:
        transformer: whose layers are watched.
        adapter: what they are.
    """

    def __init__(self, transformer: nn.Module, adapter: Adapter) -> None:
        self.macs: Counter[str] = Counter()
        self.rows: Rows | None = None
        self.paused = False
        self._handles = []
        for name, module in transformer.named_modules():
            kind = adapter.category(f".{name}")
            if isinstance(module, nn.Linear | nn.Conv2d):
                # Text keys and values do not depend on which tokens are selected.
                text = ".attn2.to_k" in name or ".attn2.to_v" in name
                per_token = kind in ("projection", "mlp", "cross-attention") and not text
                hook = self._matmul(str(kind or "conditioning"), per_token)
            elif name.endswith(".attn2"):
                hook = self._cross_attention
            else:
                continue
            self._handles.append(module.register_forward_hook(hook, with_kwargs=True))

    def remove(self) -> None:
        """Stop watching."""
        for handle in self._handles:
            handle.remove()

    def _matmul(self, kind: str, per_token: bool) -> Any:
        def count(module: nn.Module, args: Any, kwargs: Any, output: Tensor) -> None:
            if self.paused:
                return
            assert isinstance(module, nn.Linear | nn.Conv2d)
            if isinstance(module, nn.Linear):
                fan_in = module.in_features  # whatever the weight is packed into
            else:
                fan_in = module.weight[0].numel()
            if per_token and self.rows is not None:
                outputs = sum(self.rows.counts) * output.shape[-1]
            else:
                outputs = output.numel()
            self.macs[kind] += outputs * fan_in

        return count

    def _cross_attention(self, module: Any, args: Any, kwargs: Any, output: Tensor) -> None:
        if self.paused:
            return
        keys = kwargs["encoder_hidden_states"].shape[1]
        rows = sum(self.rows.counts) if self.rows else output.shape[0] * output.shape[1]
        self.macs["cross-attention"] += 2 * rows * keys * module.inner_dim
