"""FID and CLIP score of image folders, for runs on real checkpoints.  Weights are local files.

Nothing is downloaded.  FID needs a TorchScript file of the Inception network that the literature
uses: the `inception-2015-12-05.pt` that goes with StyleGAN2-ADA and StyleGAN3, which resizes and
scales by itself.  TorchScript needs no model code here, and loading it runs none of Python's.
CLIP score needs a folder of a CLIP model in the form of `transformers`, and that package:
``pip install 'disc-accelerator[reference-metrics]'``.

The packages that read other forms of these Inception weights need torchvision, whose release on
PyPI fits PyTorch's CUDA build only; installed beside the CPU build it breaks `transformers`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError
from safetensors import SafetensorError
from torch import Tensor

from golden.quality.metrics import frechet_distance

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")


def fid(images: Path, reference: Path, weights: Path, *, batch: int = 32) -> float:
    """Fréchet Inception distance between two folders (Heusel et al., arXiv 1706.08500).

    It is biased at small n, see `frechet_distance`; papers use 10,000 to 50,000 images.

    Args:
        images: folder of PNG, JPEG or WebP files; their sizes may differ.
        reference: the same, usually of real images.
        weights: TorchScript file; its module takes uint8 [n, 3, h, w] and gives [n, d].  If it
            has an argument `return_features`, that is set to True.
        batch: images at a time.

    Raises:
        ValueError: a folder or file is missing or unusable, or a folder has no more images than
            there are features (2,048 for Inception).
    """
    network = _load_torchscript(weights)
    sets = [_inception_features(network, folder, batch) for folder in (images, reference)]
    return frechet_distance(*sets)


def clip_score(images: Path, prompts: Path, weights: Path, *, batch: int = 32) -> float:
    """Mean of `clip_scores`."""
    return float(clip_scores(images, prompts, weights, batch=batch).mean())


def clip_scores(
    images: Path, prompts: Path, weights: Path, *, batch: int = 32
) -> NDArray[np.float32]:
    """100 max(cos(image, prompt), 0) of each image, float32 [n], in 0..100.

    Hessel et al., arXiv 2104.08718, with the weight 100 that text-to-image papers use instead of
    the original 2.5.  Prompts longer than the model's context are cut.

    Args:
        images: folder of PNG, JPEG or WebP files, in the order of their names as text, so number
            them with leading zeros.
        prompts: UTF-8 text, one prompt a line, line i for image i.
        weights: folder with a CLIP model and its processor as `save_pretrained` writes them.
        batch: images at a time.

    Raises:
        ValueError: the extra is not installed, a folder or file is missing or unusable, or there
            are not as many prompts as images.
    """
    paths, lines = _image_paths(images), _read_prompts(prompts)
    if len(lines) != len(paths):
        raise ValueError(f"prompts: {len(lines)} lines in {prompts} for {len(paths)} images")
    model, processor = _load_clip(weights)
    scores = []
    for start in range(0, len(paths), _positive("batch", batch)):
        inputs = processor(
            text=lines[start : start + batch],
            images=[_open_rgb(path) for path in paths[start : start + batch]],
            return_tensors="pt",
            padding=True,
            truncation=True,
            max_length=model.config.text_config.max_position_embeddings,
        )
        with torch.inference_mode():
            output = model(**inputs)
        cosine = torch.cosine_similarity(output.image_embeds, output.text_embeds)
        scores.append(100 * cosine.clamp(min=0))
    return torch.cat(scores).float().numpy()


def _inception_features(network: Any, folder: Path, batch: int) -> NDArray[np.float64]:
    names = [argument.name for argument in network.forward.schema.arguments]
    options = {"return_features": True} if "return_features" in names else {}
    rows = []
    with torch.inference_mode():
        for stack in _same_size_batches(_image_paths(folder), _positive("batch", batch)):
            values = network(stack, **options)
            if not isinstance(values, Tensor) or values.ndim != 2 or len(values) != len(stack):
                found = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
                raise ValueError(
                    f"weights: the network gives {found} for {len(stack)} images, not [n, d]"
                )
            rows.append(values.double().numpy())
    return np.concatenate(rows)


def _same_size_batches(paths: list[Path], batch: int) -> Iterator[Tensor]:
    """uint8 [up to batch, 3, h, w]; a change of size ends a batch."""
    waiting: list[Tensor] = []
    for path in paths:
        pixels = torch.from_numpy(np.array(_open_rgb(path))).permute(2, 0, 1)
        if waiting and (len(waiting) == batch or waiting[0].shape != pixels.shape):
            yield torch.stack(waiting)
            waiting = []
        waiting.append(pixels)
    yield torch.stack(waiting)


def _image_paths(folder: Path) -> list[Path]:
    if not Path(folder).is_dir():
        raise ValueError(f"images: {folder} is no folder")
    paths = sorted(p for p in Path(folder).iterdir() if p.suffix.lower() in SUFFIXES)
    if not paths:
        raise ValueError(f"images: {folder} has no file that ends in one of {', '.join(SUFFIXES)}")
    return paths


def _open_rgb(path: Path) -> Image.Image:
    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except (UnidentifiedImageError, OSError) as error:
        raise ValueError(f"images: {path} cannot be read ({error})") from None


def _read_prompts(path: Path) -> list[str]:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"prompts: {path} cannot be read ({error})") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            raise ValueError(f"prompts: line {number} of {path} is empty")
    return lines


def _load_torchscript(path: Path) -> Any:
    if not Path(path).is_file():
        raise ValueError(
            f"weights: there is no file {path}; FID needs a local TorchScript Inception network, "
            "for instance the inception-2015-12-05.pt of StyleGAN3; nothing is downloaded"
        )
    try:
        with warnings.catch_warnings():
            # Deprecated, but the form in which these weights are distributed.
            warnings.simplefilter("ignore", DeprecationWarning)
            return torch.jit.load(str(path), map_location="cpu").eval()
    except RuntimeError as error:
        cause = str(error).splitlines()[0]
        raise ValueError(
            f"weights: {path} is no TorchScript file ({cause}); weights alone, as .pth or "
            ".safetensors, do not hold the network"
        ) from None


def _load_clip(folder: Path) -> tuple[Any, Any]:
    if not Path(folder).is_dir():
        raise ValueError(
            f"weights: {folder} is no folder; CLIP score needs a local CLIP model as "
            "`save_pretrained` writes it; nothing is downloaded"
        )
    try:
        from transformers import CLIPModel, CLIPProcessor
    except ImportError as error:
        raise ValueError(
            "clip_scores needs the package transformers: pip install "
            f"'disc-accelerator[reference-metrics]' ({error})"
        ) from None
    try:
        model, info = CLIPModel.from_pretrained(
            folder, local_files_only=True, output_loading_info=True
        )
        processor = CLIPProcessor.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, TypeError, RuntimeError, SafetensorError) as error:
        cause = str(error).splitlines()[0]
        raise ValueError(f"weights: {folder} holds no usable CLIP model ({cause})") from None
    if info["missing_keys"]:  # transformers fills them with random numbers and goes on
        raise ValueError(
            f"weights: {folder} lacks {len(info['missing_keys'])} of the model's tensors, for "
            f"instance {min(info['missing_keys'])}"
        )
    return model.eval().requires_grad_(False), processor


def _positive(name: str, value: int) -> int:
    if value < 1:
        raise ValueError(f"{name}: {value} is below 1")
    return value
