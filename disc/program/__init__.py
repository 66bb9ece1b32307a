"""Commands that hardware, golden executor and cycle model share."""

from disc.program.fuse import FuseCommand, MaskMode

__all__ = ["FuseCommand", "MaskMode"]
