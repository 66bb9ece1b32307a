"""Words from DRAM as rows of numbers, and their headers."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO, SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.program import sizes
from hw.memory.packer import ByteWord
from hw.memory.reader import RowRequest
from hw.vector.merge import TileRow

__all__ = ["HeadedRows", "StateWords", "StreamQueue", "header_words", "numbers"]

_SHORT = 16
"""Words of a queue that is read without a register."""


def numbers(raw: Value, count: int, size: int, bits: int) -> list[Value]:
    """Return `count` signed numbers of `bits` bits, each in `size` bytes."""
    return [raw[8 * size * i : 8 * size * i + bits].as_signed() for i in range(count)]


def header_words(size: int) -> int:
    """Words of `size` bytes that the header of a row's state takes."""
    return -(-sizes.STATE_HEADER_BYTES // size)


class HeadedRows(wiring.Component):
    """Cuts the state of a row into header and sums, so that both begin with a word of their own.

    Adds no cycle.

    Members
    -------
    headed : In
        Quasi-static; if low, rows pass as they are.
    i, o : In, Out, streams of `RowRequest`
    """

    def __init__(self):
        rows = stream.Signature(RowRequest())
        super().__init__({"headed": In(1), "i": In(rows), "o": Out(rows)})

    def elaborate(self, platform):
        m = Module()
        sums = Signal()
        first = self.headed & ~sums
        here, size = self.i.payload, sizes.STATE_HEADER_BYTES
        m.d.comb += [
            self.o.valid.eq(self.i.valid),
            self.i.ready.eq(self.o.ready & ~first),
            self.o.payload.address.eq(here.address + Mux(sums, size, 0)),
            self.o.payload.length.eq(Mux(first, size, here.length - Mux(sums, size, 0))),
        ]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += sums.eq(first)
        return m


class StreamQueue(wiring.Component):
    """A queue of `depth` words of `shape`; latency 1 cycle, 2 if it is a long one."""

    def __init__(self, shape, depth: int):
        self.shape, self.depth = shape, depth
        words = stream.Signature(shape)
        super().__init__({"i": In(words), "o": Out(words)})

    def elaborate(self, platform):
        m = Module()
        width = data.ArrayLayout(self.shape, 1).size
        kind = SyncFIFO if self.depth <= _SHORT else SyncFIFOBuffered
        m.submodules.queue = queue = kind(width=width, depth=self.depth)
        m.d.comb += [
            queue.w_data.eq(self.i.payload),
            queue.w_en.eq(self.i.valid),
            self.i.ready.eq(queue.w_rdy),
            Value.cast(self.o.payload).eq(queue.r_data),
            self.o.valid.eq(queue.r_rdy),
            queue.r_en.eq(self.o.ready),
        ]
        return m


class StateWords(wiring.Component):
    """Accumulators of rows, with the rows' headers ahead of them.

    Words wait in a queue of `DEPTH`, so the header of the next row comes while those of the row
    before are still there.  Throughput a word a cycle, those of the header included.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    headed : In
        Quasi-static: rows alternate, header and sums; else all are sums.
    i : In, stream of `ByteWord`
        Of `vector.lanes` accumulators.
    row : Out, stream of `TileRow`
    words : Out, stream of [lanes] signed `accumulator_bits`
    """

    DEPTH = 8

    def __init__(self, config: CoreConfig):
        self.config, lanes = config, config.vector.lanes
        self._size = lanes * sizes.accumulator_bytes(config)
        acc = signed(config.number.accumulator_bits)
        super().__init__(
            {
                "headed": In(1),
                "i": In(stream.Signature(ByteWord(self._size))),
                "row": Out(stream.Signature(TileRow(config))),
                "words": Out(stream.Signature(data.ArrayLayout(acc, lanes))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, lanes = self.config, self.config.vector.lanes
        words_shape = self.words.payload.shape()
        m.submodules.rows = rows = StreamQueue(TileRow(config), self.DEPTH)
        m.submodules.sums = sums = StreamQueue(words_shape, self.DEPTH)
        wiring.connect(m, rows.o, wiring.flipped(self.row))
        wiring.connect(m, sums.o, wiring.flipped(self.words))

        raw, last = self.i.payload.data.as_value(), self.i.payload.last
        in_sums = Signal()
        header = Signal()
        m.d.comb += header.eq(self.headed & ~in_sums)
        with m.If(self.i.valid & self.i.ready & last):
            m.d.sync += in_sums.eq(header)
        earlier = [
            Signal(8 * self._size, name=f"header_{n}") for n in range(header_words(self._size) - 1)
        ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [a.eq(b) for a, b in zip(earlier, [*earlier[1:], raw], strict=False)]
        whole = Cat(*earlier, raw)
        m.d.comb += [
            rows.i.valid.eq(self.i.valid & header & last),
            rows.i.payload.maximum.eq(whole[:32]),
            rows.i.payload.total.eq(whole[32:64]),
            sums.i.valid.eq(self.i.valid & ~header),
            self.i.ready.eq(Mux(header, rows.i.ready | ~last, sums.i.ready)),
        ]
        values = numbers(
            raw, lanes, sizes.accumulator_bytes(config), config.number.accumulator_bits
        )
        m.d.comb += [sums.i.payload[n].eq(value) for n, value in enumerate(values)]
        return m
