"""Sums of the engine, without the padding of its words."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.program import FuseCommand
from hw.softmax.sum_stream import SumWord
from hw.units.array.reads import StreamQueue
from hw.vector.merge import TileRow
from hw.vector.words import RowWord

__all__ = ["RowSplitter", "RowSums", "SumTrimmer"]


class RowSums(data.StructLayout):
    """A word of a row: its numbers, those of the row, and where in the row it stands."""

    def __init__(self, config: CoreConfig):
        acc = signed(config.number.accumulator_bits)
        super().__init__(
            {
                "row": TileRow(config),
                "data": data.ArrayLayout(acc, config.vector.lanes),
                "kept": 1,
                "first": 1,
                "last": 1,
            }
        )


class SumTrimmer(wiring.Component):
    """Drops words that hold no element of a row; adds no cycle, but takes one for each of these.

    The engine's rows are whole words of `array.lanes`.

    Members
    -------
    channels : In
        Quasi-static: elements of a row.
    i : In, stream of `SumWord`
    o : Out, stream of `RowSums`
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        self._most = FuseCommand.most_beats(config) * config.array.lanes
        super().__init__(
            {
                "channels": In(range(self._most + 1)),
                "i": In(stream.Signature(SumWord(config))),
                "o": Out(stream.Signature(RowSums(config))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lanes, i, o = self.config.vector.lanes, self.i.payload, self.o.payload
        element, inside = Signal(range(self._most + 1)), Signal()
        m.d.comb += [
            inside.eq(element < self.channels),
            self.o.valid.eq(self.i.valid & inside),
            self.i.ready.eq(self.o.ready | ~inside),
            o.row.maximum.eq(i.maximum),
            o.row.total.eq(i.total),
            o.data.eq(i.data),
            o.kept.eq(i.kept),
            o.first.eq(element == 0),
            o.last.eq(element + lanes >= self.channels),
        ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += element.eq(Mux(i.row_last, 0, element + lanes))
        return m


class RowSplitter(wiring.Component):
    """Rows and their words, each in a queue: rows come as soon as their first word does.

    Parameters
    ----------
    config : CoreConfig
    depth : int
        Words that may wait; as many rows may if they are short, `ROWS` at most.

    Members
    -------
    i : In, stream of `RowSums`
    row : Out, stream of `TileRow`
    words : Out, stream of `RowWord` of signed `accumulator_bits`
    """

    ROWS = 8

    def __init__(self, config: CoreConfig, depth: int):
        self.config, self.depth = config, depth
        self._word = RowWord(signed(config.number.accumulator_bits), config.vector.lanes)
        super().__init__(
            {
                "i": In(stream.Signature(RowSums(config))),
                "row": Out(stream.Signature(TileRow(config))),
                "words": Out(stream.Signature(self._word)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.rows = rows = StreamQueue(TileRow(self.config), min(self.ROWS, self.depth))
        m.submodules.sums = sums = StreamQueue(self._word, self.depth)
        wiring.connect(m, rows.o, wiring.flipped(self.row))
        wiring.connect(m, sums.o, wiring.flipped(self.words))
        i = self.i.payload
        m.d.comb += [
            self.i.ready.eq(sums.i.ready & (rows.i.ready | ~i.first)),
            sums.i.valid.eq(self.i.valid & self.i.ready),
            sums.i.payload.data.eq(i.data),
            sums.i.payload.last.eq(i.last),
            rows.i.valid.eq(self.i.valid & self.i.ready & i.first),
            rows.i.payload.eq(i.row),
        ]
        return m
