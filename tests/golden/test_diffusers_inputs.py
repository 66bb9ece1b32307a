"""Inputs of the transformers: prompts with padding, number formats, and what is refused."""

from typing import Any

import pytest
import torch
from small_diffusers import (
    KINDS,
    TEXT,
    attached,
    conditioning,
    evaluate,
    generate,
    latent_walk,
    pipeline,
    prompts,
    relative,
    transformer,
)

from disc.schedule import CTRConfig, STConfig

ACTIVE = {"ctr": CTRConfig(reuse=0.6), "st": STConfig(alpha=1)}


def test_padding_of_the_prompt_has_no_influence() -> None:
    walk, model = latent_walk(2, 6), transformer("pixart")
    prompt = conditioning("pixart", 2)["encoder_hidden_states"]
    mask = torch.zeros(2, TEXT)
    mask[:, :7] = 1
    garbage = prompt.clone()
    garbage[:, 7:] = 9 * torch.randn(2, TEXT - 7, 16)
    inputs: list[dict[str, Any]] = [
        {"encoder_hidden_states": prompt, "encoder_attention_mask": mask},
        {"encoder_hidden_states": garbage, "encoder_attention_mask": mask},
        {"encoder_hidden_states": prompt[:, :7]},
        {"encoder_hidden_states": prompt},
    ]
    with attached(model, steps=6, **ACTIVE) as accelerator:
        masked, other, short, unmasked = (
            torch.stack(evaluate(model, walk, given)) for given in inputs
        )
        assert accelerator.log[1].computed == [26, 26]
    assert relative(other, masked) < 1e-6
    assert relative(short, masked) < 1e-5
    assert relative(unmasked, masked) > 1e-3


def test_mask_on_image_tokens_is_refused() -> None:
    model, walk = transformer("pixart"), latent_walk(1, 1)
    given = conditioning("pixart", 1) | {"attention_mask": torch.ones(1, 64)}
    with attached(model, steps=6), pytest.raises(ValueError, match="attention_mask: masks"):
        evaluate(model, walk, given)


def cast(given: dict[str, torch.Tensor], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    return {k: v.to(dtype) if v.is_floating_point() else v for k, v in given.items()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])
def test_half_precision(kind, dtype) -> None:
    model = transformer(kind).to(dtype)
    walk = [z.to(dtype) for z in latent_walk(2, 6)]
    given = {
        k: v.to(dtype) if v.is_floating_point() else v for k, v in conditioning(kind, 2).items()
    }
    dense = evaluate(model, walk, given)
    with attached(model, steps=6, ctr=CTRConfig(reuse=0), st=STConfig(alpha=0)):
        for a, b in zip(evaluate(model, walk, given), dense, strict=True):
            assert torch.equal(a, b)
    exact = transformer(kind)
    exact_walk = [z.float() for z in walk]
    exact_given = cast(given, torch.float32)
    with attached(exact, steps=6, **ACTIVE):
        expected = evaluate(exact, exact_walk, exact_given)
    with attached(model, steps=6, **ACTIVE) as accelerator:
        outputs = evaluate(model, walk, given)
        layer = accelerator.attention.layers[0]
        assert layer.k.dtype == layer.v.dtype == layer.residual.dtype == dtype
    for step, (a, b) in enumerate(zip(outputs, expected, strict=True)):
        assert a.dtype == dtype
        assert torch.isfinite(a).all()
        # Rounding of the format, not another algorithm.
        assert relative(a, b) < 0.03, step


@pytest.mark.parametrize("kind", KINDS)
def test_pipeline_in_bf16(kind) -> None:
    pipe = pipeline(kind, "dpm").to(torch.bfloat16)
    inputs = cast(prompts(2), torch.bfloat16) if kind == "pixart" else {}
    with attached(pipe.transformer, steps=6, **ACTIVE) as accelerator:
        images, latents = generate(pipe, **inputs)
        assert [r.computed[0] for r in accelerator.log] == [64, 26, 26, 64, 26, 26]
    assert latents.dtype == images.dtype == torch.bfloat16
    assert torch.isfinite(images).all()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("kind", KINDS)
def test_nan_is_refused_with_the_step(kind, bad) -> None:
    """In any image of the batch; the next generation is sound."""
    walk, given, model = latent_walk(3, 6), conditioning(kind, 3), transformer(kind)
    broken = [z.clone() for z in walk]
    broken[4][1, 2, 3, 3] = bad
    with attached(model, steps=6, **ACTIVE):
        with pytest.raises(ValueError, match="NaN or infinity in step 4"):
            evaluate(model, broken, given)
        after = evaluate(model, walk, given)
        with pytest.raises(ValueError, match="NaN or infinity in step 0"):
            evaluate(model, broken[4:], given)
        again = evaluate(model, walk, given)
    with attached(model, steps=6, **ACTIVE):
        expected = evaluate(model, walk, given)
    for a, b, c in zip(expected, after, again, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)


