"""Stock pipelines of diffusers: neutral settings, detaching, and what attach refuses."""

from functools import cache
from typing import Any

import pytest
import torch
from diffusers import FluxTransformer2DModel, UNet2DModel
from diffusers.models.attention_processor import AttnProcessor
from small_diffusers import (
    KINDS,
    SAMPLERS,
    attached,
    generate,
    pipeline,
    relative,
    transformer,
)
from torch import Tensor, nn

import golden
from disc.schedule import CTRConfig, STConfig
from golden.accelerate.adapters import SUPPORTED

NEUTRAL = {
    "nothing": {},
    "reuse 0, alpha 0": {"ctr": CTRConfig(reuse=0), "st": STConfig(alpha=0)},
    "threshold 0": {"ctr": CTRConfig(threshold=0, forecast=2), "st": STConfig(alpha=0)},
    "refresh always": {"every": 1, "ctr": CTRConfig(reuse=0.9), "st": STConfig(alpha=2)},
}
ACTIVE = {"ctr": CTRConfig(reuse=0.6), "st": STConfig(alpha=1)}


@cache
def stock(kind: str, solver: str) -> tuple[Tensor, Tensor]:
    return generate(pipeline(kind, solver))


@pytest.mark.parametrize("settings", NEUTRAL.values(), ids=NEUTRAL.keys())
@pytest.mark.parametrize("solver", SAMPLERS)
@pytest.mark.parametrize("kind", KINDS)
def test_neutral_settings_give_stock_images_to_the_bit(kind, solver, settings) -> None:
    pipe = pipeline(kind, solver)
    with attached(pipe.transformer, steps=6, **settings) as accelerator:
        images, latents = generate(pipe)
        assert [record.step for record in accelerator.log] == list(range(6))
        assert accelerator.macs() == accelerator.dense_macs()
    assert torch.equal(latents, stock(kind, solver)[1])
    assert torch.equal(images, stock(kind, solver)[0])


@pytest.mark.parametrize("solver", SAMPLERS)
@pytest.mark.parametrize("kind", KINDS)
def test_detaching_restores_to_the_bit(kind, solver) -> None:
    pipe = pipeline(kind, solver)
    processors = [block.attn1.processor for block in pipe.transformer.transformer_blocks]
    accelerator = golden.attach(pipe.transformer, steps=6, **ACTIVE)
    _, latents = generate(pipe)
    assert 1e-5 < relative(latents, stock(kind, solver)[1]) < 0.5
    assert accelerator.macs()["total"] < 0.7 * accelerator.dense_macs()["total"]
    golden.detach(pipe.transformer)
    assert torch.equal(generate(pipe)[1], stock(kind, solver)[1])
    after = [block.attn1.processor for block in pipe.transformer.transformer_blocks]
    assert all(a is b for a, b in zip(after, processors, strict=True))
    for module in pipe.transformer.modules():
        assert not module._forward_pre_hooks
        assert not module._forward_hooks
    assert vars(pipe.transformer).keys() == vars(transformer(kind)).keys()


def test_older_processor_is_replaced_by_the_faster_one() -> None:
    """`AttnProcessor` sums in another order than `scaled_dot_product_attention`."""
    pipe = pipeline("pixart", "ddim")
    pipe.transformer.set_attn_processor(AttnProcessor())
    _, before = generate(pipe)
    with attached(pipe.transformer, steps=6):
        _, latents = generate(pipe)
    assert relative(latents, before) < 1e-5
    assert type(pipe.transformer.transformer_blocks[0].attn1.processor) is AttnProcessor


def flux() -> nn.Module:
    return FluxTransformer2DModel(
        num_layers=1,
        num_single_layers=1,
        attention_head_dim=8,
        num_attention_heads=2,
        joint_attention_dim=8,
        pooled_projection_dim=8,
        axes_dims_rope=(2, 2, 4),
    )


def unet() -> nn.Module:
    return UNet2DModel(
        block_out_channels=(8, 8),
        norm_num_groups=4,
        down_block_types=("DownBlock2D",) * 2,
        up_block_types=("UpBlock2D",) * 2,
    )


@pytest.mark.parametrize("make", [flux, unet, lambda: nn.Linear(2, 2)], ids=["flux", "unet", "nn"])
def test_other_classes_are_refused(make) -> None:
    model = make().eval()
    with pytest.raises(ValueError, match=type(model).__name__) as error:
        golden.attach(model, steps=6)
    assert all(name in str(error.value) for name in SUPPORTED)
    assert not model._forward_pre_hooks


def test_attaching_twice_and_detaching_twice_are_refused() -> None:
    model = transformer("dit")
    golden.attach(model, steps=6)
    with pytest.raises(ValueError, match="already attached"):
        golden.attach(model, steps=6)
    golden.detach(model)
    with pytest.raises(ValueError, match="not attached"):
        golden.detach(model)
    golden.attach(model, steps=6)


@pytest.mark.parametrize("kind", KINDS)
def test_training_mode_is_refused(kind) -> None:
    with pytest.raises(ValueError, match=r"call eval\(\)"):
        golden.attach(transformer(kind).train(), steps=6)


def fused(model: Any) -> None:
    model.fuse_qkv_projections()


def normalised(model: Any) -> None:
    model.transformer_blocks[1].attn1.norm_q = nn.LayerNorm(8)


def rescaled(model: Any) -> None:
    model.transformer_blocks[1].attn1.rescale_output_factor = 2.0


@pytest.mark.parametrize(
    ("change", "message"),
    [(fused, "block 0 has processor FusedAttn"), (normalised, "norm_q"), (rescaled, "rescales")],
)
def test_attention_that_does_something_else_is_refused(change, message) -> None:
    model = transformer("pixart")
    change(model)
    with pytest.raises(ValueError, match=message):
        golden.attach(model, steps=6)


def test_gated_attention_is_refused() -> None:
    with pytest.raises(ValueError, match="gated"):
        golden.attach(transformer("pixart", attention_type="gated"), steps=6)


def test_processors_replaced_after_attach_are_noticed() -> None:
    pipe = pipeline("pixart", "ddim")
    with attached(pipe.transformer, steps=6, **ACTIVE):
        pipe.transformer.set_attn_processor(AttnProcessor())
        with pytest.raises(ValueError, match="only 0 of 2 blocks attended"):
            generate(pipe)
