"""Hardware layouts of what `disc.program` defines."""

from __future__ import annotations

from amaranth.hdl import signed
from amaranth.lib import data

from disc.config import CoreConfig
from disc.program import FuseCommand
from hw.softmax.score import maximum_bits
from hw.vector.words import total_bits

__all__ = ["FuseLayout", "RowEntry"]


class FuseLayout(data.StructLayout):
    """`FuseCommand` as it is packed into a command word, field by field from bit 0."""

    def __init__(self, config: CoreConfig):
        super().__init__(FuseCommand.widths(config))


class RowEntry(data.StructLayout):
    """One query row of a command: where its query lies and which token it is.

    `token` is the index of the row's own column among the command's columns; with `outside` it has
    none there.  `maximum` and `total` are those of the whole row, and matter only with `mark`.
    """

    def __init__(self, config: CoreConfig):
        super().__init__(
            {
                "slot": range(config.memory.query_rows),
                "token": config.column_bits,
                "outside": 1,
                "maximum": signed(maximum_bits(config)),
                "total": total_bits(config),
                "last": 1,  # of the command
            }
        )
