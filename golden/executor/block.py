"""Between the integer core's block and a lowered one: tensors into an image and state out of it."""

from __future__ import annotations

import numpy as np

from disc.lower.layout import Image
from disc.lower.memory import BlockMemory
from disc.lower.shape import BlockScalars, StepKind
from disc.program import MaskMode, sizes
from golden.integer.block import BlockConstants, BlockState, BlockVectors, Sparsity
from golden.integer.rounding import Int


def scalars(constants: BlockConstants) -> BlockScalars:
    """Numbers that become fields of commands."""
    return BlockScalars(
        constants.heads,
        constants.attention_epsilon,
        constants.mlp_epsilon,
        constants.hot_threshold,
    )


def step_kind(constants: BlockConstants, sparsity: Sparsity, rows: int) -> StepKind:
    """What `golden.integer.block.block` does, as a kind of program.

    Raises
    ------
    ValueError
        One mask for all heads: the core makes one a head.
    """
    if sparsity.one_mask:
        raise ValueError("one_mask: programs make a mask for each head, got True")
    hot = MaskMode.DENSE
    if constants.hot_threshold is not None:
        hot = MaskMode.GENERATE if sparsity.make_hot else MaskMode.MASKED
    fill = sparsity.mode == MaskMode.GENERATE and sparsity.fill is not None
    return StepKind(rows, sparsity.mode, sparsity.threshold, sparsity.share_residual, hot, fill)


def put_constants(memory: BlockMemory, image: Image, constants: BlockConstants) -> None:
    """Write weights and constants."""
    b, c = memory.buffers, constants
    image.put(b.qkv, c.qkv.weight, "<i1")
    image.put_constants(b.qkv_constants, c.qkv.bias, c.qkv_scale.multiplier, c.qkv_scale.shift)
    image.put(b.proj, c.proj.weight, "<i1")
    image.put_constants(b.proj_constants, c.proj.bias)
    image.put(b.up, c.up.weight, "<i1")
    image.put_constants(b.up_constants, c.up.bias, c.up_scale.multiplier, c.up_scale.shift)
    image.put(b.gelu, c.gelu, "<i1")
    image.put(b.down, c.down.weight.T, "<i1")
    image.put(b.down_bias, c.down.bias, f"<i{sizes.accumulator_bytes(memory.config)}")


def put_vectors(memory: BlockMemory, image: Image, vectors: BlockVectors) -> None:
    """Write what conditioning gives."""
    b = memory.buffers
    for buffer, modulation in ((b.attention, vectors.attention), (b.mlp, vectors.mlp)):
        image.put_vectors(buffer, modulation.shift, modulation.multiplier, modulation.bias)
    for buffer, gate in (
        (b.attention_gate, vectors.attention_gate),
        (b.mlp_gate, vectors.mlp_gate),
    ):
        image.put_vectors(buffer, gate.shift, gate.multiplier)


def put_state(memory: BlockMemory, image: Image, state: BlockState) -> None:
    """Write what earlier steps left."""
    memory.put_kv(image, state.k, state.v)
    memory.put_masks(image, state.mask)
    memory.put_residual(image, state.residual)
    hot = np.ones(memory.shape.hidden, bool) if state.hot is None else state.hot
    memory.put_hot(image, hot)


def put_rows(memory: BlockMemory, image: Image, x: Int, tokens: Int) -> None:
    """Write the residual stream [N, D] and the list of rows to compute."""
    memory.put_x(image, x)
    image.put_list(memory.shared.rows, tokens.tolist())


def state_of(memory: BlockMemory, image: Image) -> BlockState:
    """Read the state behind a step."""
    k, v = memory.kv(image)
    return BlockState(k, v, memory.masks(image), memory.residual(image), memory.hot(image))
