"""PSNR and SSIM against reference images, Fréchet distance between two sets of features.

All compute in float64 and refuse NaN, infinities and mismatched shapes with a ValueError.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from skimage.metrics import structural_similarity
from torch import Tensor

from golden.data.glyphs import INK
from golden.quality.arrays import Images, as_floats, as_pair, check_peak

SSIM_WINDOW_PX = 11
SSIM_SIGMA_PX = 1.5


def squared_error_per_image(
    images: Images, reference: Images, name: str = "images"
) -> NDArray[np.float64]:
    """Mean squared error of each image, float64 [n], for images [n, C, px, px]."""
    a, b = as_pair(name, images, reference)
    return ((a - b) ** 2).mean(axis=(1, 2, 3))


def decibels(squared_error: ArrayLike, peak: float = INK) -> NDArray[np.float64]:
    """10 log10(peak² / squared error); infinite where the error is 0.

    Raises:
        ValueError: `peak` is not a finite number above 0.
    """
    check_peak(peak)
    with np.errstate(divide="ignore"):
        return 10 * np.log10(peak**2 / np.asarray(squared_error, np.float64))


def psnr(images: Images, reference: Images, peak: float = INK) -> float:
    """PSNR of a whole set in dB: of the mean squared error over all images and pixels.

    This is not the mean of `psnr_per_image`, which good images dominate.  Inputs
    [n, C, px, px]; infinite if they are equal.
    """
    return float(decibels(squared_error_per_image(images, reference).mean(), peak))


def psnr_per_image(images: Images, reference: Images, peak: float = INK) -> NDArray[np.float64]:
    """PSNR of each image in dB, float64 [n]; infinite for images equal to their reference."""
    return decibels(squared_error_per_image(images, reference), peak)


def ssim_per_image(images: Images, reference: Images, peak: float = INK) -> NDArray[np.float64]:
    """Structural similarity of each image, float64 [n] in [-1, 1], 1 if equal.

    Wang et al., IEEE TIP 13(4), 2004: Gaussian window of 11 x 11 with σ = 1.5, K1 = 0.01,
    K2 = 0.03, population covariances, mean over channels and over the positions at which the
    window lies inside the image.  The flat background counts: it is 1 wherever both are 0.

    Args:
        images: [n, C, px, px], px at least 11.
        reference: of the same shape.
        peak: range of the values.

    Raises:
        ValueError: see the module; or px is below 11.
    """
    check_peak(peak)
    a, b = as_pair("images", images, reference)
    if a.shape[-1] < SSIM_WINDOW_PX:
        raise ValueError(f"images: {a.shape[-1]} px is below {SSIM_WINDOW_PX}, the window of SSIM")
    return np.array(
        [
            structural_similarity(
                x,
                y,
                data_range=peak,
                channel_axis=0,
                gaussian_weights=True,
                sigma=SSIM_SIGMA_PX,
                use_sample_covariance=False,
            )
            for x, y in zip(a, b, strict=True)
        ]
    )


def ssim(images: Images, reference: Images, peak: float = INK) -> float:
    """Mean of `ssim_per_image`."""
    return float(ssim_per_image(images, reference, peak).mean())


def frechet_distance(features: ArrayLike | Tensor, reference: ArrayLike | Tensor) -> float:
    """Fréchet (2-Wasserstein) distance, squared, between Gaussians fitted to two sets.

    ``|m1 - m2|² + tr(S1 + S2 - 2 (S1 S2)^½)`` (Dowson and Landau, J. Multivariate Anal. 12, 1982;
    on Inception features this is the FID of Heusel et al., arXiv 1706.08500).  Estimator: sample
    mean m and unbiased sample covariance S (divisor n - 1).

    The trace of the root is that of the symmetric ``(S1^½ S2 S1^½)^½``, from two eigenvalue
    decompositions with rounding's negative eigenvalues set to 0: real for any input, where a
    root of the unsymmetric product can turn complex or fail when S is nearly singular.

    Bias: the distance is too large at small n, by about c (1/n1 + 1/n2), c depending on the
    features (Chong and Forsyth, arXiv 1911.07023).  For two sets from one Gaussian with
    covariance eigenvalues λ, c = Σ λ_i + ½ Σ_ij λ_i λ_j (1 + δ_ij) / (λ_i + λ_j); for white
    features of width d that is d (d + 5) / 4.  Compare only distances taken at equal n.

    Args:
        features: float [n1, d].
        reference: float [n2, d].

    Returns:
        The squared distance, at least 0, in squared units of the features.

    Raises:
        ValueError: see the module; or a set has d or fewer rows, whose covariance is singular.
    """
    sets = {"features": features, "reference": reference}
    a, b = (as_floats(name, values, "n d") for name, values in sets.items())
    if a.shape[1] != b.shape[1]:
        raise ValueError(f"features: width {a.shape[1]} differs from reference's, {b.shape[1]}")
    for name, values in zip(sets, (a, b), strict=True):
        n, d = values.shape
        if n <= d:
            raise ValueError(
                f"{name}: {n} rows are too few for {d} features; a covariance of full rank "
                f"needs at least {d + 1}"
            )
    shift = a.mean(axis=0) - b.mean(axis=0)
    cov_a, cov_b = (np.atleast_2d(np.cov(x, rowvar=False)) for x in (a, b))
    values, vectors = np.linalg.eigh(cov_a)
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    product = np.linalg.eigvalsh(root @ cov_b @ root)
    cross = np.sqrt(np.maximum(product, 0)).sum()
    return max(0.0, float(shift @ shift + np.trace(cov_a) + np.trace(cov_b) - 2 * cross))
