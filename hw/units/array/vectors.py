"""Vectors of a command, read once, ahead of its first row: gate, and bias of fc2."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.program import sizes
from disc.program.fields import ADDRESS_BITS, MAX_CHANNELS
from disc.tables import SHIFT_BITS
from hw.memory.address import RowRun
from hw.memory.packer import ByteWord
from hw.vector.gate import BiasWord, GateWord

__all__ = ["VectorLoader"]


class VectorLoader(wiring.Component):
    """Reads shift, multipliers and bias, each as one row of bytes, into the memory of the gate.

    Throughput: a word of `vector.lanes` multipliers a cycle, and of bias in
    `accumulator_bytes / 2` cycles.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    begin : In
        High for one cycle, not while a vector is on its way.
    gate, offset, channels : In
        Quasi-static: address of the vector's header, elements to leave out, elements to read.
    add_bias, bias : In
        Quasi-static: whether there is a bias, and its address.
    runs : Out, stream of `RowRun`
        Of one row each.
    i : In, stream of `ByteWord`
        Of `2 * vector.lanes` bytes.
    shift : Out
    multipliers, biases : Out, streams of `GateWord`, `BiasWord`
        Always taken.
    there, taken : Out, In
        What belongs to the next word is in place, and the word is taken: words of the first row
        need not wait for the last of the vectors.
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        self._size = sizes.VECTOR_BYTES * config.vector.lanes
        super().__init__(
            {
                "begin": In(1),
                "gate": In(ADDRESS_BITS),
                "offset": In(range(MAX_CHANNELS * 4)),
                "channels": In(range(MAX_CHANNELS + 1)),
                "add_bias": In(1),
                "bias": In(ADDRESS_BITS),
                "runs": Out(stream.Signature(RowRun(config.memory.query_rows))),
                "i": In(stream.Signature(ByteWord(self._size))),
                "shift": Out(SHIFT_BITS),
                "multipliers": Out(stream.Signature(GateWord(config))),
                "biases": Out(stream.Signature(BiasWord(config))),
                "there": Out(1),
                "taken": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, lanes = self.config, self.config.vector.lanes
        acc_bytes, acc_bits = sizes.accumulator_bytes(config), config.number.accumulator_bits
        count, loaded = Signal(2), Signal()
        asked, came = Signal(2), Signal(2)
        word = Signal(self.multipliers.payload.address.shape())
        used = Signal.like(word)
        row = self.runs.payload
        m.d.comb += [
            self.runs.valid.eq(asked != count),
            row.rows.eq(1),
            loaded.eq(came == count),
            self.there.eq(loaded | ((came + 1 == count) & (used < word))),
        ]
        with m.Switch(asked):
            with m.Case(0):
                m.d.comb += [row.base.eq(self.gate), row.length.eq(sizes.VECTOR_BYTES)]
            with m.Case(1):
                m.d.comb += [
                    row.base.eq(self.gate + sizes.HEADER_BYTES + self.offset * sizes.VECTOR_BYTES),
                    row.length.eq(self.channels * sizes.VECTOR_BYTES),
                ]
            with m.Default():
                m.d.comb += [row.base.eq(self.bias), row.length.eq(self.channels * acc_bytes)]

        m.d.sync += used.eq(used + (self.taken & ~loaded))
        raw, last = self.i.payload.data.as_value(), self.i.payload.last
        pieces = acc_bytes // sizes.VECTOR_BYTES
        piece = Signal(range(pieces))
        complete = Signal()
        held = [Signal(8 * self._size, name=f"piece_{n}") for n in range(pieces)]
        whole = Cat(Mux(piece == n, raw, part) for n, part in enumerate(held))
        m.d.comb += [
            self.i.ready.eq(1),
            complete.eq((came != 2) | last | (piece == pieces - 1)),
            self.multipliers.valid.eq(self.i.valid & (came == 1)),
            self.multipliers.payload.address.eq(word),
            self.biases.valid.eq(self.i.valid & (came == 2) & complete),
            self.biases.payload.address.eq(word),
        ]
        for n in range(lanes):
            own = raw.word_select(n, 8 * sizes.VECTOR_BYTES)
            bias = whole[8 * acc_bytes * n :][:acc_bits]
            m.d.comb += [
                self.multipliers.payload.data[n].eq(own.as_signed()),
                self.biases.payload.data[n].eq(bias.as_signed()),
            ]
        with m.If(self.i.valid):
            m.d.sync += [
                came.eq(came + last),
                piece.eq(Mux(complete, 0, piece + 1)),
                word.eq(Mux(last, 0, word + (complete & (came != 0)))),
            ]
            with m.Switch(piece):
                for n, part in enumerate(held):
                    with m.Case(n):
                        m.d.sync += part.eq(raw)
            with m.If(came == 0):
                m.d.sync += self.shift.eq(raw)
        with m.If(self.runs.valid & self.runs.ready):
            m.d.sync += asked.eq(asked + 1)
        with m.If(self.begin):
            m.d.sync += [asked.eq(0), came.eq(0), used.eq(0), count.eq(2 + self.add_bias)]
        return m
