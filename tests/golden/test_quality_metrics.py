"""PSNR, SSIM and Fréchet distance against closed forms."""

import math

import numpy as np
import pytest
import torch

from golden.quality.metrics import (
    frechet_distance,
    psnr,
    psnr_per_image,
    ssim,
    ssim_per_image,
)


def images(seed: int = 0, n: int = 3, channels: int = 1, px: int = 16) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0, 1.5, (n, channels, px, px)).astype(np.float32)


def gaussian(mean, covariance, n: int = 200, seed: int = 0) -> np.ndarray:
    """Samples whose mean and unbiased covariance are exactly those given."""
    x = np.random.default_rng(seed).normal(size=(n, len(mean)))
    x -= x.mean(axis=0)
    x = x @ np.linalg.inv(np.linalg.cholesky(np.cov(x, rowvar=False))).T
    return x @ np.linalg.cholesky(covariance).T + mean


def test_psnr_of_a_constant_offset():
    a = images()
    assert psnr(a + np.float32(0.15), a) == pytest.approx(20, abs=1e-4)
    assert psnr(a + np.float32(0.15), a, peak=0.15) == pytest.approx(0, abs=1e-4)
    assert psnr(torch.from_numpy(a) + 0.015, torch.from_numpy(a)) == pytest.approx(40, abs=1e-3)


def test_psnr_of_a_set_is_that_of_its_mean_squared_error():
    a, b = np.zeros((2, 1, 4, 4)), np.zeros((2, 1, 4, 4))
    b[0], b[1] = 0.15, 0.015
    np.testing.assert_allclose(psnr_per_image(b, a), [20, 40])
    assert psnr(b, a) == pytest.approx(20 - 10 * math.log10(1.01 / 2))
    b[1] = 0
    np.testing.assert_allclose(psnr_per_image(b, a), [20, math.inf])
    assert psnr(b, a) == pytest.approx(20 + 10 * math.log10(2))


def test_equal_images():
    a = images(channels=3)
    assert psnr(a, a) == math.inf
    np.testing.assert_allclose(ssim_per_image(a, a), 1)


@pytest.mark.parametrize(("channels", "peak"), [(1, 1.5), (2, 4.0)])
def test_ssim_of_one_window_is_the_formula(channels, peak):
    """At 11 px the window has one position, so the definition can be written out."""
    a, b = images(1, 2, channels, 11), images(2, 2, channels, 11)
    w = np.exp(-(np.arange(-5, 6) ** 2) / (2 * 1.5**2))
    w = np.outer(w, w) / w.sum() ** 2

    def mean(x):
        return (x.astype(np.float64) * w).sum(axis=(-2, -1))

    c1, c2 = (0.01 * peak) ** 2, (0.03 * peak) ** 2
    ma, mb = mean(a), mean(b)
    va, vb, vab = mean(a**2.0) - ma**2, mean(b**2.0) - mb**2, mean(a * 1.0 * b) - ma * mb
    expected = (2 * ma * mb + c1) * (2 * vab + c2) / ((ma**2 + mb**2 + c1) * (va + vb + c2))
    np.testing.assert_allclose(ssim_per_image(a, b, peak), expected.mean(axis=1), rtol=1e-5)
    assert ssim(a, b, peak) == pytest.approx(expected.mean(), rel=1e-5)


def test_ssim_falls_with_noise_and_turns_negative_for_the_negative():
    a = images(px=24)
    noise = np.random.default_rng(1).normal(size=a.shape)
    values = [ssim(a + s * noise, a) for s in (0.05, 0.1, 0.3)]
    assert 1 > values[0] > values[1] > values[2] > 0
    assert ssim(1.5 - a, a) < -0.5


def test_frechet_distance_of_commuting_gaussians():
    """With a common eigenbasis: |m1 − m2|² + Σ (√λ1 − √λ2)²."""
    basis, _ = np.linalg.qr(np.random.default_rng(3).normal(size=(5, 5)))
    one, two = np.array([4.0, 1, 9, 0.25, 1e-6]), np.array([1.0, 1, 4, 2.25, 1e-2])
    m1, m2 = np.arange(5.0), np.array([0.0, 1, 2, 3, 6])
    a = gaussian(m1, (basis * one) @ basis.T, seed=1)
    b = gaussian(m2, (basis * two) @ basis.T, n=150, seed=2)
    expected = 4 + ((np.sqrt(one) - np.sqrt(two)) ** 2).sum()
    assert frechet_distance(a, b) == pytest.approx(expected, rel=1e-9)


def test_frechet_distance_of_two_by_two_covariances_that_do_not_commute():
    """For 2 x 2, tr √M = √(tr M + 2 √det M)."""
    s1, s2 = np.array([[2.0, 0.9], [0.9, 1.0]]), np.array([[1.0, -0.4], [-0.4, 3.0]])
    assert np.abs(s1 @ s2 - s2 @ s1).max() > 0.1
    product = s1 @ s2
    root = math.sqrt(np.trace(product) + 2 * math.sqrt(np.linalg.det(product)))
    expected = np.trace(s1) + np.trace(s2) - 2 * root
    a, b = gaussian([1, 1], s1, seed=1), gaussian([1, 1], s2, seed=2)
    assert frechet_distance(a, b) == pytest.approx(expected, rel=1e-9)
    assert frechet_distance(b, a) == pytest.approx(expected, rel=1e-9)
    assert frechet_distance(torch.from_numpy(a), b) == pytest.approx(expected, rel=1e-9)


