"""Self-attention of selected rows, with what it remembers from step to step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from disc.schedule import STConfig
from golden.accelerate.tokens import Rows
from golden.attention import attention_probabilities, masked_attention
from golden.st import MaskMaker, make_mask

_MOST_ENTRIES = 1 << 26
"""Attention probabilities held at a time while masks are made."""

Observer = Callable[[int, Tensor, Tensor, Tensor, Tensor | None, Tensor], None]
"""Called with layer, q [B, H, S, d], k and v [B, H, N, d], mask [B, H, S, N] or None, and out."""


@dataclass
class LayerState:
    """What a layer remembers; whatever a schedule does not need stays None."""

    k: Tensor | None = None
    v: Tensor | None = None
    """[B, H, N, d]; rows of reused tokens are as old as their last computation."""
    mask: Tensor | None = None
    """bool [B, H, N, N], or [B, 1, N, N] if heads share it, of the last refresh."""
    residual: Tensor | None = None
    """[B, H, N, d]: dense − masked output at the last refresh."""


class RememberingAttention:
    """An attention core (see `golden.attention`) whose keys outlive the step.

    Queries, keys and values come from the selected tokens only.  Keys and values of the others
    are those of their last computation (CTR); in some steps masks are made, and used until the
    next such step, with the residual of the dense output added (ST, residual sharing).

    Args:
        st: how masks are made; None attends densely.
        keep_keys: whether some step selects less than all tokens.
        maker: makes the masks, see `golden.attach`.
    """

    def __init__(
        self, st: STConfig | None, *, keep_keys: bool, maker: MaskMaker = make_mask
    ) -> None:
        # α = 0 keeps every entry: the same function, and to the bit only as the dense one.
        self.st = st if st and st.alpha > 0 else None
        self.keep_keys = keep_keys
        self.maker = maker
        self.layers: dict[int, LayerState] = {}
        self.kept: dict[int, Tensor] = {}
        """Of the current step: layer to attention entries computed, float64 [B, H]; the mean of
        those of Q Kᵀ and of P V, which differ where a mask is made and used at once.  A refresh
        that shares its residual counts once: P V over the kept entries is a stage of that over
        all, see docs/arithmetic.md."""
        self.observer: Observer | None = None
        self.plain = False
        """Attend densely among the rows given and remember nothing."""
        self._rows: Rows | None = None
        self._make_masks = True

    def begin(self, rows: Rows, *, make_masks: bool) -> None:
        """Start a step that computes these rows, all of them if masks are to be made."""
        self._rows, self._make_masks = rows, make_masks
        self.kept.clear()

    def reset(self) -> dict[int, LayerState]:
        """Forget everything; returns where layers will be remembered."""
        self.layers = {}
        self.kept.clear()
        return self.layers

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, layer: int) -> Tensor:
        """Attend: q, k and v [B, H, S, d] of the selected rows give [B, H, S, d]."""
        if self.plain or self._rows is None:
            return _dense(q, k, v)
        state = self.layers.setdefault(layer, LayerState())
        if self.keep_keys:
            k, v = self._remember(state, k, v)
        mask = None
        if self.st is None:
            out = _dense(q, k, v)
        elif self._make_masks:
            out = self._masks_and_output(state, q, k, v)
            mask = None if self.st.share_residual else state.mask
        else:
            out, mask = self._reuse_mask(state, q, k, v)
        self.kept[layer] = self._count(q, k, mask)
        if self._make_masks and mask is not None:  # thresholds need all scores
            self.kept[layer] = (self.kept[layer] + self._count(q, k, None)) / 2
        if self.observer:
            self.observer(layer, q, k, v, mask, out)
        return out

    def _remember(self, state: LayerState, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        assert self._rows is not None
        if self._rows.all:
            state.k, state.v = k.contiguous(), v.contiguous()
            return k, v
        assert state.k is not None
        assert state.v is not None
        # Copies: what was handed out earlier must not change.
        state.k, state.v = state.k.clone(), state.v.clone()
        self._rows.put(state.k, k, 2)
        self._rows.put(state.v, v, 2)
        return state.k, state.v

    def _masks_and_output(self, state: LayerState, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        assert self.st is not None
        masks, outputs = [], []
        rows = max(1, _MOST_ENTRIES // (q.shape[0] * q.shape[1] * k.shape[2]))
        for first in range(0, q.shape[2], rows):
            p = attention_probabilities(q[:, :, first : first + rows].float(), k.float())
            masks.append(_checked(self.maker(p, self.st, first), p))
            outputs.append(masked_attention(p, v.float(), masks[-1]).to(q.dtype))
        state.mask = torch.cat(masks, dim=2)
        masked = torch.cat(outputs, dim=2)
        if not self.st.share_residual:
            return masked
        dense = _dense(q, k, v)
        state.residual = dense - masked
        return dense

    def _reuse_mask(
        self, state: LayerState, q: Tensor, k: Tensor, v: Tensor
    ) -> tuple[Tensor, Tensor]:
        assert self._rows is not None
        assert state.mask is not None
        mask = self._rows.take(state.mask, 2)
        out = _dense(q, k, v, mask)
        if state.residual is not None:
            out = out + self._rows.take(state.residual, 2)
        return out, mask

    def _count(self, q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
        assert self._rows is not None
        batch, heads = q.shape[:2]
        kept = torch.zeros(batch, heads, dtype=torch.float64)
        for image, count in enumerate(self._rows.counts):
            if mask is None:
                kept[image] = count * k.shape[2]
            else:
                kept[image] = mask[image, :, :count].sum(dim=(1, 2)).double().cpu()
        return kept


def _checked(mask: Tensor, p: Tensor) -> Tensor:
    batch, heads, rows, n = p.shape
    if mask.dtype != torch.bool or mask.shape not in {p.shape, (batch, 1, rows, n)}:
        raise ValueError(
            f"maker: must return bool {[batch, heads, rows, n]} or {[batch, 1, rows, n]}, got "
            f"{mask.dtype} {list(mask.shape)}"
        )
    if not mask.any(dim=-1).all():
        raise ValueError("maker: must keep an entry in every row, some keep none")
    return mask


def _dense(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
