"""Reads rows of bytes from DRAM."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO, SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from disc.config import BusConfig
from disc.program.fields import ADDRESS_BITS
from hw.memory.bus import ReadPort
from hw.memory.packer import ByteGroup, BytePacker, ByteWord, shifted_out

__all__ = ["LENGTH_BITS", "READ_DEPTH", "RowReader", "RowRequest"]

LENGTH_BITS = 16
"""Bits of the length of a row in bytes."""

READ_DEPTH = 64
"""Bus words for which a reader has room: with bursts of 16, memory may take 45 cycles to answer."""


class RowRequest(data.StructLayout):
    """A row: `length` bytes, at least 1, from byte `address` on."""

    def __init__(self):
        super().__init__({"address": ADDRESS_BITS, "length": LENGTH_BITS})


class RowReader(wiring.Component):
    """Rows from any byte address, as words that begin with the row's first byte.

    Rows are cut into requests that do not cross a multiple of `burst` words.  A request leaves only
    when there is room for its data, so read data never waits; requests of later rows leave while
    earlier rows are on their way.

    Throughput: a row that touches G bus words and makes W words takes max(G, W) cycles, without a
    gap between rows, as long as memory answers within `depth - burst - 3` cycles and words are no
    smaller than the bus word; else a word leaves in every cycle.  Latency: `LATENCY` cycles from
    the row's acceptance to its first word, if memory answers in the next cycle and the word does
    not need a second bus word.

    Parameters
    ----------
    bus : BusConfig
    sizes : sequence of int
        Bytes of a word.
    depth : int
        Bus words that may be on their way or wait, at least `burst`.

    Members
    -------
    size : In
        Index into `sizes`; quasi-static, it changes only while no row is inside.
    rows : In, stream of `RowRequest`
    read : Out, `ReadPort`
    o : Out, stream of `ByteWord` of the largest size

    Raises
    ------
    ValueError
        `depth` is less than a burst, or a size less than 1.
    """

    LATENCY = 6

    def __init__(self, bus: BusConfig, sizes: Sequence[int], depth: int = READ_DEPTH):
        self.bus, self.sizes = bus, tuple(sizes)
        self.depth = depth
        if depth < bus.burst:
            raise ValueError(f"depth: must be at least {bus.burst}, got {depth}")
        if not self.sizes or min(self.sizes) < 1:
            raise ValueError(f"sizes: must be at least 1, got {list(sizes)}")
        super().__init__(
            {
                "size": In(range(max(2, len(self.sizes)))),
                "rows": In(stream.Signature(RowRequest())),
                "read": Out(ReadPort(bus)),
                "o": Out(stream.Signature(ByteWord(max(self.sizes)))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        row = data.StructLayout({"offset": self.bus.offset_bits, "length": LENGTH_BITS})
        m.submodules.asked = asked = SyncFIFO(width=row.size, depth=self.depth)
        m.submodules.words = words = SyncFIFOBuffered(width=self.bus.word_bits, depth=self.depth)
        m.submodules.packer = packer = BytePacker(self.bus.word_bytes, self.sizes)
        m.d.comb += packer.size.eq(self.size)
        wiring.connect(m, packer.o, wiring.flipped(self.o))
        m.d.comb += [
            words.w_data.eq(self.read.data.payload),
            words.w_en.eq(self.read.data.valid),
            self.read.data.ready.eq(1),
        ]
        self._request(m, asked, row, words)
        self._trim(m, asked, row, words, packer.i)
        return m

    def _request(self, m, asked, row, words):
        """Cut rows into requests."""
        low, burst = self.bus.offset_bits, self.bus.burst
        request = self.read.request
        offset = self.rows.payload.address[:low]
        left = Signal(LENGTH_BITS - low + 2)  # bus words of the row that have not been asked for
        word = Signal(ADDRESS_BITS - low)
        within = word[: burst.bit_length() - 1]
        chunk = Signal(range(burst + 1))
        free = Signal(range(self.depth + 1), init=self.depth)
        done, accept = Signal(), Signal()
        m.d.comb += [
            chunk.eq(Mux(left < burst - within, left, burst - within)),
            request.valid.eq((left != 0) & (free >= chunk)),
            request.payload.address.eq(word << low),
            request.payload.words.eq(chunk),
            done.eq(request.valid & request.ready),
            accept.eq(self.rows.valid & self.rows.ready),
            self.rows.ready.eq(asked.w_rdy & ((left == 0) | (done & (left == chunk)))),
            asked.w_en.eq(accept),
            asked.w_data.eq(Cat(offset, self.rows.payload.length)),
        ]
        m.d.sync += free.eq(free - Mux(done, chunk, 0) + (words.r_rdy & words.r_en))
        with m.If(done):
            m.d.sync += [word.eq(word + chunk), left.eq(left - chunk)]
        with m.If(accept):
            m.d.sync += [
                word.eq(self.rows.payload.address >> low),
                left.eq((self.rows.payload.length + offset + (self.bus.word_bytes - 1)) >> low),
            ]

    def _trim(self, m, asked, row, words, group):
        """Cut off what is not of the row."""
        size = self.bus.word_bytes
        here = data.View(row, asked.r_data)
        begun = Signal()
        later = Signal(LENGTH_BITS)
        offset, left = Signal(self.bus.offset_bits), Signal(LENGTH_BITS)
        most, count = Signal(range(size + 1)), Signal(range(size + 1))
        ends, take = Signal(), Signal()
        trimmed = Signal(ByteGroup(size))
        shifted = shifted_out(m, words.r_data, offset, 8)
        m.d.comb += [
            offset.eq(Mux(begun, 0, here.offset)),
            left.eq(Mux(begun, later, here.length)),
            most.eq(size - offset),
            ends.eq(left <= most),
            count.eq(Mux(ends, left, most)),
            trimmed.count.eq(count),
            trimmed.last.eq(ends),
            take.eq(words.r_rdy & (~group.valid | group.ready)),
            words.r_en.eq(take),
            asked.r_en.eq(take & ends),
        ]
        for i in range(size):
            m.d.comb += trimmed.data[i].eq(Mux(count > i, shifted.word_select(i, 8), 0))
        with m.If(take):
            m.d.sync += [begun.eq(~ends), later.eq(left - count)]
        with m.If(~group.valid | group.ready):
            m.d.sync += [group.valid.eq(words.r_rdy), group.payload.eq(trimmed)]
