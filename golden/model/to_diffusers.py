"""The transformer of this project as a `DiTTransformer2DModel`, for the tools of diffusers.

::

    to_diffusers(load_checkpoint("digits-256")).save_pretrained("digits-256-diffusers")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from golden.model.dit import DiT

if TYPE_CHECKING:
    from diffusers import DiTTransformer2DModel


def to_diffusers(model: DiT) -> DiTTransformer2DModel:
    """Copy a model into the class of diffusers; outputs differ by rounding only.

    `sample_size` of the result is the resolution at which positions count 0, 1, 2…
    (`base_grid` patches along an edge); larger latents are given finer positions in both
    implementations, so a model trained at 64 pixels is called with 64 × 64 latents as before.
    (The stock `DiTPipeline` draws at `sample_size`, and takes class 1000 for "no class".)

    Returns:
        In evaluation mode if `model` is, with its own copy of the weights.

    Raises:
        ImportError: diffusers is not installed.
        ValueError: mlp_ratio is not 4, the only one of `DiTTransformer2DModel`.
    """
    try:
        from diffusers import DiTTransformer2DModel
    except ImportError as error:
        raise ImportError(
            f"diffusers is missing ({error}); install 'disc-accelerator[diffusers]'"
        ) from None
    config = model.config
    if config.mlp_ratio != 4:
        raise ValueError(f"mlp_ratio: {config.mlp_ratio} is not 4, as DiTTransformer2DModel has it")
    result = DiTTransformer2DModel(
        num_attention_heads=config.heads,
        attention_head_dim=config.head_dim,
        in_channels=config.channels,
        out_channels=config.channels,
        num_layers=config.depth,
        sample_size=config.base_grid * config.patch,
        patch_size=config.patch,
        num_embeds_ada_norm=config.classes,
    )
    result.load_state_dict(_renamed(model))
    parameter = next(model.parameters())
    return result.to(parameter.device, parameter.dtype).train(model.training)


def _renamed(model: DiT) -> dict[str, Tensor]:
    weights: dict[str, Tensor] = {}

    def copy(source: str, *targets: str) -> None:
        for kind in ("weight", "bias"):
            parts = model.get_parameter(f"{source}.{kind}").detach().chunk(len(targets))
            for target, part in zip(targets, parts, strict=True):
                weights[f"{target}.{kind}"] = part

    copy("x_embedder.proj", "pos_embed.proj")
    copy("final_layer.adaLN_modulation.1", "proj_out_1")
    copy("final_layer.linear", "proj_out_2")
    for i in range(model.config.depth):
        own, theirs = f"blocks.{i}", f"transformer_blocks.{i}"
        # Each block of diffusers has its own copy of what embeds timestep and class.
        embedding = f"{theirs}.norm1.emb"
        copy("t_embedder.mlp.0", f"{embedding}.timestep_embedder.linear_1")
        copy("t_embedder.mlp.2", f"{embedding}.timestep_embedder.linear_2")
        table = model.y_embedder.embedding_table.weight.detach()
        weights[f"{embedding}.class_embedder.embedding_table.weight"] = table
        copy(f"{own}.adaLN_modulation.1", f"{theirs}.norm1.linear")
        copy(f"{own}.attn.qkv", *(f"{theirs}.attn1.to_{x}" for x in "qkv"))
        copy(f"{own}.attn.proj", f"{theirs}.attn1.to_out.0")
        copy(f"{own}.mlp.fc1", f"{theirs}.ff.net.0.proj")
        copy(f"{own}.mlp.fc2", f"{theirs}.ff.net.2")
    return weights
