"""Between the integer core's network and a lowered one."""

from __future__ import annotations

import numpy as np

from disc.lower.layout import Image
from disc.lower.plan import NetworkPlan, NetworkScalars
from disc.program import sizes
from golden.executor.block import put_constants, put_state, put_vectors, scalars, state_of
from golden.integer.network import ImageState, NetworkConstants, StepVectors
from golden.integer.rounding import Int


def network_scalars(constants: NetworkConstants, ratios: Int | None) -> NetworkScalars:
    """Numbers that become fields of commands."""
    return NetworkScalars(
        tuple(scalars(block) for block in constants.blocks),
        constants.final_epsilon,
        hold=ratios is None,
    )


def put_network(
    plan: NetworkPlan, image: Image, constants: NetworkConstants, ratios: Int | None
) -> None:
    """Write what holds for a group of steps."""
    for memory, block in zip(plan.blocks, constants.blocks, strict=True):
        put_constants(memory, image, block)
    b, scale = plan.buffers, constants.final_scale
    image.put(b.final, constants.final.weight, "<i1")
    image.put_constants(b.final_constants, constants.final.bias, scale.multiplier, scale.shift)
    if ratios is not None:
        image.put(b.ratios, ratios, "<u4")


def put_step(
    plan: NetworkPlan,
    image: Image,
    embedding: Int,
    selected: Int,
    step: int,
    vectors: StepVectors,
) -> None:
    """Write what the host gives for a step."""
    n = plan.shape.tokens
    for memory, own in zip(plan.blocks, vectors.blocks, strict=True):
        put_vectors(memory, image, own)
    b, final = plan.buffers, vectors.final
    image.put_vectors(b.final_modulation, final.shift, final.multiplier, final.bias)
    image.put(b.embedding, embedding, "<i2")
    image.put(plan.shared.x, embedding, "<i2")
    image.put_list(plan.shared.rows, selected.tolist())
    image.put_list(b.reused, np.setdiff1d(np.arange(n), selected).tolist())
    image.put_list(b.all_tokens, range(n))
    image.put(b.ages, [step, 0], "<i4")


def put_image_state(plan: NetworkPlan, image: Image, state: ImageState) -> None:
    """Write what earlier steps left."""
    for memory, own in zip(plan.blocks, state.blocks, strict=True):
        put_state(memory, image, own)
    b = plan.buffers
    image.put(b.last, state.last, "<i2")
    image.put(b.before, state.before, "<i2")
    ages = np.stack([state.last_step, state.before_step], axis=1)
    image.put(b.ages, ages, "<i2", offset=sizes.HEADER_BYTES)


def image_state(plan: NetworkPlan, image: Image) -> ImageState:
    """Read the state behind a step."""
    b, rows = plan.buffers, (plan.shape.tokens, plan.shape.width)
    ages = image.get(b.ages, (plan.shape.tokens, 2), "<i2", offset=sizes.HEADER_BYTES)
    return ImageState(
        [state_of(memory, image) for memory in plan.blocks],
        image.get(b.last, rows, "<i2"),
        image.get(b.before, rows, "<i2"),
        ages[:, 0],
        ages[:, 1],
    )


def output(plan: NetworkPlan, image: Image) -> Int:
    """Read the final layer's result, [N, outputs]."""
    return image.get(plan.buffers.out, (plan.shape.tokens, plan.outputs), "<i2")
