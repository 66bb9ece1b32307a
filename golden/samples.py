"""Look at what a checkpoint draws: a grid of digits, each above the nearest training glyph.

::

    python -m golden.samples digits-256 --out grid.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from golden.data.glyphs import INK, load_glyphs
from golden.model.checkpoint import load_checkpoint
from golden.sampling import sample


def nearest_glyphs(
    images: NDArray[np.float32], glyphs: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """For each image [m, ...] the nearest of the glyphs [n, ...] and its RMS distance.

    Returns:
        index int64 [m], distance float32 [m] in units of the images (full ink: 1.5).
    """
    a, b = images.reshape(len(images), -1), glyphs.reshape(len(glyphs), -1)
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2 * a @ b.T
    index = squares.argmin(axis=1)
    rms = np.sqrt(np.maximum(squares[np.arange(len(a)), index], 0) / a.shape[1])
    return index, rms.astype(np.float32)


def draw_digits(
    checkpoint: str | Path, seeds_per_digit: int, *, steps: int = 50, guidance: float = 1.0
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Sample every digit several times: images [10 · s, 1, px, px] and labels, seeds 0, 1, 2…

    Image i has seed i and label i modulo 10.
    """
    model = load_checkpoint(checkpoint)
    count = 10 * seeds_per_digit
    labels = np.arange(count) % 10
    batches = [
        sample(
            model,
            labels[i : i + 10].tolist(),
            list(range(i, i + 10)),
            steps=steps,
            guidance=guidance,
        )
        for i in range(0, count, 10)
    ]
    return torch.cat(batches).numpy(), labels


def sheet(images: NDArray[np.float32], columns: int = 10) -> Image.Image:
    """Lay images [m, 1, px, px] out in rows, the last filled up with background."""
    m, _, px, _ = images.shape
    rows = -(-m // columns)
    cells = np.zeros((rows * columns, px, px), np.float32)
    cells[:m] = images[:, 0]
    whole = cells.reshape(rows, columns, px, px).transpose(0, 2, 1, 3).reshape(rows * px, -1)
    return Image.fromarray(np.clip(np.rint(whole * (255 / INK)), 0, 255).astype(np.uint8))


def sample_grid(images: NDArray[np.float32], nearest: NDArray[np.float32]) -> Image.Image:
    """Rows of ten images [m, 1, px, px], each row above its nearest glyphs, which are inverted."""
    m, _, px, _ = images.shape
    pairs = np.stack([images, INK - nearest]).reshape(2, m // 10, 10, 1, px, px)
    alternating = pairs.swapaxes(0, 1).reshape(-1, 1, px, px)
    grey = np.asarray(sheet(alternating))
    return Image.fromarray(grey // 16 * 17)  # 16 grey levels: a small file


def main() -> None:
    """Write a grid and print how the digits compare with the training glyphs."""
    parser = argparse.ArgumentParser(prog="python -m golden.samples", description=main.__doc__)
    parser.add_argument("checkpoint", help="digits-256, digits-1024 or a path")
    parser.add_argument("--out", type=Path, required=True, help="PNG to write")
    parser.add_argument("--rows", type=int, default=4, help="images per digit")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--guidance", type=float, default=1.0)
    arguments = parser.parse_args()
    images, labels = draw_digits(
        arguments.checkpoint, arguments.rows, steps=arguments.steps, guidance=arguments.guidance
    )
    glyphs, glyph_labels = load_glyphs(images.shape[-1], "train")
    unseen, _ = load_glyphs(images.shape[-1], "held-out")
    index, distance = nearest_glyphs(images, glyphs)
    _, unseen_distance = nearest_glyphs(unseen, glyphs)
    sample_grid(images, glyphs[index]).save(arguments.out, optimize=True)
    agree = (glyph_labels[index] == labels).sum()
    print(f"nearest training glyph shows the asked digit: {agree} of {len(labels)}")
    print(
        "median RMS distance to it: "
        f"{np.median(distance):.3f} (held-out real glyphs: {np.median(unseen_distance):.3f})"
    )


if __name__ == "__main__":
    main()
