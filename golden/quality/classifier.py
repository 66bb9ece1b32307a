"""A small network that reads digits: its features serve the Fréchet distance, its answers accuracy.

Trained by `golden.quality.train_classifier` on the project's own glyphs, so no outside weights
are needed.  Distances in its features rank methods on these models; they are no FID.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from golden.model.checkpoint import CHECKPOINTS, CheckpointError, read_parameters
from golden.quality.arrays import Images, as_images

FORMAT = "disc-glyph-classifier-1"
TRAINER = "golden.quality.train_classifier"
SHIPPED_CLASSIFIER = CHECKPOINTS / "glyph-classifier.safetensors"

BATCH = 64


@dataclass(frozen=True)
class ClassifierConfig:
    """Sizes of the network.

    Attributes:
        channels: of the images.
        classes: digits.
        widths: channels after the stem and the two stages of the trunk, multiples of 8.
        features: width of the feature vector.
        grid: the stem's output is pooled to grid x grid, so images have a multiple of 2 · grid px.
    """

    channels: int = 1
    classes: int = 10
    widths: tuple[int, int, int] = (16, 32, 64)
    features: int = 32
    grid: int = 16


class GlyphClassifier(nn.Module):
    """Image [n, C, px, px], px a multiple of 32, to logits [n, 10].

    A stem at full resolution, pooled to one size so that a digit looks alike to the trunk at 32
    and at 64 px; two convolutions of stride 2; a convolution that spans what is left gives the
    features.  Group, not batch, normalisation: an image's features do not depend on the others.
    """

    def __init__(self, config: ClassifierConfig) -> None:
        super().__init__()
        self.config = config
        stem, middle, last = config.widths
        self.stem = nn.Sequential(
            nn.Conv2d(config.channels, stem, 5, stride=2, padding=2), nn.GroupNorm(2, stem)
        )
        self.pool = nn.AdaptiveAvgPool2d(config.grid)
        self.trunk = nn.Sequential(
            nn.Conv2d(stem, middle, 3, stride=2, padding=1),
            nn.GroupNorm(4, middle),
            nn.ReLU(),
            nn.Conv2d(middle, last, 3, stride=2, padding=1),
            nn.GroupNorm(8, last),
            nn.ReLU(),
        )
        self.feature = nn.Conv2d(last, config.features, config.grid // 4)
        self.head = nn.Linear(config.features, config.classes)

    def features(self, images: Tensor) -> Tensor:
        """Feature vectors [n, 32], before the last non-linearity, which suits a Gaussian fit."""
        x = self.pool(torch.relu(self.stem(images)))
        return self.feature(self.trunk(x)).flatten(1)

    def forward(self, images: Tensor) -> Tensor:
        """Logits [n, 10]."""
        return self.head(torch.relu(self.features(images)))


def load_classifier(path: str | Path = SHIPPED_CLASSIFIER) -> GlyphClassifier:
    """Load a classifier, float32, in evaluation mode, gradients off.

    Raises:
        CheckpointError: no file, damaged, or not one of `golden.quality.train_classifier`.
    """
    path = Path(path)
    if not path.is_file():
        raise CheckpointError(
            f"classifier {path} is missing; restore it from the repository or train it again: "
            f"python -m {TRAINER} --help"
        )
    metadata, tensors = read_parameters(path, FORMAT, TRAINER)
    try:
        fields = json.loads(metadata["config"])
        model = GlyphClassifier(ClassifierConfig(**fields | {"widths": tuple(fields["widths"])}))
        model.load_state_dict({name: t.float() for name, t in tensors.items()})
    except (ValueError, TypeError, KeyError, RuntimeError) as error:
        raise CheckpointError(
            f"classifier {path} does not fit the network it names ({error}); train it again: "
            f"python -m {TRAINER} --help"
        ) from None
    return model.eval().requires_grad_(False)


def features(images: Images, classifier: GlyphClassifier | None = None) -> NDArray[np.float32]:
    """Feature vectors float32 [n, 32].

    Args:
        images: float [n, 1, px, px], px a multiple of 32; background 0, full ink 1.5.
        classifier: the shipped one if None.

    Raises:
        ValueError: not floats, another shape, a value is not finite.
        CheckpointError: the shipped checkpoint is missing or damaged.
    """
    model = classifier or _shipped()
    return np.concatenate([model.features(x).numpy() for x in _batches(images, model.config)])


def predict(images: Images, classifier: GlyphClassifier | None = None) -> NDArray[np.int64]:
    """Digits int64 [n] that the network reads; arguments and errors as `features`."""
    model = classifier or _shipped()
    return np.concatenate([model(x).argmax(1).numpy() for x in _batches(images, model.config)])


def _batches(images: Images, config: ClassifierConfig) -> tuple[Tensor, ...]:
    array = as_images("images", images)
    _, channels, px, _ = array.shape
    if channels != config.channels:
        raise ValueError(f"images: {channels} channels, the classifier reads {config.channels}")
    if px % (2 * config.grid):
        raise ValueError(f"images: {px} px is not a multiple of {2 * config.grid}")
    return torch.from_numpy(array.astype(np.float32)).split(BATCH)


@functools.lru_cache(maxsize=1)
def _shipped() -> GlyphClassifier:
    return load_classifier()
