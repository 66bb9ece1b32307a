"""Commands that several parts of lowering emit."""

from __future__ import annotations

from collections.abc import Callable

from disc.lower.shape import RowList
from disc.lower.tiles import Places, Tile
from disc.program import LoadColumns, LoadConstants, LoadList, LoadRows, Norm, sizes
from disc.program.access import LISTS
from disc.program.build import Builder
from disc.program.program import Buffer

FillRows = Callable[[int, int, int], None]
"""Emits what brings rows into the row buffer, given (list buffer, rows, base)."""


class Emitter:
    """Emits to a builder, and keeps row lists in the list buffers.

    Parameters
    ----------
    builder
        Takes the commands; it knows the buffers.
    """

    def __init__(self, builder: Builder) -> None:
        self.builder, self.config, self.emit = builder, builder.config, builder.emit
        self._lists = Places(range(LISTS))

    def list_buffer(self, rows: RowList, tile: Tile) -> int:
        """List buffer that holds a window of a list, after loading it if none does."""

        def fill(buffer: int) -> None:
            self.emit(
                LoadList(
                    list=buffer,
                    dram=rows.address,
                    first=tile.first,
                    rows=tile.count,
                    tokens=rows.tokens,
                )
            )

        return self._lists.get((rows.address, tile), fill)

    def columns(self, dram: int, stride: int, columns: int, width: int, base: int) -> None:
        """Load columns into the banks."""
        self.emit(LoadColumns(dram=dram, stride=stride, columns=columns, width=width, base=base))

    def constants(self, constants: Buffer, first: int, columns: int, place: int) -> None:
        """Load the constants of columns from `first` on, into one of two places."""
        dram = constants.address + first * sizes.CONSTANT_BYTES
        base = place * self.config.columns_per_bank
        self.emit(LoadConstants(dram=dram, columns=columns, base=base))

    def rows_from(self, dram: int, stride: int, width: int) -> FillRows:
        """Rows of operands that lie in DRAM."""

        def fill(buffer: int, rows: int, base: int) -> None:
            self.emit(
                LoadRows(list=buffer, rows=rows, dram=dram, stride=stride, width=width, base=base)
            )

        return fill

    def rows_normalised(self, x: Buffer, width: int, vectors: Buffer, epsilon: int) -> FillRows:
        """Rows of the residual stream, normalised and modulated."""

        def fill(buffer: int, rows: int, base: int) -> None:
            self.emit(
                Norm(
                    list=buffer,
                    rows=rows,
                    dram=x.address,
                    stride=width * sizes.RESIDUAL_BYTES,
                    width=width,
                    vectors=vectors.address,
                    epsilon=epsilon,
                    base=base,
                )
            )

        return fill
