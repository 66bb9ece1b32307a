"""A whole network in integers, and one denoising step of one image under CTR and ST.

What crosses the border to the host: token embeddings and conditioning vectors in, the final
layer's result out.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from disc.config import NumberConfig
from golden.integer.block import (
    BlockConstants,
    BlockResult,
    BlockState,
    BlockVectors,
    Sparsity,
    block,
)
from golden.integer.forecast import forecast
from golden.integer.layernorm import Modulation, layer_norm, modulate
from golden.integer.linear import Linear, Requantisation, accumulate, requantise
from golden.integer.rounding import Int, require_range, saturate

OUTPUT_BITS = 16
"""Signed bits of what the final layer gives to the host."""


@dataclass(frozen=True, eq=False)
class NetworkConstants:
    """Constants of a group of steps."""

    blocks: tuple[BlockConstants, ...]
    final_epsilon: int
    final: Linear
    final_scale: Requantisation


@dataclass(frozen=True, eq=False)
class StepVectors:
    """Conditioning of one step and class."""

    blocks: tuple[BlockVectors, ...]
    final: Modulation


@dataclass(eq=False)
class ImageState:
    """What one image keeps between steps.  N tokens, D channels."""

    blocks: list[BlockState]
    last: Int
    """[N, D] sum of all branches when a token was last computed."""
    before: Int
    """[N, D] the time before."""
    last_step: Int
    """[N] step of `last`; -1 before the first."""
    before_step: Int
    """[N] step of `before`; -1 if there is none."""

    @staticmethod
    def empty(layers: int, heads: int, tokens: int, head_dim: int) -> ImageState:
        """State before step 0."""
        return ImageState(
            [BlockState.empty(heads, tokens, head_dim) for _ in range(layers)],
            np.zeros((tokens, heads * head_dim), np.int64),
            np.zeros((tokens, heads * head_dim), np.int64),
            np.full(tokens, -1, np.int64),
            np.full(tokens, -1, np.int64),
        )


@dataclass(frozen=True, eq=False)
class StepResult:
    """Result of a step with what a debugger wants to see on the way."""

    out: Int
    """[N, outputs] signed `OUTPUT_BITS`."""
    x: Int
    """[N, D] residual stream before the final layer."""
    blocks: list[BlockResult] = field(default_factory=list)
    """Of the selected rows."""


def denoise_step(
    embedding: Int,
    selected: Int,
    step: int,
    constants: NetworkConstants,
    vectors: StepVectors,
    state: ImageState,
    sparsity: Sparsity,
    ratios: Int | None,
    number: NumberConfig,
) -> StepResult:
    """Execute a step for one image and bring its state up to date.

    Parameters
    ----------
    embedding
        [N, D] signed `residual_bits`, tokens with positions.
    selected
        [R] tokens to compute, ascending; the others are forecast.
    step
        Counts from 0; tokens remember in which they were computed.
    ratios
        `disc.tables.step_ratio_table` for a forecast of order 1; None holds the last value.

    Raises
    ------
    ValueError
        A token that was never computed is not selected, or an operand leaves its format.
    """
    if embedding.shape != state.last.shape:
        raise ValueError(f"embedding: want shape {state.last.shape}, got {embedding.shape}")
    require_range("embedding", embedding, number.residual_bits)
    reused = np.setdiff1d(np.arange(len(embedding)), selected)
    if np.any(state.last_step[reused] < 0):
        token = reused[state.last_step[reused] < 0][0]
        raise ValueError(f"selected: token {token} was never computed; step {step} cannot reuse it")

    x = embedding[selected]
    results = []
    for one, own, kept in zip(constants.blocks, vectors.blocks, state.blocks, strict=True):
        results.append(block(x, selected, one, own, kept, sparsity, number))
        x = results[-1].x

    stream = np.empty_like(embedding)
    stream[selected] = x
    stream[reused] = saturate(
        embedding[reused] + _forecast(state, reused, step, ratios, number), number.residual_bits
    )
    state.before[selected] = state.last[selected]
    state.before_step[selected] = state.last_step[selected]
    state.last[selected] = saturate(x - embedding[selected], number.residual_bits)
    state.last_step[selected] = step

    normal = modulate(layer_norm(stream, constants.final_epsilon), vectors.final, number)
    acc = accumulate(normal, constants.final, number)
    return StepResult(requantise(acc, constants.final_scale, OUTPUT_BITS), stream, results)


def _forecast(
    state: ImageState, tokens: Int, step: int, ratios: Int | None, number: NumberConfig
) -> Int:
    last, before = state.last[tokens], state.before[tokens]
    if ratios is None or not len(tokens):
        return last
    since = step - state.last_step[tokens]
    once = state.before_step[tokens] < 0
    apart = np.where(once, 0, state.last_step[tokens] - state.before_step[tokens])
    return forecast(last, before, since, apart, ratios, number)
