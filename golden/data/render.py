"""Render the shipped glyph atlas from free fonts of Debian packages.

Run on Debian 12 with the packages of `PACKAGES` installed::

    apt-get install --no-install-recommends $(python -m golden.data.render --packages)
    python -m golden.data.render

Nothing else in the project needs the fonts: `golden.data.glyphs` reads the atlas.

Every face's ten digits are drawn at eight times the final size, scaled so that the longer side of
each digit measures `GLYPH_PX`, centred, and reduced by an 8x8 box mean to `ATLAS_PX` square.
Faces are dropped, with a reason that the manifest counts, when a digit is missing, when they are
symbol or ornament fonts, and when they repeat a face that is already there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from PIL.PngImagePlugin import PngInfo
from rich.progress import track

from golden.data.glyphs import ATLAS_PATH, ATLAS_PX, DIGITS, MANIFEST_PATH

SUPERSAMPLE = 8
GLYPH_PX = 54
"""Longer side of a digit, of `ATLAS_PX`."""
LEVELS = 16
"""Grey levels kept; with more, the atlas grows and no eye sees the difference."""

DUPLICATE_MEAN_ABS = 3.0
"""Two faces whose every digit differs by less than this (of 255, mean per pixel) are one face."""
NEIGHBOURS = 5
MIN_AGREEING = 8
"""A face stays if this many of its ten digits look like the same digit of other faces."""

# Package -> licence of its fonts, read in /usr/share/doc/<package>/copyright.  "FE": font
# exception, the rendered or embedded outlines do not fall under the GPL.
PACKAGES: dict[str, str] = {
    "fonts-adf-accanthis": "GPL-2.0-or-later with FE",
    "fonts-adf-baskervald": "GPL-2.0-or-later with FE",
    "fonts-adf-berenis": "GPL-2.0-or-later with FE",
    "fonts-adf-gillius": "GPL-2.0-or-later with FE",
    "fonts-adf-libris": "GPL-2.0-or-later with FE",
    "fonts-adf-romande": "GPL-2.0-or-later with FE",
    "fonts-adf-switzera": "GPL-2.0-or-later with FE",
    "fonts-adf-tribun": "GPL-2.0-or-later with FE",
    "fonts-adf-universalis": "GPL-2.0-or-later with FE",
    "fonts-adf-verana": "GPL-2.0-or-later with FE",
    "fonts-anonymous-pro": "OFL-1.1",
    "fonts-averia-sans-gwf": "OFL-1.1",
    "fonts-averia-serif-gwf": "OFL-1.1",
    "fonts-bebas-neue": "OFL-1.1",
    "fonts-cabin": "OFL-1.1",
    "fonts-cantarell": "OFL-1.1",
    "fonts-cmu": "OFL-1.1",
    "fonts-comfortaa": "OFL-1.1",
    "fonts-croscore": "OFL-1.1",
    "fonts-crosextra-caladea": "Apache-2.0",
    "fonts-crosextra-carlito": "OFL-1.1",
    "fonts-dejavu-core": "Bitstream-Vera",
    "fonts-dejavu-extra": "Bitstream-Vera",
    "fonts-dosis": "OFL-1.1",
    "fonts-ebgaramond": "OFL-1.1",
    "fonts-fanwood": "MIT",
    "fonts-firacode": "OFL-1.1",
    "fonts-freefont-otf": "GPL-3.0-or-later with FE",
    "fonts-gfs-artemisia": "OFL-1.1",
    "fonts-gfs-didot": "OFL-1.1",
    "fonts-gfs-neohellenic": "OFL-1.1",
    "fonts-hack": "MIT AND Bitstream-Vera",
    "fonts-inconsolata": "OFL-1.0",
    "fonts-inter": "OFL-1.1",
    "fonts-jetbrains-mono": "Apache-2.0",
    "fonts-junction": "OFL-1.1",
    "fonts-karla": "OFL-1.1",
    "fonts-lato": "OFL-1.1",
    "fonts-league-spartan": "OFL-1.1",
    "fonts-liberation": "GPL-2.0-only with FE",
    "fonts-lindenhill": "MIT",
    "fonts-linuxlibertine": "OFL-1.1",
    "fonts-lmodern": "GUST-Font-License",
    "fonts-lobster": "OFL-1.1",
    "fonts-lobstertwo": "OFL-1.1",
    "fonts-manrope": "OFL-1.1",
    "fonts-mononoki": "OFL-1.1",
    "fonts-national-park": "OFL-1.1",
    "fonts-noto-core": "OFL-1.1",
    "fonts-okolaks": "OFL-1.1",
    "fonts-oldstandard": "OFL-1.0",
    "fonts-open-sans": "Apache-2.0",
    "fonts-oxygen": "OFL-1.1",
    "fonts-quicksand": "OFL-1.1",
    "fonts-roboto-slab": "Apache-2.0",
    "fonts-roboto-unhinted": "Apache-2.0",
    "fonts-sil-andika": "OFL-1.1",
    "fonts-sil-charis": "OFL-1.1",
    "fonts-sil-gentium": "OFL-1.1",
    "fonts-sora": "OFL-1.1",
    "fonts-stix": "OFL-1.1",
    "fonts-texgyre": "GUST-Font-License",
    "fonts-vollkorn": "OFL-1.1",
    "fonts-yanone-kaffeesatz": "OFL-1.1",
}


def package_fonts(package: str) -> tuple[str, list[Path]]:
    """Version and TrueType/OpenType files of an installed Debian package, sorted by file name.

    Raises:
        RuntimeError: the package is not installed.
    """
    version = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Version}", package], capture_output=True, text=True
    )
    if version.returncode or not version.stdout:
        raise RuntimeError(f"{package} is not installed; run: apt-get install {package}")
    listing = subprocess.run(
        ["dpkg-query", "-L", package], capture_output=True, text=True, check=True
    )
    paths = [Path(line) for line in listing.stdout.splitlines()]
    fonts = [p for p in paths if p.suffix.lower() in (".ttf", ".otf") and p.is_file()]
    # The resolved set: some packages install links to the same file under a second name.
    unique = {p.resolve(): p for p in sorted(fonts, key=lambda p: p.name)}
    return version.stdout, sorted(unique.values(), key=lambda p: p.name)


def render_digit(path: Path, digit: str) -> NDArray[np.uint8] | None:
    """Draw one digit, uint8 [ATLAS_PX, ATLAS_PX], ink 255 on 0; None if the face lacks it."""
    full, target = ATLAS_PX * SUPERSAMPLE, GLYPH_PX * SUPERSAMPLE
    probe = ImageFont.truetype(path, 200, layout_engine=ImageFont.Layout.BASIC)
    left, top, right, bottom = probe.getbbox(digit)
    longer = max(right - left, bottom - top)
    if longer < 20 or bytes(probe.getmask(digit)) == bytes(probe.getmask("\uffff")):
        return None
    font = probe.font_variant(size=200 * target / longer)
    left, top, right, bottom = font.getbbox(digit)
    canvas = Image.new("L", (full, full))
    origin = ((full - right - left) / 2, (full - bottom - top) / 2)
    ImageDraw.Draw(canvas).text(origin, digit, fill=255, font=font)
    return np.asarray(canvas.reduce(SUPERSAMPLE))


def render_face(path: Path) -> NDArray[np.uint8] | str:
    """Draw all digits of a face, uint8 [10, ATLAS_PX, ATLAS_PX], or say why it is unusable."""
    glyphs = []
    for digit in DIGITS:
        try:
            glyph = render_digit(path, digit)
        except OSError:
            return "unreadable"
        if glyph is None:
            return "digit missing"
        glyphs.append(glyph)
    face = np.stack(glyphs)
    ink = face.mean(axis=(1, 2)) / 255
    if ink.min() < 0.02 or ink.max() > 0.6:
        return "too little or too much ink"
    flat = face.reshape(len(DIGITS), -1).astype(np.int16)
    for i in range(len(DIGITS)):
        if np.abs(flat[i + 1 :] - flat[i]).mean(axis=1).min(initial=255) < 2 * DUPLICATE_MEAN_ABS:
            return "digits alike"
    return face


def duplicates(faces: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """True for each face [n, 10, h, w] that repeats an earlier one, see `DUPLICATE_MEAN_ABS`."""
    flat = faces.reshape(len(faces), len(DIGITS), -1).astype(np.float32)
    repeated = np.zeros(len(faces), bool)
    for i in range(1, len(faces)):
        kept = np.flatnonzero(~repeated[:i])
        worst = np.abs(flat[kept] - flat[i]).mean(axis=2).max(axis=1)
        repeated[i] = worst.min() < DUPLICATE_MEAN_ABS
    return repeated


def agreeing_digits(faces: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Per face [n, 10, h, w]: how many digits a 5-nearest-neighbour vote of other faces names."""
    n = len(faces)
    block = ATLAS_PX // 16
    small = faces.reshape(n, 10, 16, block, 16, block).mean(axis=(3, 5)).reshape(n * 10, -1)
    square = (small**2).sum(axis=1)
    distance = square[:, None] + square - 2 * small @ small.T
    face = np.arange(n * 10) // 10
    distance[face[:, None] == face] = np.inf
    nearest = np.argpartition(distance, NEIGHBOURS, axis=1)[:, :NEIGHBOURS] % 10
    votes = np.stack([(nearest == digit).sum(axis=1) for digit in range(10)], axis=1)
    return (votes.argmax(axis=1) == np.arange(n * 10) % 10).reshape(n, 10).sum(axis=1)


