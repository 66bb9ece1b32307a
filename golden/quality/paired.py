"""Is one method really nearer to the dense run than another?  Paired bootstrap over seeds."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import DegenerateDataWarning, bootstrap

from golden.quality.arrays import Images
from golden.quality.metrics import squared_error_per_image


@dataclass(frozen=True)
class PsnrDifference:
    """PSNR of a less that of b, in dB, with its confidence interval.

    Attributes:
        difference_db: of the two sets' PSNR; above 0 where a is nearer to the reference.
        low_db: lower end of the interval.
        high_db: upper end.
        confidence: of the interval, 0 to 1.
        images: seeds in common, n.
    """

    difference_db: float
    low_db: float
    high_db: float
    confidence: float
    images: int

    @property
    def decided(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low_db > 0 or self.high_db < 0


def psnr_difference(
    a: Images,
    b: Images,
    reference: Images,
    *,
    confidence: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> PsnrDifference:
    """Difference in set PSNR between two methods that drew the same seeds.

    Images are drawn with replacement, the same ones for a and b, so what makes a seed hard for
    both cancels.  The interval is BCa (Efron, JASA 82, 1987; `scipy.stats.bootstrap`).  It covers
    the choice of seeds and labels only, and is somewhat too narrow below about 20 images.

    Args:
        a: images of one method, float [n, C, px, px].
        b: images of the other, image i from the same label and noise as in a.
        reference: images of the dense run.
        confidence: above 0 and below 1.
        resamples: bootstrap draws, at least 100.
        seed: of the draws.

    Raises:
        ValueError: shapes differ, a value is not finite, n < 2, an argument is out of range, or
            so many images equal the reference that a draw has infinite PSNR.
    """
    errors = [squared_error_per_image(x, reference, name) for name, x in (("a", a), ("b", b))]
    n = len(errors[0])
    if n < 2:
        raise ValueError(f"a: {n} image is below 2, the least to resample")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence: {confidence} is outside 0..1, both excluded")
    if resamples < 100:
        raise ValueError(f"resamples: {resamples} is below 100")
    for name, error in zip("ab", errors, strict=True):
        if not error.any():
            raise ValueError(f"{name}: equals the reference, so its PSNR is infinite")
    with warnings.catch_warnings(), np.errstate(divide="ignore", invalid="ignore"):
        # Methods whose errors are proportional give the same difference in every draw.
        warnings.simplefilter("ignore", DegenerateDataWarning)
        result = bootstrap(
            errors,
            _difference,
            n_resamples=resamples,
            paired=True,
            vectorized=True,
            confidence_level=confidence,
            method="BCa",
            rng=np.random.default_rng(seed),
        )
    draws = result.bootstrap_distribution
    if not np.isfinite(draws).all():
        raise ValueError(
            "a, b: so many images equal the reference that a bootstrap draw has infinite PSNR"
        )
    estimate = float(_difference(*errors))
    low, high = result.confidence_interval
    if np.ptp(draws) <= 1e-9:
        low = high = estimate
    return PsnrDifference(estimate, float(low), float(high), confidence, n)


def _difference(
    a: NDArray[np.float64], b: NDArray[np.float64], axis: int = -1
) -> NDArray[np.float64]:
    """PSNR of a less that of b in dB from squared errors; the peak cancels."""
    return 10 * np.log10(b.mean(axis=axis) / a.mean(axis=axis))
