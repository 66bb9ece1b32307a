"""Hardware layouts of what `disc.program` defines."""

from __future__ import annotations

from amaranth.lib import data

from disc.config import CoreConfig
from disc.program import FuseCommand

__all__ = ["FuseLayout", "RowEntry"]


class FuseLayout(data.StructLayout):
    """`FuseCommand` as it is packed into a command word, field by field from bit 0."""

    def __init__(self, config: CoreConfig):
        super().__init__(FuseCommand.widths(config))


class RowEntry(data.StructLayout):
    """One query row of a command: where its query lies and which token it is."""

    def __init__(self, config: CoreConfig):
        super().__init__(
            {
                "slot": range(config.memory.query_rows),
                "token": config.column_bits,
                "last": 1,  # of the command
            }
        )