def computes(model: Any) -> list[str]:
    """Names of the layers with weights that run from now on."""
    ran: list[str] = []
    for name, module in model.named_modules():
        if getattr(module, "weight", None) is not None:
            module.register_forward_pre_hook(lambda m, args, name=name: ran.append(name))
    return ran


def refused(model: Any, message: str, *args: Any, **inputs: Any) -> None:
    with attached(model, steps=6, **ACTIVE):
        ran = computes(model)
        with pytest.raises(ValueError, match=message), torch.no_grad():
            model(*args, **inputs)
        assert ran == []


@pytest.mark.parametrize("shape", [(1, 4, 15, 16), (1, 4, 16, 15)])
@pytest.mark.parametrize("kind", KINDS)
def test_latent_that_does_not_fit_the_patch_is_refused_first(kind, shape) -> None:
    given = conditioning(kind, 1)
    refused(
        transformer(kind),
        r"latent: shape \(4, 1[56], 1[56]\) .* multiples of patch = 2",
        torch.zeros(shape),
        timestep=torch.tensor([9]),
        **given,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_images_at_different_steps_are_refused_first(kind) -> None:
    given = conditioning(kind, 2)
    times = torch.tensor([9, 8])
    refused(
        transformer(kind),
        "timestep: .9, 8.; all images",
        latent_walk(2, 1)[0],
        timestep=times,
        **given,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_missing_timestep_is_refused_first(kind) -> None:
    refused(transformer(kind), "timestep: missing", latent_walk(1, 1)[0], **conditioning(kind, 1))


def test_missing_prompt_is_refused_first() -> None:
    """Where diffusers would let the image's tokens attend to each other once more."""
    model = transformer("pixart", caption_channels=None)
    refused(
        model, "encoder_hidden_states: missing", latent_walk(1, 1)[0], timestep=torch.tensor([9])
    )


@pytest.mark.parametrize("kind", KINDS)
def test_arguments_by_position(kind) -> None:
    model, walk, given = transformer(kind), latent_walk(1, 4), conditioning(kind, 1)
    with attached(model, steps=4, **ACTIVE):
        named = evaluate(model, walk, given)
        middle = [] if kind == "dit" else [given["encoder_hidden_states"]]
        rest = [given["class_labels"]] if kind == "dit" else []
        with torch.no_grad():
            placed = [
                model(z, *middle, torch.full((1,), 900 - 50 * i), *rest).sample
                for i, z in enumerate(walk)
            ]
    assert all(torch.equal(a, b) for a, b in zip(placed, named, strict=True))


@pytest.mark.parametrize("solver", ["ddim", "dpm"])
@pytest.mark.parametrize("kind", KINDS)
def test_more_steps_than_scheduled_are_refused(kind, solver) -> None:
    pipe = pipeline(kind, solver)
    message = "steps: the sampler runs a step 5, schedule .* has 4; attach one with the sampler's"
    with attached(pipe.transformer, steps=4, **ACTIVE):
        with pytest.raises(ValueError, match=message):
            generate(pipe, steps=6)
        generate(pipe, steps=4)
        generate(pipe, steps=3)


@pytest.mark.parametrize("kind", KINDS)
def test_feedback_reaches_both_kinds_of_output(kind) -> None:
    """The predicted noise is corrected, the predicted variance beside it is not."""
    model, walk, given = transformer(kind), latent_walk(2, 4), conditioning(kind, 2)
    with attached(model, steps=4, ctr=CTRConfig(reuse=0.6)):
        plain = evaluate(model, walk, given)
    with attached(model, steps=4, ctr=CTRConfig(reuse=0.6, feedback=True)), torch.no_grad():
        objects = evaluate(model, walk, given)
        tuples = [
            model(z, timestep=torch.full((2,), 900 - 50 * i), **given, return_dict=False)[0]
            for i, z in enumerate(walk)
        ]
    assert all(torch.equal(a, b) for a, b in zip(objects, tuples, strict=True))
    assert torch.equal(objects[0], plain[0])
    for a, b in zip(objects, plain, strict=True):
        assert torch.equal(a[:, 4:], b[:, 4:])
    assert relative(objects[3][:, :4], plain[3][:, :4]) > 1e-4
