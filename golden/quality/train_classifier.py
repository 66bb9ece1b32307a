"""Train the glyph classifier that the quality metrics use, on 32 and 64 px in turn.

::

    python -m golden.quality.train_classifier --out build/glyph-classifier.safetensors

Stops by iteration count, so a run is repeatable: same machine and command, same weights.  It
computes with one thread.
"""

from __future__ import annotations

import argparse
import math
import shlex
import sys
import time
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor, nn

from golden.data.glyphs import atlas_sha256, load_glyphs
from golden.model.checkpoint import write_parameters
from golden.quality.classifier import (
    FORMAT,
    ClassifierConfig,
    GlyphClassifier,
    features,
    predict,
)

SIZES_PX = (32, 64)

MAX_ROTATION = math.radians(8)
MAX_SCALE = 0.1
MAX_SHEAR = 0.15
MAX_SHIFT = 0.08
"""Of half the edge.  Geometry only: with noise the features would learn to overlook noise, and
the Fréchet distance with them."""


THUMBNAIL_PX = 16
SHAPE_WEIGHT = 10.0
"""A linear map from the features must also redraw a thumbnail.  Trained on digits alone they
collapse to ten points, and a distance in them sees wrong digits but hardly any ragged ones."""


def augment(images: Tensor, generator: torch.Generator) -> Tensor:
    """Rotate, scale, shear and shift each image [n, C, px, px] at random, bilinearly."""
    n = len(images)
    angle, size, shear, *shift = 2 * torch.rand(5, n, generator=generator) - 1
    angle, size = angle * MAX_ROTATION, 1 + size * MAX_SCALE
    cos, sin = size * angle.cos(), size * angle.sin()
    row_x = torch.stack([cos, shear * MAX_SHEAR * size - sin, shift[0] * MAX_SHIFT], dim=1)
    row_y = torch.stack([sin, cos, shift[1] * MAX_SHIFT], dim=1)
    theta = torch.stack([row_x, row_y], dim=1)
    grid = nn.functional.affine_grid(theta, list(images.shape), align_corners=False)
    return nn.functional.grid_sample(images, grid, align_corners=False)


def train(iterations: int, batch: int, lr: float, seed: int) -> GlyphClassifier:
    """Train on the split "train", one batch of each size an iteration.

    Args:
        iterations: optimiser steps.
        batch: images of each size a step.
        lr: peak learning rate of one cycle.
        seed: of weights, data order and augmentation.

    Returns:
        The network, in evaluation mode; its features have mean variance 1 on training glyphs.
    """
    torch.manual_seed(seed)
    model = GlyphClassifier(ClassifierConfig())
    generator = torch.Generator().manual_seed(seed)
    data = [tuple(map(torch.from_numpy, load_glyphs(size, "train"))) for size in SIZES_PX]
    decoder = nn.Linear(model.config.features, THUMBNAIL_PX**2)
    parameters = [*model.parameters(), *decoder.parameters()]
    optimiser = torch.optim.AdamW(parameters, lr=lr, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, lr, total_steps=iterations)
    losses: list[float] = []
    for iteration in range(iterations):
        optimiser.zero_grad(set_to_none=True)
        for images, labels in data:
            chosen = torch.randint(len(images), (batch,), generator=generator)
            seen = augment(images[chosen], generator)
            vectors = model.features(seen)
            logits = model.head(torch.relu(vectors))
            target = nn.functional.adaptive_avg_pool2d(seen, THUMBNAIL_PX).flatten(1)
            shape_loss = nn.functional.mse_loss(decoder(vectors), target)
            loss = nn.functional.cross_entropy(logits, labels[chosen]) + SHAPE_WEIGHT * shape_loss
            loss.backward()
            losses.append(loss.item())
        optimiser.step()
        schedule.step()
        if (iteration + 1) % 100 == 0:
            print(f"{iteration + 1} loss {sum(losses[-200:]) / 200:.4f}", flush=True)
    model.eval().requires_grad_(False)
    scale_features(model, data[0][0])
    return model


def scale_features(model: GlyphClassifier, images: Tensor) -> None:
    """Scale the features to mean variance 1 over the images; the logits stay as they are."""
    values = torch.from_numpy(features(images, model))
    factor = values.var(dim=0).mean().rsqrt()
    # ReLU(c x) = c ReLU(x) for c > 0, so the head can undo the factor.
    model.feature.weight.mul_(factor)
    model.feature.bias.mul_(factor)
    model.head.weight.div_(factor)


def accuracy(model: GlyphClassifier, size: int, split: str) -> float:
    """Fraction of a split's glyphs that the model reads rightly."""
    images, labels = load_glyphs(size, split)
    return float((predict(images, model) == labels).mean())


def main() -> None:
    """Train and write the checkpoint; its metadata say how well its rounded weights read."""
    parser = argparse.ArgumentParser(
        prog="python -m golden.quality.train_classifier", description=main.__doc__
    )
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=64, help="images of each size a step")
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    model = train(arguments.iterations, arguments.batch, arguments.lr, arguments.seed)
    minutes = (time.perf_counter() - start) / 60
    metadata = {
        "command": "python -m golden.quality.train_classifier " + shlex.join(sys.argv[1:]),
        "images_seen": str(arguments.iterations * arguments.batch * len(SIZES_PX)),
        "minutes": f"{minutes:.1f}",
        "threads": "1",
        "torch": torch.__version__,
        "seed": str(arguments.seed),
        "data_sha256": atlas_sha256(),
    }
    for parameter in model.parameters():
        parameter.copy_(parameter.half())  # judge the weights that the file will hold
    for size in SIZES_PX:
        for split in ("train", "held-out"):
            metadata[f"accuracy_{size}px_{split}"] = f"{accuracy(model, size, split):.4f}"
            print(f"{size} px, {split}: {metadata[f'accuracy_{size}px_{split}']}")
    write_parameters(arguments.out, model, asdict(model.config), metadata, FORMAT)
    print(f"{arguments.out}: {arguments.out.stat().st_size / 1000:.0f} kB, {minutes:.1f} min")


if __name__ == "__main__":
    main()
