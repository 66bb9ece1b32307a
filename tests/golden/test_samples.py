"""Regression bands on the trained models: do they draw digits, how sparse is their attention."""

import numpy as np
import pytest

from golden.capture import capture_attention, capture_masks
from golden.data.glyphs import load_glyphs
from golden.model.checkpoint import load_checkpoint
from golden.samples import draw_digits, nearest_glyphs, sample_grid
from golden.sampling import sample


def test_nearest_glyph_of_a_glyph_is_itself():
    glyphs, _ = load_glyphs(16)
    index, distance = nearest_glyphs(glyphs[::500], glyphs)
    np.testing.assert_array_equal(index, np.arange(0, len(glyphs), 500))
    assert distance.max() < 0.01


def test_grid_puts_glyphs_under_images():
    images = np.zeros((20, 1, 4, 4), np.float32)
    images[12] = 1.5
    grid = np.asarray(sample_grid(images, images))
    assert grid.shape == (16, 40)
    assert (grid[:4] == 0).all()  # images 0..9
    assert (grid[4:8] == 255).all()  # their "nearest", inverted
    assert (grid[8:12, 8:12] == 255).all()  # image 12: second row, third column
    assert (grid[12:16, 8:12] == 0).all()  # its "nearest", inverted, below


def test_model_draws_the_digits_it_is_asked_for():
    images, labels = draw_digits("digits-256", 1, steps=12)
    glyphs, glyph_labels = load_glyphs(32, "train")
    index, distance = nearest_glyphs(images, glyphs)
    assert (glyph_labels[index] == labels).sum() >= 8
    assert np.median(distance) < 0.35  # different digits are 0.6 apart
    assert images.min() > -0.3
    assert images.max() < 1.9


def test_model_draws_at_high_resolution():
    model = load_checkpoint("digits-1024")
    labels = [0, 3, 7]
    images = sample(model, labels, [0, 1, 2], steps=6).numpy()
    glyphs, glyph_labels = load_glyphs(64, "train")
    index, distance = nearest_glyphs(images, glyphs)
    assert (glyph_labels[index] == labels).sum() >= 2
    assert np.median(distance) < 0.4


@pytest.mark.parametrize(("alpha", "low", "high"), [(0.5, 0.36, 0.51), (1.0, 0.19, 0.32)])
def test_attention_is_as_sparse_as_it_was(alpha, low, high):
    masks, steps = capture_masks("digits-256", steps=20, at=[0, 5, 10], alpha=alpha)
    assert steps == [0, 5, 10]
    assert low < masks.mean() < high


def test_capture_at_1024_tokens():
    c = capture_attention("digits-1024", step=1, layer=5, head=3)
    assert c.q.shape == (1024, 32)
    assert c.mask.shape == (1024, 1024)
    assert not c.refresh
    assert 0.1 < c.mask.mean() < 0.9