def test_frechet_distance_of_one_feature():
    assert frechet_distance([[0.0], [2.0]], [[1.0], [7.0]]) == pytest.approx(9 + 2 * 2**2)


def test_singular_covariances_give_real_distances():
    rng = np.random.default_rng(0)
    low_rank = rng.normal(size=(300, 3)) @ rng.normal(size=(3, 40))
    other = rng.normal(size=(300, 2)) @ rng.normal(size=(2, 40))
    assert frechet_distance(low_rank, low_rank) == pytest.approx(0, abs=1e-6)
    assert frechet_distance(low_rank, low_rank + 2) == pytest.approx(160, rel=1e-6)
    # With a dead feature on either side the others are unaffected.
    a, b = gaussian([0, 0], np.eye(2)), gaussian([0, 0], 4 * np.eye(2))
    dead = np.zeros((200, 1))
    assert frechet_distance(np.hstack([a, dead]), np.hstack([b, dead])) == pytest.approx(2)
    assert 0 < frechet_distance(low_rank, other) < np.inf


def test_bias_at_small_n_is_as_documented():
    rng = np.random.default_rng(5)
    scale = np.array([3.0, 1, 1, 0.5, 0.2, 0.1])
    lam = scale**2
    pairs = lam[:, None] * lam * (1 + np.eye(6)) / (lam[:, None] + lam)
    n1, n2 = 150, 400
    c = lam.sum() + pairs.sum() / 2
    draws = [
        frechet_distance(rng.normal(size=(n1, 6)) * scale, rng.normal(size=(n2, 6)) * scale)
        for _ in range(400)
    ]
    assert np.mean(draws) == pytest.approx(c * (1 / n1 + 1 / n2), rel=0.1)
    white = 1 * (1 + np.eye(6)) / 2
    assert 6 + white.sum() / 2 == pytest.approx(6 * (6 + 5) / 4)


GOOD = np.zeros((2, 1, 16, 16))


@pytest.mark.parametrize("metric", [psnr, psnr_per_image, ssim, ssim_per_image])
@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (GOOD * np.nan, GOOD, "images: 512 of 512 values are NaN or infinite"),
        (GOOD, GOOD + np.inf, "reference: 512 of 512 values are NaN or infinite"),
        (GOOD, GOOD[:1], r"images: shape \(2, 1, 16, 16\) differs from that of reference"),
        (GOOD[:, 0], GOOD, r"images: shape \(2, 16, 16\) is not \[n, C, px, px\]"),
        (GOOD[..., :8], GOOD, r"images: shape \(2, 1, 16, 8\) is not \[n, C, px, px\]"),
        (GOOD[:0], GOOD[:0], r"images: shape \(0, 1, 16, 16\) has no values"),
        (GOOD.astype(np.uint8), GOOD, "images: dtype uint8 is not a float type"),
        (torch.zeros(2, 1, 16, 16, dtype=torch.int8), GOOD, "images: dtype int8 is not"),
    ],
)
def test_images_that_do_not_fit_are_refused(metric, a, b, message):
    with pytest.raises(ValueError, match=message):
        metric(a, b)


@pytest.mark.parametrize("metric", [psnr, ssim])
@pytest.mark.parametrize("peak", [0, -1.5, math.inf, math.nan])
def test_peak_must_be_positive(metric, peak):
    with pytest.raises(ValueError, match=r"peak: .* is not a finite number above 0"):
        metric(GOOD, GOOD, peak)


def test_ssim_needs_its_window():
    with pytest.raises(ValueError, match="images: 10 px is below 11"):
        ssim(GOOD[..., :10, :10], GOOD[..., :10, :10])


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (np.zeros((5, 5)), np.zeros((9, 5)), "features: 5 rows are too few for 5 features.*6"),
        (np.zeros((9, 5)), np.zeros((5, 5)), "reference: 5 rows are too few for 5 features"),
        (np.zeros((9, 5)), np.zeros((9, 4)), "features: width 5 differs from reference's, 4"),
        (np.zeros(9), np.zeros((9, 5)), r"features: shape \(9,\) is not \[n, d\]"),
        (np.zeros((9, 5)), np.full((9, 5), -np.inf), "reference: 45 of 45 values are NaN or inf"),
    ],
)
def test_features_that_do_not_fit_are_refused(a, b, message):
    with pytest.raises(ValueError, match=message):
        frechet_distance(a, b)


def test_bfloat16_tensors_are_read_exactly():
    a = torch.zeros(1, 1, 4, 4, dtype=torch.bfloat16)
    assert psnr(a + 0.75, a) == pytest.approx(20 * math.log10(2))
