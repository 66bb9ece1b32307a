"""Load the shipped glyph atlas.  Needs no fonts; `golden.data.render` made the atlas from them."""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

ATLAS_PX = 64
DIGITS = "0123456789"
ATLAS_PATH = Path(__file__).with_name("digits.png")
MANIFEST_PATH = Path(__file__).with_name("digits.json")

INK = 1.5
"""Value of full ink.  The background is 0, as zero-mean latents have it: CTR's score is the
change of a token, and with a background of -1 the background itself would change most."""

SIZES = (16, 32, 64)


class GlyphDataError(RuntimeError):
    """The atlas or its manifest is missing or damaged.  The message says what to do."""


def load_glyphs(
    size: Literal[16, 32, 64],
    split: Literal["all", "train", "held-out"] = "all",
    *,
    atlas: Path = ATLAS_PATH,
    manifest: Path = MANIFEST_PATH,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Load glyph images and their digits.

    Args:
        size: edge in pixels.  32 is the exact 2x2 box mean of 64, and 16 that of 32.
        split: "train", "held-out" (every image of about a tenth of the font faces) or "all".
        atlas: the PNG of all glyphs.
        manifest: its JSON with checksum and provenance.

    Returns:
        images float32 [n, 1, size, size] in [0, 1.5], 0 being background; labels int64 [n].

    Raises:
        ValueError: `size` or `split` is not one of the values above.
        GlyphDataError: a file is missing or damaged.
    """
    if size not in SIZES:
        raise ValueError(f"size: {size} is not one of {SIZES}")
    grey, _ = _read(atlas, manifest)
    images = grey.astype(np.float32)  # [n, 64, 64]; means of integers below 2**24 stay exact
    factor = ATLAS_PX // size
    images = images.reshape(len(images), size, factor, size, factor).mean(axis=(2, 4))
    labels = np.arange(len(images), dtype=np.int64) % len(DIGITS)
    chosen = glyph_split(split, atlas=atlas, manifest=manifest)
    return (images[chosen] * np.float32(INK / 255))[:, None], labels[chosen]


def glyph_split(
    split: Literal["all", "train", "held-out"],
    *,
    atlas: Path = ATLAS_PATH,
    manifest: Path = MANIFEST_PATH,
) -> NDArray[np.int64]:
    """Image indices of a split, ascending, int64 [n].

    The split goes by font face, so that no held-out digit has a sibling of the same face in
    training, and by the hash of the face's file name, so that adding faces moves no other face.

    Raises:
        ValueError: `split` is unknown.
        GlyphDataError: a file is missing or damaged.
    """
    if split not in ("all", "train", "held-out"):
        raise ValueError(f"split: {split!r} is not one of 'all', 'train', 'held-out'")
    _, record = _read(atlas, manifest)
    held_out = np.array(
        [hashlib.sha256(face["font"].encode()).digest()[0] % 10 == 0 for face in record["faces"]]
    )
    face = {"all": held_out | True, "train": ~held_out, "held-out": held_out}[split]
    return np.flatnonzero(np.repeat(face, len(DIGITS)))


def atlas_sha256() -> str:
    """SHA-256 of the shipped atlas as its manifest states it, hexadecimal."""
    return str(_read(ATLAS_PATH, MANIFEST_PATH)[1]["sha256"])


@functools.lru_cache(maxsize=2)
def _read(atlas: Path, manifest: Path) -> tuple[NDArray[np.uint8], dict[str, Any]]:
    """Grey values uint8 [n, 64, 64] and the manifest, both checked."""
    repair = "restore it from the repository, or make both anew: python -m golden.data.render"
    try:
        record = json.loads(manifest.read_text())
        expected, faces = record["sha256"], record["faces"]
    except FileNotFoundError:
        raise GlyphDataError(f"glyph manifest {manifest} is missing; {repair}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise GlyphDataError(f"glyph manifest {manifest} is damaged ({error}); {repair}") from None
    try:
        content = atlas.read_bytes()
    except FileNotFoundError:
        raise GlyphDataError(f"glyph atlas {atlas} is missing; {repair}") from None
    if hashlib.sha256(content).hexdigest() != expected:
        raise GlyphDataError(
            f"glyph atlas {atlas} does not match the SHA-256 in {manifest.name}; {repair}"
        )
    with Image.open(atlas) as image:
        sheet = np.asarray(image.convert("L"))
    height, width = len(faces) * ATLAS_PX, len(DIGITS) * ATLAS_PX
    if sheet.shape != (height, width):
        raise GlyphDataError(
            f"glyph atlas {atlas} has shape {sheet.shape}, its manifest says {(height, width)}; "
            f"{repair}"
        )
    tiles = sheet.reshape(len(faces), ATLAS_PX, len(DIGITS), ATLAS_PX).transpose(0, 2, 1, 3)
    return tiles.reshape(-1, ATLAS_PX, ATLAS_PX), record
