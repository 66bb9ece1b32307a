"""The bootstrap interval: right size, paired, and silent about nothing."""

import numpy as np
import pytest

from golden.quality.paired import psnr_difference

SHAPE = (40, 1, 8, 8)


def noise(seed: int, shape=SHAPE) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def test_twice_the_error_is_six_decibels():
    reference = noise(0)
    d = psnr_difference(reference + 0.1 * noise(1), reference + 0.2 * noise(2), reference)
    assert d.difference_db == pytest.approx(6.02, abs=0.3)
    assert d.low_db < 6.02 < d.high_db < d.low_db + 1
    assert d.decided
    assert (d.images, d.confidence) == (40, 0.95)


def test_swapping_the_methods_changes_the_sign():
    reference, a, b = noise(0), noise(1), 1.2 * noise(2)
    one = psnr_difference(reference + a, reference + b, reference)
    other = psnr_difference(reference + b, reference + a, reference)
    assert one.difference_db == pytest.approx(-other.difference_db)
    assert one.low_db == pytest.approx(-other.high_db, abs=0.1)


def test_pairing_cancels_what_makes_a_seed_hard():
    """Errors differ tenfold between images but by 1.1 between methods."""
    reference = noise(0)
    hard = 10 ** np.random.default_rng(1).uniform(-1, 0, (40, 1, 1, 1))
    error = noise(2) * hard
    d = psnr_difference(reference + error, reference + 1.1 * error, reference)
    expected = 20 * np.log10(1.1)
    assert d.difference_db == pytest.approx(expected)
    assert d.low_db == pytest.approx(expected)
    assert d.high_db == pytest.approx(expected)
    jitter = 1.1 + 0.02 * noise(3, (40, 1, 1, 1))
    d = psnr_difference(reference + error, reference + jitter * error, reference)
    assert 0 < d.high_db - d.low_db < 0.3


def test_errors_in_exact_proportion_give_an_interval_of_no_width():
    error = noise(1)
    d = psnr_difference(error, 2 * error, np.zeros(SHAPE))
    assert d.low_db == d.difference_db == d.high_db == pytest.approx(20 * np.log10(2))


def test_interval_covers_the_truth_about_as_often_as_it_says():
    reference = np.zeros((30, 1, 4, 4))
    rng = np.random.default_rng(7)

    def method():  # skewed: errors of images spread over a decade
        return rng.normal(size=reference.shape) * 10 ** rng.uniform(-1, 0, (30, 1, 1, 1))

    runs = [
        psnr_difference(method(), method(), reference, confidence=0.8, resamples=300, seed=i)
        for i in range(100)
    ]
    covered = sum(d.low_db <= 0 <= d.high_db for d in runs)
    assert 68 <= covered <= 90
    assert sum(d.decided for d in runs) == 100 - covered


def test_confidence_widens_the_interval_and_the_seed_repeats_it():
    reference, a, b = noise(0), noise(1), noise(2)
    narrow = psnr_difference(reference + a, reference + b, reference, confidence=0.5)
    wide = psnr_difference(reference + a, reference + b, reference, confidence=0.99)
    assert wide.low_db < narrow.low_db < narrow.high_db < wide.high_db
    assert wide == psnr_difference(reference + a, reference + b, reference, confidence=0.99)


def test_bad_arguments_are_named():
    reference, a, b = noise(0), noise(1), noise(2)
    for arguments, message in (
        ({"confidence": 1.0}, r"confidence: 1.0 is outside 0\.\.1"),
        ({"resamples": 99}, "resamples: 99 is below 100"),
    ):
        with pytest.raises(ValueError, match=message):
            psnr_difference(a, b, reference, **arguments)
    with pytest.raises(ValueError, match="b: shape"):
        psnr_difference(a, b[:3], reference)
    with pytest.raises(ValueError, match="a: 1 image is below 2"):
        psnr_difference(a[:1], b[:1], reference[:1])
    with pytest.raises(ValueError, match="b: equals the reference"):
        psnr_difference(a, reference, reference)
    nearly = reference.copy()
    nearly[0] += 1
    with pytest.raises(ValueError, match="so many images equal the reference"):
        psnr_difference(a, nearly, reference)
