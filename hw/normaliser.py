"""Divides a finished row by its sum of numerators and requantises it."""

from __future__ import annotations

from amaranth.hdl import Array, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.tables import MULTIPLIER_BITS, RECIPROCAL_BITS, SHIFT_BITS
from hw.adder_tree import delay
from hw.fixed import round_shift, saturate
from hw.mask_generator import total_bits
from hw.reciprocal import Reciprocal

__all__ = ["FinishedRow", "Normaliser", "ResultWord"]


class FinishedRow(data.StructLayout):
    """A row whose P*V sums stand in one half of the array's accumulators."""

    def __init__(self, config: CoreConfig):
        super().__init__(
            {
                "half": 1,
                "slot": range(config.memory.query_rows),
                "token": config.column_bits,
                "total": total_bits(config),
                "last": 1,
            }
        )


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

    Rows wait in a queue behind the pipelined reciprocal, so they are read without a gap:
    throughput `vector.lanes` elements a cycle, that is `beats * lanes / vector.lanes` cycles a row.
    The first word is offered `lanes / vector.lanes + 8` cycles after `row_valid`; later if earlier
    words are not taken.  Very short rows, of fewer than 6 cycles, wait for the reciprocal.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    multiplier, shift, beats : In
        Quasi-static.
    row_valid, row : In, `FinishedRow`
        A row to be normalised.  Cannot be refused: each row occupies a half of the accumulators
        until `half_read`, so there are never more than two.
    accumulators : In, [2][max_beats][L]
    half_read : Out, [2]
        Pulses when everything of a half has been read.
    o : Out, stream of `ResultWord`
        In the order of rows, beats ascending.
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        acc = signed(config.number.accumulator_bits)
        super().__init__(
            {
                "multiplier": In(MULTIPLIER_BITS),
                "shift": In(SHIFT_BITS),
                "beats": In(range(config.max_beats + 1)),
                "row_valid": In(1),
                "row": In(FinishedRow(config)),
                "accumulators": In(
                    data.ArrayLayout(
                        data.ArrayLayout(
                            data.ArrayLayout(acc, config.array.lanes), config.max_beats
                        ),
                        2,
                    )
                ),
                "half_read": Out(2),
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
        m.d.comb += reciprocal.total.eq(self.row.total)
        scaled_row = data.StructLayout(
            {
                "row": FinishedRow(config),
                "multiplier": MULTIPLIER_BITS + 1,
                "shift": range(total_bits(config) + (1 << SHIFT_BITS)),
            }
        )
        scaled = Signal(scaled_row)
        cycles = Reciprocal.LATENCY
        m.d.sync += [
            scaled.row.eq(delay(m, Value.cast(self.row), cycles, name="row")),
            scaled.multiplier.eq(round_shift(reciprocal.y * self.multiplier, RECIPROCAL_BITS)),
            scaled.shift.eq(reciprocal.n + self.shift),
        ]
        m.submodules.queue = queue = SyncFIFO(width=scaled_row.size, depth=2)
        m.d.comb += [
            queue.w_data.eq(scaled),
            queue.w_en.eq(delay(m, self.row_valid, cycles + 1, name="row_valid", reset_less=False)),
        ]
        head = data.View(scaled_row, queue.r_data)
        row = head.row

        # Everything behind the queue moves together; it stops while a word waits.
        advance = Signal()
        m.d.comb += advance.eq(~self.o.valid | self.o.ready)
        beat = Signal(range(config.max_beats))
        part = Signal(range(max(2, chunks)))
        reading = queue.r_rdy
        last_part = part == chunks - 1
        last_beat = beat + 1 == self.beats
        with m.If(reading & advance):
            m.d.sync += part.eq(Mux(last_part, 0, part + 1))
            with m.If(last_part):
                m.d.sync += beat.eq(Mux(last_beat, 0, beat + 1))
                with m.If(last_beat):
                    m.d.comb += [queue.r_en.eq(1), self.half_read.eq(1 << row.half)]

        # Read -> multiply -> shift and assemble.
        tag = data.StructLayout(
            {
                "valid": 1,
                "part": part.shape(),
                "slot": row.slot.shape(),
                "token": row.token.shape(),
                "beat": self.o.payload.beat.shape(),
                "last_part": 1,
                "last": 1,
                "multiplier": scaled.multiplier.shape(),
                "shift": scaled.shift.shape(),
            }
        )
        read_tag, product_tag = Signal(tag), Signal(tag)
        words = Array(
            self.accumulators[half][b] for half in range(2) for b in range(config.max_beats)
        )
        word = Signal(data.ArrayLayout(signed(acc_bits), lanes))
        m.d.comb += word.eq(words[Mux(row.half, config.max_beats, 0) + beat])
        with m.If(advance):
            m.d.sync += [
                read_tag.valid.eq(reading),
                read_tag.part.eq(part),
                read_tag.slot.eq(row.slot),
                read_tag.token.eq(row.token),
                read_tag.beat.eq(beat),
                read_tag.last_part.eq(last_part),
                read_tag.last.eq(last_beat & row.last),
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
