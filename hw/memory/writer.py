"""Writes rows of bytes to DRAM."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from disc.config import BusConfig
from disc.program.fields import ADDRESS_BITS
from hw.memory.bus import WritePort
from hw.memory.packer import shifted_in
from hw.memory.reader import LENGTH_BITS, RowRequest

__all__ = ["RowWriter"]

_OUTSTANDING_BITS = 8


class RowWriter(wiring.Component):
    """Rows in words to any byte address, with byte enables.

    What stands behind a row's end in its last word is not written.

    Throughput: a word is taken in every cycle in which at most one complete bus word waits.  So a
    row of W words that touches G bus words takes max(G, W) cycles, without a gap between rows, if
    `size` divides the bus word or is no smaller; else a few cycles are lost where rows with more
    words and rows with more bus words alternate.  Latency: a bus word is offered in the cycle after
    the word that completes it was taken.

    Parameters
    ----------
    bus : BusConfig
    size : int or sequence of int
        Bytes of a word, or of each of several kinds of words.

    Members
    -------
    size : In
        Index into the sizes, if there are several; quasi-static, it changes only between rows.
    rows : In, stream of `RowRequest`
        Taken with the row's last word.
    i : In, stream of [size] bytes, of the largest size
        What stands behind the chosen size does not matter.
    write : Out, `WritePort`
    idle : Out
        Every word taken so far has been written, and memory has said so.

    Raises
    ------
    ValueError
        `size` is less than 1.
    """

    def __init__(self, bus: BusConfig, size: int | Sequence[int]):
        self.bus, self.sizes = bus, (size,) if isinstance(size, int) else tuple(size)
        if not self.sizes or min(self.sizes) < 1:
            raise ValueError(f"size: must be at least 1, got {size}")
        several = {"size": In(range(len(self.sizes)))} if len(self.sizes) > 1 else {}
        super().__init__(
            {
                **several,
                "rows": In(stream.Signature(RowRequest())),
                "i": In(stream.Signature(data.ArrayLayout(8, max(self.sizes)))),
                "write": Out(WritePort(bus)),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        low, most, widest = self.bus.offset_bits, self.bus.word_bytes, max(self.sizes)
        size = Signal(range(widest + 1))
        if len(self.sizes) == 1:
            m.d.comb += size.eq(widest)
        else:
            with m.Switch(self.size):
                for n, one in enumerate(self.sizes):
                    with m.Case(n):
                        m.d.comb += size.eq(one)
        request, row = self.write.request, self.rows.payload
        unit = 9  # a byte and its enable

        # A word is taken while at most one complete bus word waits.
        count_words = -(-(2 * most - 1 + widest) // most)
        room = most * count_words
        held = Signal(unit * room)
        count = Signal(range(room + 1))  # a row's end rounds it up to whole bus words
        last = Signal(count_words)

        # Bus word of each row that is held; the first of them is counted up as words leave.
        m.submodules.places = places = SyncFIFO(width=ADDRESS_BITS - low, depth=count_words + 1)
        further = Signal(ADDRESS_BITS - low)
        begun = Signal()
        address = Mux(begun, further, places.r_data)

        outstanding = Signal(_OUTSTANDING_BITS)
        emit, accept = Signal(), Signal()
        base, rest = Signal(count.shape()), Signal(unit * room)
        rest_last = Signal.like(last)
        m.d.comb += [
            request.valid.eq((count >= most) & ~outstanding.all()),
            request.payload.address.eq(address << low),
            emit.eq(request.valid & request.ready),
            base.eq(Mux(emit, count - most, count)),
            rest.eq(Mux(emit, held.shift_right(unit * most), held)),
            rest_last.eq(Mux(emit, last >> 1, last)),
            places.r_en.eq(emit & ~begun),
        ]
        for i in range(most):
            m.d.comb += [
                request.payload.data.word_select(i, 8).eq(held[unit * i : unit * i + 8]),
                request.payload.enable[i].eq(held[unit * i + 8]),
            ]
        with m.If(emit):
            m.d.sync += [begun.eq(~last[0]), further.eq(address + 1)]
        m.d.sync += outstanding.eq(outstanding + emit - self.write.done)

        # The next word: a row's first begins at the row's place in its bus word.
        inside = Signal()
        later, left = Signal(LENGTH_BITS), Signal(LENGTH_BITS)
        ends = Signal()
        position = Signal(range(2 * most))
        m.d.comb += [
            left.eq(Mux(inside, later, row.length)),
            ends.eq(left <= size),
            position.eq(base + Mux(inside, 0, row.address[:low])),
            accept.eq(self.i.valid & self.rows.valid & (base <= most)),
            self.i.ready.eq(self.rows.valid & (base <= most)),
            self.rows.ready.eq(self.i.valid & (base <= most) & ends),
            places.w_en.eq(accept & ~inside),
            places.w_data.eq(row.address >> low),
            self.idle.eq((count == 0) & (outstanding == 0) & ~inside),
        ]
        with m.If(accept):
            m.d.sync += [inside.eq(~ends), later.eq(left - size)]

        enabled = Signal(widest)
        m.d.comb += enabled.eq(Cat((left > i) & (size > i) for i in range(widest)))
        word = Signal(unit * widest)
        m.d.comb += word.eq(
            Cat(Cat(Mux(enabled[i], self.i.payload[i], 0), enabled[i]) for i in range(widest))
        )
        placed = shifted_in(m, word, position, unit, unit * room)
        filled, rounded = Signal(count.shape()), Signal(count.shape())
        ending = Signal.like(last)
        m.d.comb += filled.eq(position + Mux(ends, left, size))
        for n in range(count_words):
            with m.If(filled > n * most):
                m.d.comb += [rounded.eq((n + 1) * most), ending.eq(1 << n)]
        m.d.sync += [count.eq(base), held.eq(rest), last.eq(rest_last)]
        with m.If(accept):
            m.d.sync += [
                count.eq(Mux(ends, rounded, filled)),
                held.eq(rest | placed),
                last.eq(rest_last | Mux(ends, ending, 0)),
            ]
        return m
