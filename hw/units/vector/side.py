"""What the commands of the vector queue read besides rows of the residual stream."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.program import Forecast, Norm, Queue, Record, sizes
from disc.program.fields import TOKEN_BITS
from disc.tables import DISTANCE_BITS, SHIFT_BITS, VECTOR_BITS
from hw.control.layouts import QueueLayout
from hw.memory.bus import ReadPort
from hw.memory.reader import RowReader
from hw.vector.forecast import RatioEntry

__all__ = ["AGES", "SideReader"]

STEP_BITS = 32
_AGE_BITS = 8 * sizes.AGE_BYTES // 2
_SHIFT_BYTES, _STEP_BYTES = 2, 4

AGES = data.StructLayout({"last": signed(_AGE_BITS), "before": signed(_AGE_BITS)})
"""Steps in which a token was computed; less than 0: never."""


class SideReader(wiring.Component):
    """Reads modulation vectors, ratios and ages, in this order, by one `RowReader`.

    Throughput: V elements of a vector, a ratio, or the ages of a token a cycle.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    begin : In
        Read what `command` names, besides the ages of tokens.
    command : In, `QueueLayout`
        Quasi-static.
    tokens : In, stream
        Whose ages are wanted, for `Forecast` and `Record`.
    read : Out, `ReadPort`
    shift, step : Out
        Of the vectors, and of the tokens' ages; there before what follows them.
    multipliers, biases : Out, streams of [lanes] signed `VECTOR_BITS`
        Must be taken at once.
    ratios : Out, stream of `RatioEntry`
        The same.
    ages : Out, stream of `AGES`
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        vector = stream.Signature(data.ArrayLayout(signed(VECTOR_BITS), config.vector.lanes))
        super().__init__(
            {
                "begin": In(1),
                "command": In(QueueLayout(Queue.VECTOR, config)),
                "tokens": In(stream.Signature(TOKEN_BITS)),
                "read": Out(ReadPort(config.bus)),
                "shift": Out(SHIFT_BITS),
                "step": Out(signed(STEP_BITS)),
                "multipliers": Out(vector),
                "biases": Out(vector),
                "ratios": Out(stream.Signature(RatioEntry())),
                "ages": Out(stream.Signature(AGES)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lanes, command = self.config.vector.lanes, self.command
        opcode = command.header.opcode
        widths = (lanes * sizes.VECTOR_BYTES, sizes.AGE_BYTES)  # a ratio is as wide as ages
        m.submodules.reader = reader = RowReader(self.config.bus, widths)
        wiring.connect(m, reader.read, wiring.flipped(self.read))
        m.d.comb += reader.size.eq(opcode != Norm.OPCODE)

        # What is asked for: rows at fixed places, then those of tokens.
        asking, asked = Signal(), Signal(2)
        rows, last = reader.rows, Signal()
        norm, vector = command.norm, Signal(rows.payload.length.shape())
        plans = {
            Norm: (
                (norm.vectors, _SHIFT_BYTES),
                (norm.vectors + sizes.HEADER_BYTES, vector),
                (norm.vectors + sizes.HEADER_BYTES + vector, vector),
            ),
            Forecast: (
                (command.forecast.ages, _STEP_BYTES),
                (command.forecast.ratios, sizes.RATIO_BYTES << DISTANCE_BITS),
            ),
            Record: ((command.record.ages, _STEP_BYTES),),
        }
        address = rows.payload.address
        m.d.comb += vector.eq(norm.width * sizes.VECTOR_BYTES)
        with m.If(asking):
            m.d.comb += rows.valid.eq(1)
            for kind, plan in plans.items():
                with m.If(opcode == kind.OPCODE):
                    m.d.comb += last.eq(asked == len(plan) - 1)
                    for n, (place, length) in enumerate(plan):
                        with m.If(asked == n):
                            m.d.comb += [address.eq(place), rows.payload.length.eq(length)]
        with m.Else():
            ages = Mux(opcode == Record.OPCODE, command.record.ages, command.forecast.ages)
            m.d.comb += [
                rows.valid.eq(self.tokens.valid),
                self.tokens.ready.eq(rows.ready),
                rows.payload.length.eq(sizes.AGE_BYTES),
                address.eq(
                    ages + sizes.HEADER_BYTES + self.tokens.payload * sizes.AGE_BYTES,
                ),
            ]
        with m.If(self.begin):
            m.d.sync += [asking.eq(1), asked.eq(0)]
        with m.Elif(asking & rows.ready):
            m.d.sync += [asked.eq(asked + 1), asking.eq(~last)]

        # What comes: the header, multipliers or ratios, biases or ages.
        part, index = Signal(2), Signal(DISTANCE_BITS)
        o = reader.o
        word, taken = o.payload.data.as_value(), Signal()
        m.d.comb += [o.ready.eq(1), taken.eq(o.valid & o.ready)]
        with m.If(self.begin):
            m.d.sync += [part.eq(0), index.eq(0)]
        with m.Elif(taken):
            m.d.sync += index.eq(index + (part == 1))
            with m.If(o.payload.last & (part != 2)):
                m.d.sync += part.eq(Mux(opcode == Record.OPCODE, 2, part + 1))
        with m.If(taken & (part == 0)):
            m.d.sync += self.step.eq(word[:STEP_BITS])
            with m.If(opcode == Norm.OPCODE):
                m.d.sync += self.shift.eq(word[:SHIFT_BITS])
        for stream_ in (self.multipliers, self.biases):
            for lane in range(lanes):
                m.d.comb += stream_.payload[lane].eq(word.word_select(lane, VECTOR_BITS))
        m.d.comb += [
            self.ratios.payload.index.eq(index),
            self.ratios.payload.value.eq(word),
            self.ages.payload.eq(word),
        ]
        with m.If(opcode == Norm.OPCODE):
            m.d.comb += [
                self.multipliers.valid.eq(o.valid & (part == 1)),
                self.biases.valid.eq(o.valid & (part == 2)),
            ]
        with m.Else():
            m.d.comb += self.ratios.valid.eq(o.valid & (part == 1))
            with m.If(part == 2):
                m.d.comb += [self.ages.valid.eq(o.valid), o.ready.eq(self.ages.ready)]
        return m
