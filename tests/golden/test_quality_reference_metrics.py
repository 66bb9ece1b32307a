"""FID and CLIP score on small random networks, written here in the form of the real ones."""

import shutil
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from golden.quality.metrics import frechet_distance
from golden.quality.reference_metrics import clip_score, clip_scores, fid

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")


class TinyInception(torch.nn.Module):
    """Has the interface of the usual TorchScript file: uint8 in, features on request."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 6, 3)
        self.fc = torch.nn.Linear(6, 4)

    def forward(self, img: torch.Tensor, return_features: bool = False) -> torch.Tensor:
        x = torch.relu(self.conv(img.float() / 255)).mean(dim=[2, 3])
        return x if return_features else self.fc(x)


class Featureless(torch.nn.Module):
    def forward(self, img: torch.Tensor) -> torch.Tensor:
        return img.float()


class PlainFeatures(torch.nn.Module):
    def forward(self, img: torch.Tensor) -> torch.Tensor:
        return img.double().mean(dim=[2, 3])


def write_images(folder, n: int, seed: int, gain: float = 1.0, sizes=((12, 16),)) -> np.ndarray:
    """Noise PNGs whose brightness varies; returns the mean colours [n, 3]."""
    folder.mkdir()
    rng = np.random.default_rng(seed)
    colours = []
    for i in range(n):
        base = rng.uniform(0, 160, 3) * gain
        pixels = base + rng.uniform(0, 90, (*sizes[i % len(sizes)], 3))
        pixels = pixels.astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{i:03}.png")
        colours.append(pixels.mean(axis=(0, 1)))
    return np.array(colours)


def script(module, path):
    torch.manual_seed(0)
    torch.jit.script(module()).save(str(path))
    return path


def test_fid_is_the_distance_of_the_networks_features(tmp_path):
    a = write_images(tmp_path / "a", 25, 0, sizes=((12, 16), (12, 16), (9, 9)))
    b = write_images(tmp_path / "b", 20, 1, gain=0.7)
    (tmp_path / "a" / "notes.txt").write_text("no image")
    weights = script(PlainFeatures, tmp_path / "plain.pt")
    value = fid(tmp_path / "a", tmp_path / "b", weights, batch=4)
    assert value == pytest.approx(frechet_distance(a, b), rel=1e-6)
    assert value == pytest.approx(fid(tmp_path / "a", tmp_path / "b", weights), rel=1e-6)
    assert fid(tmp_path / "a", tmp_path / "a", weights) == pytest.approx(0, abs=1e-6)


def test_fid_asks_an_inception_file_for_features(tmp_path):
    """The classifier's own outputs have width 4, the features 6."""
    write_images(tmp_path / "a", 8, 0)
    write_images(tmp_path / "b", 6, 1)
    weights = script(TinyInception, tmp_path / "inception.pt")
    with pytest.raises(ValueError, match="reference: 6 rows are too few for 6 features"):
        fid(tmp_path / "a", tmp_path / "b", weights)
    write_images(tmp_path / "c", 9, 2)
    assert fid(tmp_path / "a", tmp_path / "c", weights) > 0