def collect() -> tuple[NDArray[np.uint8], list[dict[str, str]], Counter[str]]:
    """Render all packages: faces uint8 [n, 10, ATLAS_PX, ATLAS_PX], their records, drop counts."""
    faces: list[NDArray[np.uint8]] = []
    records: list[dict[str, str]] = []
    dropped: Counter[str] = Counter()
    for package in track(sorted(PACKAGES), description="fonts"):
        version, fonts = package_fonts(package)
        for path in fonts:
            face = render_face(path)
            if isinstance(face, str):
                dropped[face] += 1
                continue
            faces.append(face)
            records.append({"font": path.name, "package": package, "version": version})
    return np.stack(faces), records, dropped


def main() -> None:
    """Write the atlas and its manifest."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--packages", action="store_true", help="print the package names, stop")
    if parser.parse_args().packages:
        print(*sorted(PACKAGES))
        return
    faces, records, dropped = collect()
    for reason, keep in (
        ("symbols or ornaments", lambda f: agreeing_digits(f) >= MIN_AGREEING),
        ("repeats another face", lambda f: ~duplicates(f)),
    ):
        kept = keep(faces)
        dropped[reason] += int((~kept).sum())
        faces = faces[kept]
        records = [r for r, k in zip(records, kept, strict=True) if k]
    step = 255 // (LEVELS - 1)
    faces = ((faces.astype(np.int64) + step // 2) // step * step).astype(np.uint8)
    sheet = faces.transpose(0, 2, 1, 3).reshape(len(faces) * ATLAS_PX, 10 * ATLAS_PX)
    Image.fromarray(sheet).save(ATLAS_PATH, optimize=True, pnginfo=PngInfo())
    manifest = {
        "what": "digits 0..9; one face a row of the atlas, one digit a column, each 64x64 pixels",
        "atlas": ATLAS_PATH.name,
        "sha256": hashlib.sha256(ATLAS_PATH.read_bytes()).hexdigest(),
        "dropped": dict(sorted(dropped.items())),
        "licences": {p: PACKAGES[p] for p in sorted({r["package"] for r in records})},
        "faces": [
            {**record, "licence": PACKAGES[record["package"]], "images": [10 * i, 10 * i + 9]}
            for i, record in enumerate(records)
        ],
    }
    text = json.dumps(manifest, indent=1)
    # One face a line keeps the file readable and small.
    for record in manifest["faces"]:
        text = text.replace(
            "\n".join("  " + line for line in json.dumps(record, indent=1).splitlines()),
            "  " + json.dumps(record),
        )
    MANIFEST_PATH.write_text(text + "\n")
    print(f"{len(faces)} faces, {len(faces) * 10} images, dropped: {dict(dropped)}")
    print(f"{ATLAS_PATH.name}: {ATLAS_PATH.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
