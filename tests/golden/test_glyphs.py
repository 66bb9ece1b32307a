"""The shipped images: complete, split by font face, exact across resolutions, well guarded."""

import json
import shutil

import numpy as np
import pytest

from golden.data.glyphs import ATLAS_PATH, MANIFEST_PATH, GlyphDataError, glyph_split, load_glyphs


def test_images_are_digits_in_range_on_background_zero():
    images, labels = load_glyphs(32)
    assert images.dtype == np.float32
    assert images.shape[1:] == (1, 32, 32)
    assert len(images) > 5000
    assert (np.bincount(labels) == len(images) // 10).all()
    assert images.min() == 0
    assert images.max() == pytest.approx(1.5)
    assert np.median(images[:, :, 0]) == 0  # the border is background


@pytest.mark.parametrize(("small", "large"), [(32, 64), (16, 32)])
def test_smaller_images_are_exact_box_means(small, large):
    fine, _ = load_glyphs(large)
    coarse, _ = load_glyphs(small)
    # In whole 1/16 grey levels both are integers, so the comparison is exact.
    fine, coarse = (np.rint(x.astype(np.float64) * (255 / 1.5) * 16) for x in (fine, coarse))
    mean = fine.reshape(len(fine), small, 2, small, 2).mean(axis=(2, 4))
    np.testing.assert_array_equal(mean, coarse[:, 0])


def test_split_is_disjoint_by_face_and_complete():
    train, held_out = glyph_split("train"), glyph_split("held-out")
    assert not set(train // 10) & set(held_out // 10)
    np.testing.assert_array_equal(np.union1d(train, held_out), glyph_split("all"))
    assert 0.05 < len(held_out) / len(train) < 0.2


def test_no_face_occurs_twice():
    images, _ = load_glyphs(64)
    faces = images.reshape(len(images) // 10, -1)
    assert len({face.tobytes() for face in faces}) == len(faces)


def test_no_held_out_image_is_also_in_training():
    train = {image.tobytes() for image in load_glyphs(64, "train")[0]}
    held_out, _ = load_glyphs(64, "held-out")
    assert not any(image.tobytes() in train for image in held_out)


def test_every_face_has_provenance_and_a_licence():
    manifest = json.loads(MANIFEST_PATH.read_text())
    for index, face in enumerate(manifest["faces"]):
        assert face["images"] == [10 * index, 10 * index + 9]
        assert face["licence"] == manifest["licences"][face["package"]]
        assert face["font"]
        assert face["version"]


def test_unknown_size_and_split_are_refused():
    with pytest.raises(ValueError, match=r"size: 48 is not one of \(16, 32, 64\)"):
        load_glyphs(48)
    with pytest.raises(ValueError, match="split: 'test' is not one of"):
        load_glyphs(32, "test")


def test_missing_and_damaged_files_say_what_to_do(tmp_path):
    atlas, manifest = tmp_path / "a.png", tmp_path / "m.json"
    shutil.copy(MANIFEST_PATH, manifest)
    with pytest.raises(GlyphDataError, match=r"a\.png is missing.*golden\.data\.render"):
        load_glyphs(32, atlas=atlas, manifest=manifest)
    content = bytearray(ATLAS_PATH.read_bytes())
    content[len(content) // 2] ^= 1
    atlas.write_bytes(content)
    with pytest.raises(GlyphDataError, match="does not match the SHA-256"):
        load_glyphs(32, atlas=atlas, manifest=manifest)
    manifest.write_text("{")
    with pytest.raises(GlyphDataError, match=r"m\.json is damaged"):
        load_glyphs(32, atlas=atlas, manifest=manifest)
