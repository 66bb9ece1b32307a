"""One line of a comparison: how far an accelerated run is from the dense one and from the data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from golden.data.glyphs import INK
from golden.quality.arrays import Images, as_images, as_pair
from golden.quality.classifier import GlyphClassifier, features, predict
from golden.quality.metrics import frechet_distance, psnr, ssim


@dataclass(frozen=True)
class QualityReport:
    """What `compare` measured.

    Attributes:
        images: number of images n.
        psnr_db: PSNR of the set against the dense run in dB, peak 1.5; infinite if equal.
        ssim: mean structural similarity to the dense run.
        frechet_to_dense: squared Fréchet distance to the dense run, classifier features.
        frechet_to_data: the same to the data.
        dense_frechet_to_data: that of the dense run to the data, at the same n.
        accuracy: fraction that the classifier reads as the label asked for; None without labels.
        dense_accuracy: the same of the dense run.
    """

    images: int
    psnr_db: float
    ssim: float
    frechet_to_dense: float
    frechet_to_data: float
    dense_frechet_to_data: float
    accuracy: float | None
    dense_accuracy: float | None

    @property
    def frechet_ratio(self) -> float:
        """Distance to the data over that of the dense run; 1: no further off than dense."""
        return self.frechet_to_data / self.dense_frechet_to_data


def compare(
    images: Images,
    dense: Images,
    data: Images,
    labels: ArrayLike | None = None,
    classifier: GlyphClassifier | None = None,
) -> QualityReport:
    """Judge images of a run against the dense run with the same seeds, and against the data.

    The Fréchet distances are too large by an amount that falls as 1/n (`frechet_distance`), so
    compare reports of equal n; the ratio compares two distances with nearly the same bias.
    They see shapes, hardly pixel noise or slight blur, which PSNR and SSIM see
    (golden/checkpoints/README.md has figures).

    Args:
        images: float [n, 1, px, px] of the accelerated run, n > 32.
        dense: of the dense run, image i from the same label and noise.
        data: float [m, 1, px, px], usually ``load_glyphs(px, "train")[0]``.
        labels: int [n], the digits asked for.
        classifier: the shipped one if None.

    Raises:
        ValueError: a shape, value or number of images does not fit.
        CheckpointError: the shipped classifier is missing or damaged.
    """
    a, b = as_pair("images", images, dense)
    c = as_images("data", data)
    if c.shape[1:] != a.shape[1:]:
        raise ValueError(f"data: images of shape {c.shape[1:]}, those of the run {a.shape[1:]}")
    if labels is not None:
        labels = np.asarray(labels)
        if labels.shape != (len(a),):
            raise ValueError(f"labels: shape {labels.shape} is not {(len(a),)}")
    of_images, of_dense, of_data = (features(x, classifier) for x in (a, b, c))
    accuracies: list[float | None] = [None, None]
    if labels is not None:
        accuracies = [float((predict(x, classifier) == labels).mean()) for x in (a, b)]
    return QualityReport(
        images=len(a),
        psnr_db=psnr(a, b, INK),
        ssim=ssim(a, b, INK),
        frechet_to_dense=frechet_distance(of_images, of_dense),
        frechet_to_data=frechet_distance(of_images, of_data),
        dense_frechet_to_data=frechet_distance(of_dense, of_data),
        accuracy=accuracies[0],
        dense_accuracy=accuracies[1],
    )
