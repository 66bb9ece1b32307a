"""What an attached transformer remembers, and when it forgets."""

import numpy as np
import pytest
import torch
from small_diffusers import (
    KINDS,
    PATCH,
    attached,
    conditioning,
    evaluate,
    generate,
    latent_walk,
    pipeline,
    relative,
    transformer,
)

from disc.schedule import CTRConfig, STConfig
from golden.ctr import TokenSelector

ACTIVE = {"ctr": CTRConfig(reuse=0.6), "st": STConfig(alpha=1)}
DIFFERENT_COUNTS = {"ctr": CTRConfig(threshold=0.4), "st": STConfig(alpha=1)}


def fresh(kind: str, solver: str = "ddim", **inputs):
    """Latents of the first generation ever."""
    pipe = pipeline(kind, solver)
    with attached(pipe.transformer, steps=inputs.get("steps", 6), **ACTIVE):
        return generate(pipe, **inputs)[1]


@pytest.mark.parametrize("solver", ["ddim", "dpm"])
@pytest.mark.parametrize("kind", KINDS)
def test_next_generation_starts_afresh(kind, solver) -> None:
    pipe = pipeline(kind, solver)
    with attached(pipe.transformer, steps=6, **ACTIVE) as accelerator:
        first = generate(pipe)[1]
        report = accelerator.report()
        assert torch.equal(generate(pipe)[1], first)
        assert accelerator.report() == report
        assert len(accelerator.log) == 6


class StopError(Exception):
    pass


