"""Words that go into the engine, and what it counts."""

from __future__ import annotations

from amaranth.hdl import signed
from amaranth.lib import data

from disc.config import CoreConfig

__all__ = ["EngineCounters", "QueryWord"]


class QueryWord(data.StructLayout):
    """A word of the row buffer.

    Word n of row slot s has the address `row_base + s * row_stride + n` of the command that reads
    it; with the command's defaults that is `s * config.max_beats + n`.
    """

    def __init__(self, config: CoreConfig):
        super().__init__(
            {
                "address": range(max(2, config.query_words)),
                "data": data.ArrayLayout(signed(config.number.operand_bits), config.array.lanes),
            }
        )


class EngineCounters(data.StructLayout):
    """Counts since the command was accepted; they hold their values until the next one.

    `cycles = dot + axpy + no_room + no_row`.
    """

    def __init__(self):
        super().__init__(
            {
                "cycles": 32,  # from acceptance to the last result taken
                "dot": 32,  # cycles in which the array worked on dot
                "axpy": 32,  # cycles in which the array worked on axpy
                "kept": 32,  # columns of dot, summed over rows
                "rows": 32,
                "imbalance": 32,  # places in steps of dot in which a bank had no column left
                "no_room": 32,  # cycles in which a row's next word waited for room in a queue
                "no_row": 32,  # cycles in which the array had no row to work on
            }
        )
