"""One DiT block in integers, for a list of rows, with the state that it keeps between steps."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from disc.config import NumberConfig
from disc.hashing import BankHash
from disc.program import FuseCommand, MaskMode
from golden.integer.fused import FusedResult, fused_attention
from golden.integer.layernorm import Modulation, layer_norm, modulate
from golden.integer.linear import (
    Gate,
    Linear,
    Requantisation,
    accumulate,
    gate_residual,
    requantise,
)
from golden.integer.mlp import hidden_units, hot_columns
from golden.integer.rounding import Int
from golden.integer.sharing import add_residual, common_mask, masked_output, shared_residual


@dataclass(frozen=True, eq=False)
class BlockConstants:
    """What a block holds for a whole run, or for a group of steps.  H heads of d channels."""

    heads: tuple[FuseCommand, ...]
    """One per head, mode DENSE: scales; the other fields say nothing here."""
    attention_epsilon: int
    qkv: Linear
    """[3 * D, D]: q of all heads, then k, then v."""
    qkv_scale: Requantisation
    proj: Linear
    mlp_epsilon: int
    up: Linear
    up_scale: Requantisation
    gelu: Int
    """Table of `mlp.look_up`."""
    down: Linear
    hot_threshold: int | None = None
    """Columns are hot above it, see `mlp.hot_columns`; None computes all columns always."""


@dataclass(frozen=True, eq=False)
class BlockVectors:
    """What conditioning gives a block, by step and class."""

    attention: Modulation
    attention_gate: Gate
    mlp: Modulation
    mlp_gate: Gate


@dataclass(frozen=True)
class Sparsity:
    """How a block attends and what it makes; `plan` chooses it by step."""

    mode: MaskMode = MaskMode.DENSE
    threshold: int = 0
    """GENERATE, as in `FuseCommand`."""
    share_residual: bool = True
    """GENERATE uses the dense result and keeps the difference; False uses the masked one."""
    one_mask: bool = False
    """GENERATE makes one mask for all heads."""
    make_hot: bool = True
    """Compute all hidden columns, and note which are hot; False computes the hot ones only."""
    fill: BankHash | None = None
    """Columns to banks: GENERATE fills banks up to the fullest one, see `new_mask`.  Keys are one
    tile."""

    def __post_init__(self) -> None:
        if self.fill and self.one_mask:
            raise ValueError("fill: needs a mask for each head, got one for all")


@dataclass(eq=False)
class BlockState:
    """What a block keeps between steps, for one image."""

    k: Int
    """[H, N, d], stale where a token is reused."""
    v: Int
    """[H, N, d], the same."""
    mask: NDArray[np.bool_]
    """[H, N, N], rows are queries."""
    residual: Int
    """[H, N, d], see `sharing`."""
    hot: NDArray[np.bool_] | None = None
    """[hidden], None for all."""

    @staticmethod
    def empty(heads: int, tokens: int, head_dim: int) -> BlockState:
        """State before the first step."""
        shape = (heads, tokens, head_dim)
        return BlockState(
            np.zeros(shape, np.int64),
            np.zeros(shape, np.int64),
            np.ones((heads, tokens, tokens), bool),
            np.zeros(shape, np.int64),
        )


@dataclass(frozen=True, eq=False)
class BlockResult:
    """A block's result with what a debugger wants to see on the way.  R rows."""

    x: Int
    """[R, D] residual stream behind the block."""
    attention_in: Int
    """[R, D] normalised and modulated."""
    q: Int
    """[H, R, d]; k and v are in the state."""
    attention_out: Int
    """[R, D], heads side by side."""
    x_between: Int
    """[R, D] residual stream between the branches."""
    mlp_in: Int
    """[R, D]."""
    hidden: Int
    """[R, hidden]."""