@pytest.mark.parametrize("in_call", [0, 1, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_aborted_generation_leaves_no_trace(kind, in_call) -> None:
    pipe = pipeline(kind, "ddim")
    calls = 0

    def stop(module, args) -> None:
        nonlocal calls
        calls += 1
        if calls > in_call:
            raise StopError

    with attached(pipe.transformer, steps=6, **ACTIVE):
        handle = pipe.transformer.transformer_blocks[1].register_forward_pre_hook(stop)
        with pytest.raises(StopError):
            generate(pipe)
        handle.remove()
        # All timesteps are below that of the aborted call: they do not tell that this is new.
        walk, times = latent_walk(4, 6), {"first": 150, "fall": 20}
        given = conditioning(kind, 4)
        after = evaluate(pipe.transformer, walk, given, **times)
    model = transformer(kind)
    with attached(model, steps=6, **ACTIVE):
        for a, b in zip(after, evaluate(model, walk, given, **times), strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("kind", KINDS)
def test_aborted_between_calls_leaves_no_trace(kind) -> None:
    pipe = pipeline(kind, "ddim")
    step = pipe.scheduler.step

    def stop(*args, **kwargs):
        raise StopError

    with attached(pipe.transformer, steps=6, **ACTIVE):
        pipe.scheduler.step = stop
        with pytest.raises(StopError):
            generate(pipe)
        pipe.scheduler.step = step
        assert torch.equal(generate(pipe)[1], fresh(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_batch_size_may_change(kind) -> None:
    pipe = pipeline(kind, "dpm")
    with attached(pipe.transformer, steps=6, **ACTIVE) as accelerator:
        for batch in (2, 1, 3):
            assert torch.equal(generate(pipe, batch=batch)[1], fresh(kind, "dpm", batch=batch))
            assert len(accelerator.log[0].computed) == 2 * batch


def test_resolution_may_change() -> None:
    """Also to images that are not square: PixArt is trained on many shapes."""
    pipe = pipeline("pixart", "dpm")
    with attached(pipe.transformer, steps=6, **ACTIVE) as accelerator:
        for height, width in ((32, 32), (32, 48), (64, 16)):
            latents = generate(pipe, height=height, width=width)[1]
            assert latents.shape[2:] == (height // 2, width // 2)
            assert accelerator.log[0].tokens == height * width // 16
            assert torch.equal(latents, fresh("pixart", "dpm", height=height, width=width))


@pytest.mark.parametrize("kind", KINDS)
def test_resolution_may_change_while_the_timestep_falls(kind) -> None:
    model = transformer(kind)
    given = conditioning(kind, 1)
    with attached(model, steps=3, **ACTIVE) as accelerator, torch.no_grad():
        for i, edge in enumerate((16, 16, 24, 24)):
            z = latent_walk(1, 1, edge)[0]
            model(z, timestep=torch.tensor([900 - i]), **given)
        assert [r.tokens for r in accelerator.log] == [144, 144]
        assert accelerator.log[0].computed == [144]


@pytest.mark.parametrize("solver", ["ddim", "dpm"])
@pytest.mark.parametrize("kind", KINDS)
def test_one_step_is_dense(kind, solver) -> None:
    pipe = pipeline(kind, solver)
    stock = generate(pipe, steps=1)[1]
    with attached(pipe.transformer, steps=1, **ACTIVE) as accelerator:
        for _ in range(2):
            assert torch.equal(generate(pipe, steps=1)[1], stock)
            assert [r.refresh for r in accelerator.log] == [True]


@pytest.mark.parametrize("kind", KINDS)
def test_both_guidance_branches_compute_the_same_tokens(kind) -> None:
    """And the rows of the right tokens: their embeddings enter the blocks."""
    model, walk = transformer(kind), latent_walk(2, 6)
    doubled = [torch.cat([z, z]) for z in walk]
    entered, embedded = [], []
    with attached(model, steps=6, **DIFFERENT_COUNTS) as accelerator:
        model.pos_embed.register_forward_hook(lambda m, args, out: embedded.append(out))
        model.transformer_blocks[0].register_forward_pre_hook(lambda m, a: entered.append(a[0]))
        evaluate(model, doubled, conditioning(kind, 4))
        computed = [record.computed for record in accelerator.log]
    schedule = accelerator.schedule
    for image in range(4):
        selector = TokenSelector(schedule, PATCH)
        for step, z in enumerate(doubled):
            tokens = selector.decide(step, z[image].numpy()).selected
            assert computed[step][image] == len(tokens)
            rows = entered[step][image, : len(tokens)]
            assert torch.equal(rows, embedded[step][image, tokens])
    counts = np.array(computed)
    assert (counts[:, :2] == counts[:, 2:]).all()
    reusing = counts[[1, 2, 4, 5]]
    assert (reusing[:, 0] != reusing[:, 1]).any()  # the images differ in what they select
    assert ((reusing > 0) & (reusing < 64)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_guidance_branches_have_separate_caches(kind) -> None:
    """Whatever the other branch is told, this one's outputs are the same to the bit."""
    walk = [torch.cat([z, z]) for z in latent_walk(2, 6)]
    outputs = []
    for other in (1, 2):
        ours, theirs = conditioning(kind, 2), conditioning(kind, 2, seed=other)
        model = transformer(kind)
        with attached(model, steps=6, **ACTIVE):
            given = {name: torch.cat([ours[name], theirs[name]]) for name in ours}
            outputs.append(torch.stack(evaluate(model, walk, given)))
    assert torch.equal(outputs[0][:, :2], outputs[1][:, :2])
    for step in range(6):
        assert relative(outputs[0][step, 2:], outputs[1][step, 2:]) > 1e-3


@pytest.mark.parametrize("settings", [ACTIVE, DIFFERENT_COUNTS], ids=["fraction", "threshold"])
@pytest.mark.parametrize("kind", KINDS)
def test_images_of_a_batch_do_not_influence_each_other(kind, settings) -> None:
    """Not to the bit: matrix products of other sizes sum in another order."""
    walk, given, model = latent_walk(3, 6), conditioning(kind, 3), transformer(kind)
    with attached(model, steps=6, **settings) as accelerator:
        together = torch.stack(evaluate(model, walk, given))
        computed = [record.computed for record in accelerator.log]
        densities = [record.head_density for record in accelerator.log]
        alone = []
        for image in range(3):
            one = slice(image, image + 1)
            outputs = evaluate(model, [z[one] for z in walk], {k: v[one] for k, v in given.items()})
            alone.append((torch.stack(outputs), list(accelerator.log)))
    for image, (outputs, log) in enumerate(alone):
        assert relative(together[:, image], outputs[:, 0]) < 1e-5
        assert [r.computed[0] for r in log] == [c[image] for c in computed]
    # The record of the batch is that of its images together.
    for step, density in enumerate(densities):
        parts = [(log[step].computed[0], log[step].head_density) for _, log in alone]
        rows = sum(count for count, _ in parts)
        mean = sum(count * part for count, part in parts) / rows
        np.testing.assert_allclose(density, mean, atol=2e-3)
    if settings is DIFFERENT_COUNTS:
        assert any(len(set(c)) > 1 for c in computed)


@pytest.mark.parametrize("kind", KINDS)
def test_step_without_any_token_is_possible(kind) -> None:
    """All tokens reused: the output is the forecast, no row reaches a block but one of padding."""
    model, walk, given = transformer(kind), latent_walk(2, 3), conditioning(kind, 2)
    ctr = CTRConfig(reuse=1)
    with attached(model, steps=3, ctr=ctr) as accelerator:
        shapes = []
        model.transformer_blocks[0].register_forward_pre_hook(lambda m, a: shapes.append(a[0]))
        outputs = evaluate(model, walk, given)
        assert [r.computed for r in accelerator.log] == [[64, 64], [0, 0], [0, 0]]
        assert [len(x[0]) for x in shapes] == [64, 1, 1]
        assert accelerator.log[1].macs["projection"] == accelerator.log[1].macs["mlp"] == 0
    # One computation is known, so its branch sums are reused as they are, on the new embedding.
    dense = transformer(kind)
    sums, x = [], []
    with torch.no_grad():
        dense.transformer_blocks[0].register_forward_pre_hook(lambda m, a: x.append(a[0]))
        dense.transformer_blocks[-1].register_forward_hook(
            lambda m, a, out: sums.append(out - x[-1]) if len(x) == 1 else x[-1] + sums[0]
        )
        expected = evaluate(dense, walk, given)
    for a, b in zip(outputs, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
