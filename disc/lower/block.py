"""A DiT block as commands."""

from __future__ import annotations

from disc.lower.attention import lower_attention
from disc.lower.buffers import Block
from disc.lower.emit import Emitter
from disc.lower.mlp import lower_mlp
from disc.lower.projection import Layer, lower_projection
from disc.lower.shape import StepKind
from disc.program import MaskMode, ProjectEpilogue, sizes


def lower_block(emitter: Emitter, block: Block, kind: StepKind) -> None:
    """Emit a step of a block.

    Raises
    ------
    ValueError
        The block does not fit the configuration, or the step does not fit the block.
    """
    if not 1 <= kind.rows <= block.shape.tokens:
        raise ValueError(f"rows: must be in [1, {block.shape.tokens}] (N), got {kind.rows}")
    if kind.hot != MaskMode.DENSE and block.scalars.hot_threshold is None:
        raise ValueError(f"hot: {kind.hot.name} needs a block with a hot_threshold")
    _qkv(emitter, block, kind)
    lower_attention(emitter, block, kind)
    _proj(emitter, block, kind)
    lower_mlp(emitter, block, kind)


def _qkv(emitter: Emitter, block: Block, kind: StepKind) -> None:
    """LayerNorm, modulation and the projections to Q, K and V."""
    d, b, x = block.shape.width, block.buffers, block.shared.x
    operand = ProjectEpilogue.OPERAND
    layers = [
        Layer(b.qkv, 0, b.qkv_constants, d, operand, block.shared.q.address, d),
        Layer(b.qkv, d, b.qkv_constants, 2 * d, operand, b.kv.address, 2 * d),
    ]
    fill = emitter.rows_normalised(x, d, b.attention, block.scalars.attention_epsilon)
    lower_projection(emitter, block.rows(kind), fill, d * sizes.RESIDUAL_BYTES, d, layers)


def _proj(emitter: Emitter, block: Block, kind: StepKind) -> None:
    """The projection behind attention, gated into the residual stream."""
    d, b = block.shape.width, block.buffers
    layer = Layer(
        b.proj,
        0,
        b.proj_constants,
        d,
        ProjectEpilogue.GATE,
        block.shared.x.address,
        d * sizes.RESIDUAL_BYTES,
        b.attention_gate.address,
    )
    fill = emitter.rows_from(block.shared.attention_out.address, d, d)
    lower_projection(emitter, block.rows(kind), fill, d, d, [layer])
