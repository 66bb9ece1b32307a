"""Rows of a command on their way into the engine."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.program.fields import TOKEN_BITS
from hw.command import RowEntry
from hw.softmax.sum_queue import sum_queue_depth
from hw.units.array.reads import StreamQueue
from hw.vector.merge import TileRow
from hw.vector.words import total_bits

__all__ = ["RowFeeder"]


class RowFeeder(wiring.Component):
    """Entries of a list buffer as rows of the engine: entry s names the token of row slot s.

    Throughput a row a cycle; latency 3 cycles from `begin` to the first row.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    begin : In
        High for one cycle, not while rows are left.
    count : In
        Rows, taken with `begin`.
    first_column, columns : In
        Quasi-static: the token that is column 0 of the key tile, and how many follow.
    mark : In
        Quasi-static: each row has a header.
    header : In, stream of `TileRow`
        Maximum and total of the whole row, only with `mark`; some wait here for their rows.
    again : In
        Quasi-static, with `mark`: totals are needed once more when the rows end.
    total : Out, stream
        Those totals.
    entry, en : Out
    token : In
        Of the list, as in `ListReadPort`.
    rows : Out, stream of `RowEntry`
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        most = config.memory.query_rows
        super().__init__(
            {
                "begin": In(1),
                "count": In(range(most + 1)),
                "first_column": In(TOKEN_BITS),
                "columns": In(range(config.memory.columns + 1)),
                "mark": In(1),
                "header": In(stream.Signature(TileRow(config))),
                "again": In(1),
                "total": Out(stream.Signature(total_bits(config))),
                "entry": Out(range(most)),
                "en": Out(1),
                "token": In(TOKEN_BITS),
                "rows": Out(stream.Signature(RowEntry(config))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        count, entry = Signal(self.count.shape()), Signal(self.count.shape())
        slot, looked_up = Signal(self.entry.shape()), Signal()
        valid, advance = Signal(), Signal()
        rows, row = self.rows, self.rows.payload
        m.submodules.headers = headers = StreamQueue(TileRow(self.config), 4)
        wiring.connect(m, wiring.flipped(self.header), headers.i)
        # Rows that are in the engine, or on their way from it to where they end.
        array = self.config.array
        depth = array.rows_in_flight + sum_queue_depth(self.config) + 16
        m.submodules.totals = totals = StreamQueue(total_bits(self.config), depth)
        wiring.connect(m, totals.o, wiring.flipped(self.total))
        header, taken = headers.o, Signal()
        m.d.comb += [
            rows.valid.eq(valid & (~self.mark | header.valid) & (~self.again | totals.i.ready)),
            taken.eq(rows.valid & rows.ready),
            header.ready.eq(taken & self.mark),
            row.maximum.eq(header.payload.maximum),
            row.total.eq(header.payload.total),
            totals.i.payload.eq(header.payload.total),
            totals.i.valid.eq(taken & self.again),
            advance.eq(~valid | taken),
            self.entry.eq(entry),
            self.en.eq(advance),
        ]
        own = Signal(range(-(1 << TOKEN_BITS), 1 << TOKEN_BITS))
        m.d.comb += own.eq(self.token - self.first_column)
        with m.If(advance):
            m.d.sync += [
                entry.eq(entry + (entry != count)),
                looked_up.eq(entry != count),
                slot.eq(entry),
                valid.eq(looked_up),
                row.slot.eq(slot),
                row.token.eq(own),
                row.outside.eq((own < 0) | (own >= self.columns)),
                row.last.eq(slot + 1 == count),
            ]
        with m.If(self.begin):
            m.d.sync += [entry.eq(0), count.eq(self.count)]
        return m
