"""Rows of the mask memory as words for the writer."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.program import sizes
from hw.masks.controller import MaskLine

__all__ = ["MaskRows"]


class MaskRows(wiring.Component):
    """Reads rows of lines and gives them as words of the bus's size.

    A row starts a word.  Lines that are wider than a word are cut, narrower ones put together; both
    sizes are powers of two.

    Throughput: a word a cycle or a line a cycle, whichever takes longer.  The first line is asked
    for in the cycle after `begin`; a word is offered in the cycle in which its last line comes.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    begin : In
        Read `rows` rows of `words` lines from row slot `slot` on; those before must be complete.
    slot, rows, words : In
        `words` at least 1; it holds until the rows are complete.
    mask_read : Out, stream of line addresses
    mask_word : In, stream of `MaskLine`
    o : Out, stream of [bus bytes] bytes
        Behind a row's end they mean nothing.
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        self._line = MaskLine(config)
        rows = config.memory.query_rows
        super().__init__(
            {
                "begin": In(1),
                "slot": In(range(max(2, rows))),
                "rows": In(range(rows + 1)),
                "words": In(range(config.mask_words_per_row + 1)),
                "mask_read": Out(stream.Signature(self._line["address"].shape)),
                "mask_word": In(stream.Signature(self._line)),
                "o": Out(stream.Signature(data.ArrayLayout(8, config.bus.word_bytes))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        self._ask(m)
        line, word = sizes.mask_line_bytes(self.config), self.config.bus.word_bytes
        if line >= word:
            self._cut(m, line // word)
        else:
            self._collect(m, word // line)
        return m

    def _ask(self, m: Module) -> None:
        per_row = self.config.mask_words_per_row
        start = Signal(range(self.config.mask_lines + per_row))
        line, rows = Signal(range(per_row + 1)), Signal(self.rows.shape())
        last = Signal()
        m.d.comb += [
            last.eq(line + 1 == self.words),
            self.mask_read.valid.eq(rows != 0),
            self.mask_read.payload.eq(start + line),
        ]
        with m.If(self.mask_read.valid & self.mask_read.ready):
            m.d.sync += line.eq(Mux(last, 0, line + 1))
            with m.If(last):
                m.d.sync += [start.eq(start + per_row), rows.eq(rows - 1)]
        with m.If(self.begin):
            m.d.sync += [start.eq(self.slot * per_row), line.eq(0), rows.eq(self.rows)]

    def _cut(self, m: Module, pieces: int) -> None:
        bits = Value.cast(self.mask_word.payload.bits)
        part = Signal(range(max(2, pieces)))
        last = Signal()
        m.d.comb += [
            last.eq(part == pieces - 1),
            self.o.valid.eq(self.mask_word.valid),
            self.o.payload.eq(bits.word_select(part, self.config.bus.word_bits)),
            self.mask_word.ready.eq(self.o.ready & last),
        ]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += part.eq(Mux(last, 0, part + 1))

    def _collect(self, m: Module, lines: int) -> None:
        bits = Value.cast(self.mask_word.payload.bits)
        part, line = Signal(range(lines)), Signal(self.words.shape())
        earlier = Signal(len(bits) * (lines - 1))
        last, complete = Signal(), Signal()
        m.d.comb += [
            last.eq(line + 1 == self.words),
            complete.eq(last | (part == lines - 1)),
            self.o.valid.eq(self.mask_word.valid & complete),
            self.mask_word.ready.eq(self.o.ready | ~complete),
        ]
        parts = [earlier.word_select(n, len(bits)) for n in range(lines - 1)]
        # The line that comes is the word's last.
        m.d.comb += self.o.payload.eq(
            Cat(*(Mux(part == n, bits, held) for n, held in enumerate(parts)), bits)
        )
        with m.If(self.mask_word.valid & self.mask_word.ready):
            m.d.sync += [part.eq(Mux(complete, 0, part + 1)), line.eq(Mux(last, 0, line + 1))]
            for n, held in enumerate(parts):
                with m.If(part == n):
                    m.d.sync += held.eq(bits)
