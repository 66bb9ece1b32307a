"""A report holds what the metrics say, each against the right partner."""

import dataclasses
import math

import numpy as np
import pytest

from golden.data.glyphs import load_glyphs
from golden.quality.classifier import features
from golden.quality.metrics import frechet_distance, psnr, ssim
from golden.quality.report import compare

DATA, _ = load_glyphs(32, "train")
DATA = DATA[::3]
DENSE, LABELS = load_glyphs(32, "held-out")
DENSE, LABELS = DENSE[:100], LABELS[:100]


def spoiled() -> np.ndarray:
    """One image of another digit, and a patch of each that stayed where it was."""
    images = DENSE.copy()
    images[0] = DENSE[1]
    images[:, :, 12:20, 12:20] = np.roll(images, 2, axis=-1)[:, :, 12:20, 12:20]
    return images


def test_dense_against_itself():
    report = compare(DENSE, DENSE, DATA, LABELS)
    assert report.psnr_db == math.inf
    assert report.ssim == pytest.approx(1)
    assert report.frechet_to_dense == pytest.approx(0, abs=1e-6)
    assert report.frechet_ratio == 1
    assert report.accuracy == report.dense_accuracy == 1
    assert report.images == 100


def test_every_field_is_the_metric_that_it_names():
    images = spoiled()
    report = compare(images, DENSE, DATA, LABELS)
    f_images, f_dense, f_data = (features(x) for x in (images, DENSE, DATA))
    assert report.psnr_db == psnr(images, DENSE)
    assert report.ssim == ssim(images, DENSE)
    assert report.frechet_to_dense == frechet_distance(f_images, f_dense)
    assert report.frechet_to_data == frechet_distance(f_images, f_data)
    assert report.dense_frechet_to_data == frechet_distance(f_dense, f_data)
    assert report.frechet_ratio == report.frechet_to_data / report.dense_frechet_to_data
    assert report.accuracy < report.dense_accuracy
    assert 0 < report.frechet_to_dense < report.frechet_to_data


def test_accuracy_needs_labels_and_is_against_them():
    report = compare(DENSE, DENSE, DATA)
    assert report.accuracy is None
    assert report.dense_accuracy is None
    assert compare(DENSE, DENSE, DATA, (LABELS + 1) % 10).accuracy == 0
    half = np.where(np.arange(100) < 50, LABELS, 9 - LABELS)
    assert compare(spoiled(), DENSE, DATA, half).dense_accuracy == 0.5


def test_report_is_frozen():
    report = compare(DENSE, DENSE, DATA)
    with pytest.raises(dataclasses.FrozenInstanceError):
        report.ssim = 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((DENSE[:50], DENSE, DATA), "images: shape .* differs from that of reference"),
        ((DENSE[:32], DENSE[:32], DATA), "features: 32 rows are too few for 32 features"),
        ((DENSE, DENSE, DATA[:32]), "reference: 32 rows are too few"),
        ((DENSE, DENSE, DATA[..., :20, :20]), r"data: images of shape \(1, 20, 20\), those of"),
        ((DENSE, DENSE, DATA * np.nan), "data: .* values are NaN or infinite"),
        ((DENSE, DENSE, DATA, LABELS[:5]), r"labels: shape \(5,\) is not \(100,\)"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        compare(*arguments)