def test_fid_says_what_is_wrong_with_files(tmp_path):
    write_images(tmp_path / "a", 5, 0)
    weights = script(PlainFeatures, tmp_path / "plain.pt")
    a, empty = tmp_path / "a", tmp_path / "empty"
    empty.mkdir()
    torch.save({"weight": torch.zeros(2)}, tmp_path / "state.pth")
    (tmp_path / "text.pt").write_text("no weights")
    for arguments, message in (
        ((a, a, tmp_path / "none.pt"), "weights: there is no file.*nothing is downloaded"),
        ((a, a, tmp_path / "state.pth"), "weights: .*state.pth is no TorchScript file"),
        ((a, a, tmp_path / "text.pt"), "weights: .*text.pt is no TorchScript file"),
        ((a, a, script(Featureless, tmp_path / "f.pt")), r"\(5, 3, 12, 16\) for 5 images"),
        ((a, tmp_path / "b", weights), "images: .*b is no folder"),
        ((empty, a, weights), r"images: .*empty has no file that ends in one of \.png"),
    ):
        with pytest.raises(ValueError, match=message):
            fid(*arguments)
    with pytest.raises(ValueError, match="batch: 0 is below 1"):
        fid(a, a, weights, batch=0)
    (a / "broken.png").write_bytes(b"not a picture")
    with pytest.raises(ValueError, match=r"broken\.png cannot be read"):
        fid(a, a, weights)


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """Folder of a random CLIP model whose text branch reads the letters a to j."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("clip")
    pieces = ["<|startoftext|>", "<|endoftext|>"]
    pieces += [letter + end for letter in "abcdefghij" for end in ("", "</w>")]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    branch = {
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    torch.manual_seed(0)
    text = branch | {
        "vocab_size": len(pieces),
        "max_position_embeddings": 12,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 1,
    }
    model = transformers.CLIPModel(
        transformers.CLIPConfig(
            text_config=text,
            vision_config=branch | {"image_size": 32, "patch_size": 8},
            projection_dim=8,
        )
    )
    model.save_pretrained(folder)
    images = transformers.CLIPImageProcessor(
        size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}
    )
    tokens = transformers.CLIPTokenizer(vocab=vocabulary, merges=[])
    transformers.CLIPProcessor(image_processor=images, tokenizer=tokens).save_pretrained(folder)
    return folder


def test_clip_scores_are_cosines_of_the_matching_prompt(tmp_path, clip):
    from transformers import CLIPModel, CLIPProcessor

    write_images(tmp_path / "a", 6, 0, sizes=((40, 48), (33, 32)))
    lines = ["a", "bcd", "j i h", "a" * 40, "e f", "ab"]  # the fourth is too long
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("\n".join(lines) + "\n")
    model, processor = CLIPModel.from_pretrained(clip), CLIPProcessor.from_pretrained(clip)
    expected = []
    for i, line in enumerate(lines):
        with Image.open(tmp_path / "a" / f"{i:03}.png") as image:
            pixels = processor(images=image, return_tensors="pt")["pixel_values"]
        ids = processor.tokenizer(line, truncation=True, max_length=12, return_tensors="pt")
        with torch.no_grad():
            output = model(pixel_values=pixels, **ids)
        expected.append(100 * float(output.image_embeds[0] @ output.text_embeds[0]))
    expected = np.maximum(expected, 0)
    scores = clip_scores(tmp_path / "a", prompts, clip, batch=4)
    assert (scores > 0).sum() >= 2
    np.testing.assert_allclose(scores, expected, atol=1e-3)
    assert len(set(scores[scores > 0].tolist())) > 1
    assert clip_score(tmp_path / "a", prompts, clip) == pytest.approx(expected.mean(), abs=1e-3)


def test_clip_score_says_what_is_wrong_with_files(tmp_path, clip):
    write_images(tmp_path / "a", 3, 0)
    prompts, bare = tmp_path / "p.txt", tmp_path / "bare"
    bare.mkdir()
    prompts.write_text("a\nb\nc\n")
    with pytest.raises(ValueError, match=r"weights: .*bare holds no usable CLIP model"):
        clip_scores(tmp_path / "a", prompts, bare)
    shutil.copytree(clip, bare, dirs_exist_ok=True)
    tensors = load_file(bare / "model.safetensors")
    lost = tensors.pop("text_projection.weight")
    save_file(tensors, bare / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"lacks 1 of the .* instance text_projection\.weight"):
        clip_scores(tmp_path / "a", prompts, bare)
    tensors["text_projection.weight"] = lost[:3]
    save_file(tensors, bare / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"weights: .*bare holds no usable CLIP model"):
        clip_scores(tmp_path / "a", prompts, bare)
    (bare / "model.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(ValueError, match=r"weights: .*bare holds no usable CLIP model"):
        clip_scores(tmp_path / "a", prompts, bare)
    with pytest.raises(ValueError, match="batch: -1 is below 1"):
        clip_scores(tmp_path / "a", prompts, clip, batch=-1)


def test_clip_score_checks_prompts_and_folder_first(tmp_path, monkeypatch):
    write_images(tmp_path / "a", 3, 0)
    prompts = tmp_path / "p.txt"
    with pytest.raises(ValueError, match=r"prompts: .*p\.txt cannot be read"):
        clip_scores(tmp_path / "a", prompts, tmp_path)
    for content, message in (
        (b"a\nb\n", "prompts: 2 lines in .* for 3 images"),
        (b"a\n\nc\n", r"prompts: line 2 of .*p\.txt is empty"),
        (b"\xff\n", r"prompts: .*p\.txt cannot be read"),
    ):
        prompts.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            clip_scores(tmp_path / "a", prompts, tmp_path)
    prompts.write_text("a\nb\nc\n")
    with pytest.raises(ValueError, match=r"weights: .* is no folder.*nothing is downloaded"):
        clip_scores(tmp_path / "a", prompts, tmp_path / "none")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ValueError, match=r"pip install 'disc-accelerator\[reference-metrics\]'"):
        clip_scores(tmp_path / "a", prompts, tmp_path)
