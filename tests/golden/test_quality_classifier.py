"""The glyph classifier: reads unseen faces, its features are usable, its training repeatable."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from golden.data.glyphs import load_glyphs
from golden.model.checkpoint import read_parameters
from golden.quality.classifier import (
    FORMAT,
    SHIPPED_CLASSIFIER,
    ClassifierConfig,
    GlyphClassifier,
    features,
    load_classifier,
    predict,
)
from golden.quality.metrics import frechet_distance
from golden.quality.train_classifier import accuracy, augment, main, scale_features, train


@pytest.mark.parametrize("size", [32, 64])
def test_reads_faces_that_it_was_not_trained_on(size):
    metadata, _ = read_parameters(SHIPPED_CLASSIFIER, FORMAT)
    measured = accuracy(load_classifier(), size, "held-out")
    assert 0.995 <= measured <= 1
    assert measured == pytest.approx(float(metadata[f"accuracy_{size}px_held-out"]), abs=0.002)


def test_does_not_read_what_is_not_there():
    """Without this an accuracy of 1 could be a label that leaks into the image."""
    images, labels = load_glyphs(32, "held-out")
    assert (predict(images[:, :, ::-1].copy(), load_classifier()) == labels).mean() < 0.8
    blank = predict(np.zeros((10, 1, 32, 32), np.float32))
    assert len(set(blank.tolist())) == 1


def test_checkpoint_is_small_and_says_how_it_was_made():
    metadata, tensors = read_parameters(SHIPPED_CLASSIFIER, FORMAT)
    assert SHIPPED_CLASSIFIER.stat().st_size < 300_000
    assert {t.dtype for t in tensors.values()} == {torch.float16}
    assert "python -m golden.quality.train_classifier" in metadata["command"]
    assert {"seed", "data_sha256", "minutes", "accuracy_64px_train"} <= metadata.keys()


@pytest.mark.parametrize("size", [32, 64])
def test_features_of_an_image_do_not_depend_on_the_others(size):
    images, labels = load_glyphs(size, "held-out")
    images, labels = images[:70], labels[:70]  # more than a batch
    rows = features(images)
    assert rows.shape == (70, 32)
    assert rows.dtype == np.float32
    # Sums of float32 may be ordered otherwise in another batch.
    np.testing.assert_allclose(features(images[[66, 3]]), rows[[66, 3]], rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(features(torch.from_numpy(images)), rows)
    np.testing.assert_array_equal(predict(images), labels)


def test_features_have_mean_variance_one_on_training_glyphs():
    images, _ = load_glyphs(32, "train")
    assert features(images).var(axis=0, ddof=1).mean() == pytest.approx(1, abs=0.01)


def test_feature_distance_sees_shapes_that_are_still_read_rightly():
    """Thicker strokes: same digits, other shapes.  Distances in collapsed features miss this."""
    images, labels = load_glyphs(32, "held-out")
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (0, 0)))
    thick = np.max([padded[:, :, y : y + 32] for y in range(3)], axis=0)
    assert (predict(thick) == labels).mean() > 0.95
    base = features(images)
    faces = base.reshape(-1, 10, 32)
    halves = frechet_distance(faces[::2].reshape(-1, 32), faces[1::2].reshape(-1, 32))
    assert frechet_distance(features(thick), base) > 2 * halves


def test_scaling_features_leaves_the_logits():
    torch.manual_seed(1)
    model = GlyphClassifier(ClassifierConfig()).requires_grad_(False)
    images = torch.from_numpy(load_glyphs(32, "held-out")[0][:50])
    before = model(images)
    scale_features(model, images)
    torch.testing.assert_close(model(images), before)
    assert model.features(images).var(dim=0).mean() == pytest.approx(1, rel=1e-4)


def test_augmentation_is_mild():
    images = torch.from_numpy(load_glyphs(32, "train")[0][:200])
    moved = augment(images, torch.Generator().manual_seed(0))
    assert moved.shape == images.shape
    assert moved.min() >= 0
    assert moved.max() <= 1.5 + 1e-5
    assert moved.sum() == pytest.approx(images.sum().item(), rel=0.1)
    changed = (moved - images).square().mean(dim=(1, 2, 3)).sqrt()
    assert 0.05 < changed.median() < 0.6
    predicted = predict(moved)
    assert (predicted == np.arange(200) % 10).mean() > 0.97


def test_training_learns_and_repeats(tmp_path, monkeypatch, capsys):
    threads = torch.get_num_threads()
    out = tmp_path / "new" / "x.safetensors"
    arguments = ["x", "--iterations", "30", "--batch", "32", "--seed", "3", "--out", str(out)]
    monkeypatch.setattr("sys.argv", arguments)
    try:
        main()
        again = train(iterations=30, batch=32, lr=4e-3, seed=3)
        other = train(iterations=1, batch=32, lr=4e-3, seed=4)
    finally:
        torch.set_num_threads(threads)
    metadata, tensors = read_parameters(out, FORMAT)
    parameters = dict(again.named_parameters())
    assert tensors.keys() == parameters.keys()
    assert all(torch.equal(tensors[name], parameters[name].half()) for name in tensors)
    assert not torch.equal(parameters["head.weight"], other.head.weight)
    assert float(metadata["accuracy_32px_held-out"]) > 0.3
    assert metadata["images_seen"] == str(30 * 32 * 2)
    assert "32 px, held-out" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 1, 48, 48), "images: 48 px is not a multiple of 32"),
        ((2, 3, 32, 32), "images: 3 channels, the classifier reads 1"),
        ((2, 32, 32), r"images: shape \(2, 32, 32\) is not \[n, C, px, px\]"),
        ((0, 1, 32, 32), "images: .* has no values"),
    ],
)
@pytest.mark.parametrize("function", [features, predict])
def test_images_that_do_not_fit_are_refused(function, shape, message):
    with pytest.raises(ValueError, match=message):
        function(np.zeros(shape, np.float32))
    with pytest.raises(ValueError, match="NaN or infinite"):
        function(np.full((1, 1, 32, 32), np.nan))


def test_unusable_checkpoints_say_what_to_do(tmp_path):
    path = tmp_path / "x.safetensors"
    with pytest.raises(ValueError, match=r"classifier .* is missing.*train_classifier"):
        load_classifier(path)
    path.write_bytes(SHIPPED_CLASSIFIER.read_bytes()[:-10])
    with pytest.raises(ValueError, match=r"damaged.*golden\.quality\.train_classifier"):
        load_classifier(path)
    with pytest.raises(ValueError, match=r"was not written by golden\.quality\.train_classifier"):
        load_classifier(SHIPPED_CLASSIFIER.with_name("digits-256.safetensors"))
    metadata, tensors = read_parameters(SHIPPED_CLASSIFIER, FORMAT)
    for config in ({"widths": 3}, {"colour": 1}, json.loads(metadata["config"]) | {"features": 8}):
        save_file(tensors, path, metadata=metadata | {"config": json.dumps(config)})
        with pytest.raises(ValueError, match="does not fit the network"):
            load_classifier(path)
