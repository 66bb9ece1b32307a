"""The list of query rows that the token selector leaves for the engine."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from hw.command import RowEntry
from hw.sram import Sram

__all__ = ["RowList", "RowWindow"]


class RowWindow(data.StructLayout):
    """A part of the list: `count` entries, at least 1, from position `first` on."""

    def __init__(self, config: CoreConfig):
        super().__init__(
            {
                "first": config.column_bits,
                "count": range(config.memory.query_rows + 1),
            }
        )


class RowList(wiring.Component):
    """Keeps token indices in order and replays windows of them as rows of a command.

    Entry `first + n` of the list becomes the row with slot n: the query buffer holds the queries
    of the window's tokens, in their order.  The same window serves every head of every layer.

    Replays one row every second cycle, from 2 cycles after the window was accepted; the engine
    takes longer for any row.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    clear : In
        Start a new list.
    token_valid, token : In
        Append; `memory.columns` entries at most.
    count : Out
        Entries in the list.
    window : In, stream of `RowWindow`
    rows : Out, stream of `RowEntry`
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        super().__init__(
            {
                "clear": In(1),
                "token_valid": In(1),
                "token": In(config.column_bits),
                "count": Out(range(config.memory.columns + 1)),
                "window": In(stream.Signature(RowWindow(config))),
                "rows": Out(stream.Signature(RowEntry(config))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.tokens = tokens = Sram(self.config.column_bits, self.config.memory.columns)
        m.d.comb += [
            tokens.write_address.eq(self.count),
            tokens.write_data.eq(self.token),
            tokens.write_en.eq(self.token_valid),
        ]
        with m.If(self.clear):
            m.d.sync += self.count.eq(0)
        with m.Elif(self.token_valid):
            m.d.sync += self.count.eq(self.count + 1)

        position = Signal(self.config.column_bits)
        sent = Signal(range(self.config.memory.query_rows + 1))
        window = Signal.like(self.window.payload.count)
        m.d.comb += [
            tokens.read_address.eq(position),
            self.rows.payload.slot.eq(sent),
            self.rows.payload.token.eq(tokens.read_data),
            self.rows.payload.last.eq(sent + 1 == window),
        ]
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.window.ready.eq(1)
                with m.If(self.window.valid):
                    m.d.sync += [
                        position.eq(self.window.payload.first),
                        window.eq(self.window.payload.count),
                        sent.eq(0),
                    ]
                    m.next = "READ"
            with m.State("READ"):
                m.d.comb += tokens.read_en.eq(1)
                m.next = "OFFER"
            with m.State("OFFER"):
                m.d.comb += self.rows.valid.eq(1)
                with m.If(self.rows.ready):
                    m.d.sync += [position.eq(position + 1), sent.eq(sent + 1)]
                    m.next = "READ"
                    with m.If(self.rows.payload.last):
                        m.next = "IDLE"
        return m
