"""How the supported transformers name their parts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from golden.attention import AttentionCore
from golden.model.dit import DiT

Category = Literal[
    "embedding", "conditioning", "projection", "attention", "cross-attention", "mlp", "final"
]
"""Kinds of work.  "projection" is that of self-attention: queries, keys, values and output."""

SUPPORTED = ("golden.model.DiT", "DiTTransformer2DModel", "PixArtTransformer2DModel")

_PROCESSORS = ("AttnProcessor2_0", "AttnProcessor")
"""Those of self-attention that `CoreProcessor` may stand in for; others do something else."""


@dataclass(frozen=True)
class Adapter:
    """A transformer's parts by their role."""

    patch: int
    """Edge of a token in values of the latent."""
    channels: int
    """Of the latent."""
    head_dim: int
    """Channels of a head of self-attention."""
    blocks: Sequence[nn.Module]
    """Each maps [B, S, D] to [B, S, D], token by token but for its self-attention."""
    latent_and_time: Callable[[tuple[Any, ...], Mapping[str, Any]], tuple[Tensor, float]]
    """Of the transformer's arguments."""
    install: Callable[[AttentionCore], Callable[[], None]]
    """Let all self-attention run through a core; returns what undoes it."""
    categories: Sequence[tuple[str, Category]]
    """Parts of a module's name and the kind of its work; the first that occurs counts."""

    def category(self, name: str) -> Category | None:
        """Kind of work of a linear or convolution layer, by its name in the transformer."""
        return next((kind for part, kind in self.categories if part in name), None)


def adapter_of(transformer: nn.Module) -> Adapter:
    """Find out what a transformer is.

    Raises:
        ValueError: it is none of the supported classes, or uses a feature that is not supported.
    """
    if isinstance(transformer, DiT):
        return _own(transformer)
    diffusers = sys.modules.get("diffusers")
    if diffusers is not None:
        if isinstance(transformer, diffusers.DiTTransformer2DModel):
            return _diffusers(transformer, time_position=1)
        if isinstance(transformer, diffusers.PixArtTransformer2DModel):
            return _diffusers(transformer, time_position=2)
    raise ValueError(
        f"transformer: {type(transformer).__name__} is not supported; want one of "
        f"{', '.join(SUPPORTED)}"
    )


def _own(model: DiT) -> Adapter:
    def install(core: AttentionCore) -> Callable[[], None]:
        before = [block.attn.core for block in model.blocks]
        model.set_attention(core)

        def undo() -> None:
            for block, core_before in zip(model.blocks, before, strict=True):
                block.attn.core = core_before

        return undo

    return Adapter(
        patch=model.config.patch,
        channels=model.config.channels,
        head_dim=model.config.head_dim,
        blocks=list(model.blocks),
        latent_and_time=lambda args, kwargs: _arguments(args, kwargs, "z", "t"),
        install=install,
        categories=[
            ("x_embedder", "embedding"),
            ("t_embedder", "conditioning"),
            ("adaLN_modulation", "conditioning"),
            (".attn.", "projection"),
            (".mlp.", "mlp"),
            ("final_layer.linear", "final"),
        ],
    )


def _diffusers(model: Any, time_position: int) -> Adapter:
    for i, block in enumerate(model.transformer_blocks):
        attention = block.attn1
        processor = type(attention.processor).__name__
        if processor not in _PROCESSORS:
            raise ValueError(
                f"transformer: attn1 of block {i} has processor {processor}; want one of "
                f"{', '.join(_PROCESSORS)}, which CTR and ST replace"
            )
        if hasattr(block, "fuser"):
            raise ValueError(f"transformer: block {i} attends to objects (attention_type 'gated')")
        for feature in ("spatial_norm", "group_norm", "norm_q", "norm_k"):
            if getattr(attention, feature, None) is not None:
                raise ValueError(
                    f"transformer: attn1.{feature} of block {i} is set; it is not supported"
                )
        if attention.residual_connection or attention.rescale_output_factor != 1:
            raise ValueError(f"transformer: attn1 of block {i} rescales or adds its input")

    def install(core: AttentionCore) -> Callable[[], None]:
        attentions = [block.attn1 for block in model.transformer_blocks]
        before = [attention.processor for attention in attentions]
        for layer, attention in enumerate(attentions):
            attention.set_processor(CoreProcessor(core, layer))

        def undo() -> None:
            for attention, processor in zip(attentions, before, strict=True):
                attention.set_processor(processor)

        return undo

    crosses = model.transformer_blocks[0].attn2 is not None

    def latent_and_time(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Tensor, float]:
        text = kwargs.get("encoder_hidden_states", args[1] if len(args) > 1 else None)
        if crosses and text is None:
            # diffusers would attend among the image's tokens instead, of which some are left out.
            raise ValueError("encoder_hidden_states: missing; cross-attention needs the prompt")
        return _arguments(args, kwargs, "hidden_states", "timestep", time_position)

    return Adapter(
        patch=model.config.patch_size,
        channels=model.config.in_channels,
        head_dim=model.config.attention_head_dim,
        blocks=list(model.transformer_blocks),
        latent_and_time=latent_and_time,
        install=install,
        categories=[
            ("pos_embed", "embedding"),
            ("norm1.", "conditioning"),
            ("adaln_single", "conditioning"),
            ("caption_projection", "conditioning"),
            ("proj_out_1", "conditioning"),
            (".attn1.", "projection"),
            (".attn2.", "cross-attention"),
            (".ff.", "mlp"),
            ("proj_out", "final"),
        ],
    )


def _arguments(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], latent: str, time: str, position: int = 1
) -> tuple[Tensor, float]:
    z = kwargs.get(latent, args[0] if args else None)
    t = kwargs.get(time, args[position] if len(args) > position else None)
    for name, value in ((latent, z), (time, t)):
        if value is None:
            raise ValueError(f"{name}: missing")
    times = torch.as_tensor(t).detach().reshape(-1).cpu()
    if (times != times[0]).any():
        raise ValueError(
            f"{time}: {times.tolist()}; all images of a batch must be at the same step, since a "
            "step is a refresh for all of them or for none"
        )
    return z, float(times[0])


class CoreProcessor:
    """Self-attention processor of diffusers around an attention core.

    The same operations in the same order as `AttnProcessor2_0`, so that a core that attends
    densely gives the same result to the bit.
    """

    def __init__(self, core: AttentionCore, layer: int) -> None:
        self.core, self.layer = core, layer

    def __call__(
        self,
        attn: Any,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
        temb: Tensor | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """Attend among the tokens of hidden_states [B, S, D]."""
        if encoder_hidden_states is not None or attention_mask is not None:
            raise ValueError(
                "attention_mask: masks or other keys in self-attention are not supported; CTR and "
                "ST attend among the image's own tokens"
            )
        batch, rows, _ = hidden_states.shape
        q, k, v = (
            project(hidden_states).view(batch, rows, attn.heads, -1).transpose(1, 2)
            for project in (attn.to_q, attn.to_k, attn.to_v)
        )
        out = self.core(q, k, v, self.layer)
        out = out.transpose(1, 2).reshape(batch, rows, -1).to(q.dtype)
        return attn.to_out[1](attn.to_out[0](out))
