"""Captures from the shipped models, and what a user sees when something is wrong with one."""

import json
from functools import cache

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from disc.schedule import CTRConfig, STConfig
from golden.attention import masked_attention
from golden.capture import capture_all, capture_attention, capture_masks
from golden.model.checkpoint import SHIPPED, load_checkpoint, read_metadata
from golden.sampling import sample
from golden.st import make_mask

STEPS = [10, 11, 15]


@cache
def captures():
    return capture_all("digits-256", at=STEPS, seed=3, steps=20, alpha=0.5, refresh=5)


def test_capture_has_the_documented_shapes():
    assert sorted(captures()) == [(s, a, b) for s in STEPS for a in range(6) for b in range(4)]
    for (step, layer, head), c in captures().items():
        assert (c.step, c.layer, c.head) == (step, layer, head)
        assert c.q.shape == c.k.shape == c.v.shape == (256, 32)
        assert c.q.dtype == c.k.dtype == c.v.dtype == c.p_dense.dtype == np.float32
        assert c.p_dense.shape == c.mask.shape == (256, 256)
        assert c.mask.dtype == bool
        assert c.z_t.shape == c.z_ref.shape == (1, 32, 32)
        assert c.refresh == (step % 5 == 0)
        assert len(c.rows) == (256 if c.refresh else 128)


def test_probabilities_belong_to_queries_and_keys():
    c = captures()[11, 3, 2]
    scores = c.q.astype(np.float64) @ c.k.T / np.sqrt(32)
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    np.testing.assert_allclose(c.p_dense, p / p.sum(axis=1, keepdims=True), atol=1e-6)


def test_masks_are_made_on_refresh_and_reused_after():
    made, reused, later = (captures()[step, 2, 1] for step in STEPS)
    for c in (made, later):
        np.testing.assert_array_equal(
            c.mask, make_mask(torch.from_numpy(c.p_dense), STConfig(alpha=0.5)).numpy()
        )
    np.testing.assert_array_equal(made.mask, reused.mask)
    fresh = make_mask(torch.from_numpy(reused.p_dense), STConfig(alpha=0.5)).numpy()
    assert 0 < (fresh != reused.mask).mean() < 0.1  # alike, which is why reuse works
    for c in (made, reused, later):
        assert c.mask.diagonal().all()


def test_rows_are_the_most_changed_tokens():
    c = captures()[11, 0, 0]
    change = np.abs(c.z_t - c.z_ref).reshape(16, 2, 16, 2).mean(axis=(1, 3)).reshape(-1)
    others = np.setdiff1d(np.arange(256), c.rows)
    assert change[c.rows].min() >= change[others].max()
    assert change[c.rows].min() > 0


def test_single_capture_equals_the_one_among_all():
    single = capture_attention("digits-256", seed=3, steps=20, step=11, layer=2, head=1)
    for name in ("q", "k", "v", "mask", "rows", "z_t", "z_ref"):
        np.testing.assert_array_equal(getattr(single, name), getattr(captures()[11, 2, 1], name))


def test_dense_capture_has_masks_of_ones_and_threshold_zero_selects_all():
    c = capture_attention(alpha=None, step=3, ctr=CTRConfig(threshold=0.0))
    assert c.mask.all()
    np.testing.assert_array_equal(c.rows, np.arange(256))
    model, latents = load_checkpoint("digits-256"), []
    sample(
        model, [0], [0], steps=20, stop_after=2, denoiser=lambda *a: latents.append(a) or model(*a)
    )
    after_three = sample(model, [0], [0], steps=20, stop_after=2)
    np.testing.assert_allclose(c.z_t, after_three[0].numpy(), atol=1e-5)


def test_collected_masks_are_those_of_the_captures():
    masks, steps = capture_masks("digits-256", seed=3, at=[10, 15])
    assert masks.shape == (2, 6, 4, 256, 256)
    assert steps == [10, 15]
    np.testing.assert_array_equal(masks[0, 2, 1], captures()[10, 2, 1].mask)
    np.testing.assert_array_equal(masks[1, 5, 3], captures()[15, 5, 3].mask)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layer": 6}, r"layer: 6 is outside 0\.\.5"),
        ({"layer": -1}, r"layer: -1 is outside 0\.\.5"),
        ({"head": 4}, r"head: 4 is outside 0\.\.3"),
        ({"step": 20}, r"step: 20 is outside 0\.\.19"),
        ({"steps": 0}, "steps: 0 is below 1"),
        ({"alpha": -1.0}, "alpha: .* got -1.0"),
        ({"refresh": 0}, "refresh: 0 is below 1"),
        ({"label": 11}, r"labels: 11 is outside 0\.\.10"),
        ({"checkpoint": "digits-512"}, "checkpoint: 'digits-512' is neither a file nor one of"),
    ],
)
def test_bad_arguments_are_named_with_their_range(arguments, message):
    with pytest.raises(ValueError, match=message):
        capture_attention(**arguments)


def test_no_step_to_capture_is_an_error():
    with pytest.raises(ValueError, match="at: no step is listed"):
        capture_all(at=[])


def test_unusable_checkpoints_say_what_to_do(tmp_path):
    path = tmp_path / "x.safetensors"
    content = SHIPPED["digits-256"].read_bytes()
    for broken in (b"", b"not a checkpoint", content[:2000], content[:-100]):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match=r"damaged or no safetensors file.*restore it"):
            capture_attention(path)
    save_file({"weight": torch.zeros(3)}, path)
    with pytest.raises(ValueError, match=r"was not written by golden\.train"):
        capture_attention(path)
    save_file({"weight": torch.zeros(3)}, path, metadata={"format": "other", "config": "{}"})
    with pytest.raises(ValueError, match=r"was not written by golden\.train"):
        capture_attention(path)
    metadata = read_metadata("digits-256")
    save_file({"weight": torch.zeros(3)}, path, metadata=metadata)
    with pytest.raises(ValueError, match="does not fit the model"):
        capture_attention(path)
    config = json.dumps({"colour": 3})
    save_file({"weight": torch.zeros(3)}, path, metadata=metadata | {"config": config})
    with pytest.raises(ValueError, match="does not fit the model"):
        capture_attention(path)


@pytest.mark.parametrize("name", ["digits-256", "digits-1024"])
def test_shipped_checkpoints_say_how_they_were_made(name):
    metadata = read_metadata(name)
    assert "python -m golden.train" in metadata["command"]
    assert int(metadata["images_seen"]) > 10_000
    assert {"seed", "schedule", "data_sha256", "minutes", "loss"} <= metadata.keys()
    assert load_checkpoint(name).config.tokens == int(name.removeprefix("digits-"))


def test_captured_values_under_the_mask_stay_near_dense_attention():
    errors = []
    for c in captures().values():
        p, v, mask = (torch.from_numpy(x) for x in (c.p_dense, c.v, c.mask))
        errors.append(((masked_attention(p, v, mask) - p @ v).norm() / (p @ v).norm()).item())
    assert 0.001 < np.mean(errors) < 0.3
