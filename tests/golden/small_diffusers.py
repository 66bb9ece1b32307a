"""Small random models of the real classes of diffusers, in their stock pipelines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from diffusers import (
    AutoencoderKL,
    DDIMScheduler,
    DiTPipeline,
    DiTTransformer2DModel,
    DPMSolverMultistepScheduler,
    PixArtSigmaPipeline,
    PixArtTransformer2DModel,
)
from torch import Tensor, nn

import golden
from golden.accelerate import Accelerator

KINDS = ("dit", "pixart")
SAMPLERS = ("ddim", "dpm")
LATENT, PATCH, TOKENS, WIDTH, HEADS, DEPTH, TEXT = 16, 2, 64, 32, 4, 2, 10


def transformer(kind: str, seed: int = 0, **changes: Any) -> Any:
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {
        "num_attention_heads": HEADS,
        "attention_head_dim": WIDTH // HEADS,
        "num_layers": DEPTH,
        "out_channels": 8,
        "sample_size": LATENT,
        "patch_size": PATCH,
    }
    if kind == "pixart":
        sizes |= {"cross_attention_dim": WIDTH, "caption_channels": 16}
    made = {"dit": DiTTransformer2DModel, "pixart": PixArtTransformer2DModel}[kind]
    model = made(**(sizes | changes)).eval().requires_grad_(False)
    # Sharper attention than random weights have, so that masks keep some entries and drop others.
    for block in model.transformer_blocks:
        block.attn1.to_q.weight *= 6
    return model


def sampler(name: str) -> Any:
    return DDIMScheduler(clip_sample=False) if name == "ddim" else DPMSolverMultistepScheduler()


def pipeline(kind: str, solver: str, model: Any = None) -> Any:
    model = transformer(kind) if model is None else model
    torch.manual_seed(1)
    vae = AutoencoderKL(
        block_out_channels=(8, 16),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        norm_num_groups=4,
        latent_channels=4,
    ).eval()
    if kind == "dit":
        pipe: Any = DiTPipeline(model, vae, sampler(solver))
    else:
        pipe = PixArtSigmaPipeline(
            tokenizer=None,
            text_encoder=None,
            vae=vae,
            transformer=model,
            scheduler=sampler(solver),
        )
    pipe.set_progress_bar_config(disable=True)
    return pipe


def prompts(batch: int) -> dict[str, Tensor]:
    """Embeddings and masks of prompts of 7 tokens and negative prompts of 2, both padded."""
    generator = torch.Generator().manual_seed(5)
    result = {}
    for name, length in (("", 7), ("negative_", 2)):
        result[f"{name}prompt_embeds"] = torch.randn(batch, TEXT, 16, generator=generator)
        mask = torch.zeros(batch, TEXT)
        mask[:, :length] = 1
        result[f"{name}prompt_attention_mask"] = mask
    return result


def generate(pipe: Any, *, steps: int = 6, batch: int = 2, **changes: Any) -> tuple[Tensor, Tensor]:
    """Images of the stock pipeline with guidance, and the latents that its VAE was given."""
    latents: list[Tensor] = []
    handle = pipe.vae.post_quant_conv.register_forward_pre_hook(
        lambda module, args: latents.append(args[0])
    )
    inputs: dict[str, Any]
    if isinstance(pipe, DiTPipeline):
        inputs = {"class_labels": [3, 207, 500][:batch], "guidance_scale": 4.0}
    else:
        inputs = {
            "prompt": None,
            "negative_prompt": None,
            "use_resolution_binning": False,
            **prompts(batch),
        }
    inputs |= {"generator": torch.Generator().manual_seed(0), "output_type": "pt"}
    try:
        images = pipe(num_inference_steps=steps, **(inputs | changes)).images
    finally:
        handle.remove()
    return images, latents[0]


@contextmanager
def attached(model: nn.Module, **settings: Any) -> Iterator[Accelerator]:
    accelerator = golden.attach(model, **settings)
    try:
        yield accelerator
    finally:
        golden.detach(model)


def conditioning(kind: str, batch: int, seed: int = 0) -> dict[str, Tensor]:
    """What a transformer needs beside latent and timestep, different for every image."""
    generator = torch.Generator().manual_seed(seed)
    if kind == "dit":
        return {"class_labels": torch.randint(0, 1000, (batch,), generator=generator)}
    return {"encoder_hidden_states": torch.randn(batch, TEXT, 16, generator=generator)}


def latent_walk(batch: int, steps: int, edge: int = LATENT, seed: int = 0) -> list[Tensor]:
    """Latents [B, 4, edge, edge] whose tokens change by very different amounts a step."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(batch, 4, edge, edge, generator=generator)
    rate = torch.rand(batch, 1, edge // PATCH, edge // PATCH, generator=generator) ** 3
    rate = rate.repeat_interleave(PATCH, 2).repeat_interleave(PATCH, 3)
    walk = [z]
    for _ in range(steps - 1):
        walk.append(walk[-1] + rate * torch.randn(z.shape, generator=generator))
    return walk


@torch.no_grad()
def evaluate(
    model: Any,
    walk: Sequence[Tensor],
    given: dict[str, Tensor],
    *,
    first: int = 900,
    fall: int = 50,
) -> list[Tensor]:
    """Outputs of the transformer along a walk, at falling timesteps."""
    return [
        model(z, timestep=torch.full((len(z),), first - fall * i), **given).sample
        for i, z in enumerate(walk)
    ]


def relative(a: Tensor, b: Tensor) -> float:
    return float((a.float() - b.float()).norm() / b.float().norm())
