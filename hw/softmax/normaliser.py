"""Divides a finished row by its sum of numerators and requantises it."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.tables import MULTIPLIER_BITS, RECIPROCAL_BITS, SHIFT_BITS
from hw.adder_tree import delay
from hw.fixed import round_shift, saturate
from hw.masks.generator import total_bits
from hw.softmax.reciprocal import Reciprocal
from hw.softmax.sum_queue import QueuedWord, sum_queue_depth

__all__ = ["Normaliser", "ResultWord"]


class ResultWord(data.StructLayout):
    """L elements of a row's result; `last` marks the last word of the last row of a command."""

    def __init__(self, config: CoreConfig):
        super().__init__(
            {
                "slot": range(config.memory.query_rows),
                "token": config.column_bits,
                "beat": max(1, (config.max_beats - 1).bit_length()),
                "last": 1,
                "data": data.ArrayLayout(signed(config.number.operand_bits), config.array.lanes),
            }
        )


class Normaliser(wiring.Component):
    """`out = saturate(round_shift(acc * m, n + shift))`, m and n from the row's reciprocal.

    With 1/total ~ y / 2**(16 + n): `m = round_shift(y * multiplier, 16)`.

    A row's multiplier and shift are ready 5 cycles after its total and wait in a queue, so words
    are read without a gap: throughput `vector.lanes` elements a cycle, that is `lanes /
    vector.lanes` cycles a word.  A word is offered `lanes / vector.lanes + 2` cycles after it was
    there; later if earlier words are not taken.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    multiplier, shift : In
        Quasi-static.
    total_valid, total : In
        Total of the next row.  Cannot be refused: each row holds room in the `SumQueue` from before
        its total is known until its last word has been taken.
    i : In, stream of `QueuedWord`
    o : Out, stream of `ResultWord`
        In the order of rows, beats ascending.
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        super().__init__(
            {
                "multiplier": In(MULTIPLIER_BITS),
                "shift": In(SHIFT_BITS),
                "total_valid": In(1),
                "total": In(total_bits(config)),
                "i": In(stream.Signature(QueuedWord(config))),
                "o": Out(stream.Signature(ResultWord(config))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        lanes, chunk = config.array.lanes, config.vector.lanes
        chunks = lanes // chunk
        acc_bits = config.number.accumulator_bits

        # The row's own multiplier and shift, then a queue of rows that are ready to be read.
        m.submodules.reciprocal = reciprocal = Reciprocal(total_bits(config))
        m.d.comb += reciprocal.total.eq(self.total)
        scale = data.StructLayout(
            {
                "multiplier": MULTIPLIER_BITS + 1,
                "shift": range(total_bits(config) + (1 << SHIFT_BITS)),
            }
        )
        scaled = Signal(scale)
        m.d.sync += [
            scaled.multiplier.eq(round_shift(reciprocal.y * self.multiplier, RECIPROCAL_BITS)),
            scaled.shift.eq(reciprocal.n + self.shift),
        ]
        m.submodules.queue = queue = SyncFIFO(width=scale.size, depth=sum_queue_depth(config))
        cycles = Reciprocal.LATENCY + 1
        m.d.comb += [
            queue.w_data.eq(scaled),
            queue.w_en.eq(delay(m, self.total_valid, cycles, name="total_valid", reset_less=False)),
        ]
        head = data.View(scale, queue.r_data)

        # Everything behind the queue moves together; it stops while a word waits.
        advance = Signal()
        m.d.comb += advance.eq(~self.o.valid | self.o.ready)
        tag = self.i.payload.tag
        part = Signal(range(max(2, chunks)))
        reading = self.i.valid & queue.r_rdy
        last_part = part == chunks - 1
        m.d.comb += [
            self.i.ready.eq(queue.r_rdy & advance & last_part),
            queue.r_en.eq(reading & advance & last_part & tag.row_last),
        ]
        with m.If(reading & advance):
            m.d.sync += part.eq(Mux(last_part, 0, part + 1))

        # Read -> multiply -> shift and assemble.
        stage = data.StructLayout(
            {
                "valid": 1,
                "part": part.shape(),
                "slot": tag.slot.shape(),
                "token": tag.token.shape(),
                "beat": self.o.payload.beat.shape(),
                "last_part": 1,
                "last": 1,
                "multiplier": scaled.multiplier.shape(),
                "shift": scaled.shift.shape(),
            }
        )
        read_tag, product_tag = Signal(stage), Signal(stage)
        word = self.i.payload.data
        with m.If(advance):
            m.d.sync += [
                read_tag.valid.eq(reading),
                read_tag.part.eq(part),
                read_tag.slot.eq(tag.slot),
                read_tag.token.eq(tag.token),
                read_tag.beat.eq(tag.beat),
                read_tag.last_part.eq(last_part),
                read_tag.last.eq(tag.last),
                read_tag.multiplier.eq(head.multiplier),
                read_tag.shift.eq(head.shift),
                product_tag.eq(read_tag),
            ]
        for i in range(chunk):
            acc = Signal(signed(acc_bits), name=f"acc_{i}", reset_less=True)
            product = Signal(
                signed(acc_bits + MULTIPLIER_BITS + 1), name=f"product_{i}", reset_less=True
            )
            with m.If(advance):
                with m.Switch(part):
                    for p in range(chunks):
                        with m.Case(p):
                            m.d.sync += acc.eq(word[p * chunk + i])
                m.d.sync += product.eq(acc * read_tag.multiplier)
                result = saturate(
                    round_shift(product, product_tag.shift), config.number.operand_bits
                )
                with m.Switch(product_tag.part):
                    for p in range(chunks):
                        with m.Case(p):
                            m.d.sync += self.o.payload.data[p * chunk + i].eq(result)
        with m.If(advance):
            m.d.sync += [
                self.o.valid.eq(product_tag.valid & product_tag.last_part),
                self.o.payload.slot.eq(product_tag.slot),
                self.o.payload.token.eq(product_tag.token),
                self.o.payload.beat.eq(product_tag.beat),
                self.o.payload.last.eq(product_tag.last),
            ]
        return m
