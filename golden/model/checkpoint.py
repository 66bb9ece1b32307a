"""Checkpoints: fp16 safetensors whose metadata say how the model was made."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from golden.model.dit import DiT, DiTConfig

CHECKPOINTS = Path(__file__).parents[1] / "checkpoints"
SHIPPED = {
    "digits-256": CHECKPOINTS / "digits-256.safetensors",
    "digits-1024": CHECKPOINTS / "digits-1024.safetensors",
}
FORMAT = "disc-dit-1"


class CheckpointError(ValueError):
    """A checkpoint is missing, damaged or not one of this project.  The message says what to do."""


def resolve_checkpoint(checkpoint: str | Path) -> Path:
    """Path of a shipped checkpoint by name ("digits-256", "digits-1024"), or the path itself.

    Raises:
        CheckpointError: there is no such file.
    """
    path = SHIPPED.get(str(checkpoint), Path(checkpoint))
    if not path.is_file():
        raise CheckpointError(
            f"checkpoint: {str(checkpoint)!r} is neither a file nor one of {sorted(SHIPPED)}; "
            "restore shipped ones from the repository or train one: python -m golden.train --help"
        )
    return path


def save_checkpoint(path: Path, model: DiT, metadata: dict[str, str]) -> None:
    """Write the parameters as float16, with the model's configuration added to `metadata`."""
    write_parameters(path, model, asdict(model.config), metadata, FORMAT)


def write_parameters(
    path: Path, module: nn.Module, config: dict[str, Any], metadata: dict[str, str], kind: str
) -> None:
    """Write any module's parameters as float16; `config` and `kind` go into the metadata."""
    tensors = {name: p.detach().half().contiguous() for name, p in module.named_parameters()}
    save_file(tensors, path, metadata={**metadata, "format": kind, "config": json.dumps(config)})


def read_metadata(checkpoint: str | Path) -> dict[str, str]:
    """Metadata of a checkpoint: "config" (JSON), "command", "images_seen", "seed" and others.

    Raises:
        CheckpointError: no file, damaged, or not of this project.
    """
    return read_parameters(resolve_checkpoint(checkpoint))[0]


def load_checkpoint(checkpoint: str | Path, *, size_px: int | None = None) -> DiT:
    """Load a model, float32, in evaluation mode, gradients off.

    Args:
        checkpoint: name of a shipped one or a path.
        size_px: another resolution than the one it was trained for, to go on training there.

    Raises:
        CheckpointError: no file, damaged, or not of this project.
    """
    path = resolve_checkpoint(checkpoint)
    metadata, tensors = read_parameters(path)
    try:
        config = json.loads(metadata["config"])
        model = DiT(DiTConfig(**(config | ({"size_px": size_px} if size_px else {}))))
        model.load_state_dict({name: t.float() for name, t in tensors.items()})
    except (ValueError, TypeError, RuntimeError) as error:
        raise CheckpointError(
            f"checkpoint {path} does not fit the model it names ({error}); it may be of another "
            "version of the project: restore it from the repository or train it again"
        ) from None
    return model.eval().requires_grad_(False)


def read_parameters(
    path: Path, kind: str = FORMAT, trainer: str = "golden.train"
) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    """Metadata and tensors of a file that `write_parameters` wrote.

    Args:
        path: an existing file.
        kind: the "format" that its metadata must name.
        trainer: module that writes such files, for messages.

    Raises:
        CheckpointError: damaged, or of another format.
    """
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"checkpoint {path} is damaged or no safetensors file ({error}); restore it from the "
            f"repository or train it again: python -m {trainer} --help"
        ) from None
    if metadata.get("format") != kind or "config" not in metadata:
        raise CheckpointError(
            f"checkpoint {path} was not written by {trainer} (format "
            f"{metadata.get('format')!r}, expected {kind!r}); pass a shipped one or a file that "
            f"{trainer} wrote"
        )
    return metadata, tensors