def block(
    x: Int,
    tokens: Int,
    constants: BlockConstants,
    vectors: BlockVectors,
    state: BlockState,
    sparsity: Sparsity,
    number: NumberConfig,
) -> BlockResult:
    """Execute a block on the selected rows and bring its state up to date.

    Parameters
    ----------
    x
        [R, D] residual stream of the selected rows.
    tokens
        [R] their token indices, distinct.
    """
    attention_in = modulate(layer_norm(x, constants.attention_epsilon), vectors.attention, number)
    qkv = requantise(
        accumulate(attention_in, constants.qkv, number), constants.qkv_scale, number.operand_bits
    )
    heads = len(constants.heads)
    q, k, v = qkv.reshape(len(x), 3, heads, state.k.shape[2]).transpose(1, 2, 0, 3)
    state.k[:, tokens], state.v[:, tokens] = k, v
    out = attention(q, tokens, constants.heads, state, sparsity, number)
    attention_out = out.transpose(1, 0, 2).reshape(x.shape)
    between = gate_residual(
        x, accumulate(attention_out, constants.proj, number), vectors.attention_gate, number
    )
    mlp_in = modulate(layer_norm(between, constants.mlp_epsilon), vectors.mlp, number)
    hidden = hidden_units(
        mlp_in,
        constants.up,
        constants.up_scale,
        constants.gelu,
        number,
        hot=None if sparsity.make_hot else state.hot,
    )
    if sparsity.make_hot and constants.hot_threshold is not None:
        state.hot = hot_columns(hidden, constants.hot_threshold)
    after = gate_residual(
        between, accumulate(hidden, constants.down, number), vectors.mlp_gate, number
    )
    return BlockResult(after, attention_in, q, attention_out, between, mlp_in, hidden)


def attention(
    q: Int,
    tokens: Int,
    commands: tuple[FuseCommand, ...],
    state: BlockState,
    sparsity: Sparsity,
    number: NumberConfig,
) -> Int:
    """Attend with the selected rows to the cached K and V of all tokens, head by head.

    With GENERATE, masks and residuals of the rows are made and kept; with MASKED they are used.

    Parameters
    ----------
    q
        [H, R, d].

    Returns
    -------
    [H, R, d] signed `operand_bits`.
    """
    mode, threshold = sparsity.mode, sparsity.threshold
    heads = [
        replace(
            command,
            mode=mode,
            threshold=threshold,
            columns=state.k.shape[1],
            fill=mode == MaskMode.GENERATE and sparsity.fill is not None,
        )
        for command in commands
    ]
    results: list[FusedResult] = []
    out = np.empty_like(q)
    for h, command in enumerate(heads):
        mask = state.mask[h, tokens] if mode == MaskMode.MASKED else None
        result = fused_attention(
            q[h],
            state.k[h],
            state.v[h],
            command,
            number,
            mask=mask,
            tokens=tokens,
            hash_=sparsity.fill,
        )
        out[h] = result.out
        if mode == MaskMode.MASKED and sparsity.share_residual:
            out[h] = add_residual(result, state.residual[h, tokens], command, number)
        if mode == MaskMode.GENERATE:
            if sparsity.one_mask:
                results.append(result)
            else:
                out[h] = _keep(h, result, result.mask, tokens, command, state, sparsity, number)
    if results:
        mask = common_mask(results, threshold, tokens)
        for h, (result, command) in enumerate(zip(results, heads, strict=True)):
            out[h] = _keep(h, result, mask, tokens, command, state, sparsity, number)
    return out


def _keep(
    h: int,
    result: FusedResult,
    mask: NDArray[np.bool_],
    tokens: Int,
    command: FuseCommand,
    state: BlockState,
    sparsity: Sparsity,
    number: NumberConfig,
) -> Int:
    """Keep a head's new mask, and the residual if shared; return the result of the refresh."""
    state.mask[h, tokens] = mask
    if not sparsity.share_residual:
        return masked_output(result, mask, state.v[h], command, number)
    state.residual[h, tokens] = shared_residual(result, mask, state.v[h], command, number)
    return result.out
