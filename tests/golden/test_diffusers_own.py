"""The trained model as a `DiTTransformer2DModel`, and checkpoints in folders."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from diffusers import (
    DiTPipeline,
    DiTTransformer2DModel,
    PixArtSigmaPipeline,
    PixArtTransformer2DModel,
)
from small_diffusers import attached, generate, pipeline, relative

from disc.schedule import CTRConfig, STConfig
from golden.model import DiT, DiTConfig, load_checkpoint
from golden.model.to_diffusers import to_diffusers
from golden.sampling import initial_noise, sample

ACTIVE = {"ctr": CTRConfig(reuse=0.5), "st": STConfig(alpha=0.5)}


def denoiser(network: Any) -> Any:
    return lambda z, t, y: network(z, timestep=t, class_labels=y).sample


@pytest.mark.parametrize("checkpoint", ["digits-256", "digits-1024"])
def test_outputs_differ_by_rounding_only(checkpoint) -> None:
    model = load_checkpoint(checkpoint)
    network = to_diffusers(model)
    z = initial_noise([0, 1], 1, model.config.size_px)
    for timestep in (1.0, 500.0, 999.0):
        t, y = torch.full((2,), timestep), torch.tensor([3, model.config.null_class])
        with torch.no_grad():
            assert relative(denoiser(network)(z, t, y), model(z, t, y)) < 1e-5


@pytest.mark.parametrize(
    "settings",
    [ACTIVE, {"ctr": CTRConfig(threshold=0.1, forecast=2)}, {"st": STConfig(heads="shared")}],
    ids=["both", "CTR by threshold", "ST"],
)
def test_same_images_with_the_same_schedule(settings) -> None:
    """One code path: token lists are equal, and so is the record of work but for embeddings."""
    model = load_checkpoint("digits-256")
    network = to_diffusers(model)
    labels, seeds = [3, 8], [0, 1]
    dense = sample(model, labels, seeds, steps=8, guidance=2.0)
    with attached(model, steps=8, **settings) as accelerator:
        own = sample(model, labels, seeds, steps=8, guidance=2.0)
        own_log = list(accelerator.log)
    with attached(network, steps=8, **settings) as accelerator:
        other = sample(model, labels, seeds, steps=8, guidance=2.0, denoiser=denoiser(network))
        other_log = list(accelerator.log)
    assert relative(own, dense) > 1e-3
    assert relative(other, own) < 1e-4
    for a, b in zip(own_log, other_log, strict=True):
        assert a.computed == b.computed
        assert a.refresh == b.refresh
        for kind in ("embedding", "projection", "mlp", "final"):
            assert a.macs[kind] == b.macs[kind]
        # A probability next to the threshold may fall on its other side.
        assert abs(a.macs["attention"] - b.macs["attention"]) < 1e-4 * a.macs["attention"]


def test_round_trip_through_a_folder(tmp_path) -> None:
    model = load_checkpoint("digits-256")
    network = to_diffusers(model)
    network.save_pretrained(tmp_path)
    loaded = DiTTransformer2DModel.from_pretrained(tmp_path)
    assert not loaded.training
    images = []
    for each in (network, loaded):
        with attached(each, steps=4, **ACTIVE):
            images.append(sample(model, [5], [0], steps=4, denoiser=denoiser(each)))
    assert torch.equal(*images)


def test_own_copy_of_the_weights() -> None:
    model = DiT(DiTConfig(dim=32, heads=2, depth=2)).eval()
    network = to_diffusers(model)
    before = network.pos_embed.proj.weight.clone()
    with torch.no_grad():
        model.x_embedder.proj.weight.add_(1)
    assert torch.equal(network.pos_embed.proj.weight, before)
    assert to_diffusers(model.half().train()).training
    assert to_diffusers(model).dtype == torch.float16


def test_other_widths_of_the_mlp_are_refused() -> None:
    config = replace(DiTConfig(dim=32, heads=2, depth=2), mlp_ratio=2)
    with pytest.raises(ValueError, match="mlp_ratio: 2 is not 4"):
        to_diffusers(DiT(config))


@pytest.mark.parametrize("kind", ["dit", "pixart"])
def test_pipeline_from_a_folder(kind, tmp_path) -> None:
    """The documented way: a checkpoint's folder, loaded, then attached."""
    pipe = pipeline(kind, "dpm")
    pipe.save_pretrained(tmp_path)
    made, network = {
        "dit": (DiTPipeline, DiTTransformer2DModel),
        "pixart": (PixArtSigmaPipeline, PixArtTransformer2DModel),
    }[kind]
    parts = {} if kind == "dit" else {"text_encoder": None, "tokenizer": None}
    loaded = made.from_pretrained(tmp_path, local_files_only=True, **parts)
    loaded.set_progress_bar_config(disable=True)
    assert type(loaded.transformer) is network
    latents = []
    for each in (pipe, loaded):
        with attached(each.transformer, steps=6, **ACTIVE):
            latents.append(generate(each)[1])
    assert torch.equal(*latents)
