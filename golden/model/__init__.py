"""The float diffusion transformer and its checkpoints."""

from golden.model.checkpoint import CheckpointError, load_checkpoint, save_checkpoint
from golden.model.dit import DiT, DiTConfig

__all__ = ["CheckpointError", "DiT", "DiTConfig", "load_checkpoint", "save_checkpoint"]
