"""Divides a finished row by its sum of numerators and requantises it."""

from __future__ import annotations

from amaranth.hdl import Array, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.tables import MULTIPLIER_BITS, RECIPROCAL_BITS, SHIFT_BITS
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

    Works on `vector.lanes` elements a cycle and one row at a time:
    `7 + beats * lanes / vector.lanes` cycles a row, plus 3 until its last word is offered; longer
    if words are not taken.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    multiplier, shift, beats : In
        Quasi-static.
    row : In, stream of `FinishedRow`
    accumulators : In, [2][max_beats][L]
    half_read : Out, [2]
        Pulses when everything of a half has been read.
    o : Out, stream of `ResultWord`
        In the order of rows, beats ascending.
    busy : Out
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        acc = signed(config.number.accumulator_bits)
        super().__init__(
            {
                "multiplier": In(MULTIPLIER_BITS),
                "shift": In(SHIFT_BITS),
                "beats": In(range(config.max_beats + 1)),
                "row": In(stream.Signature(FinishedRow(config))),
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
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        lanes, chunk = config.array.lanes, config.vector.lanes
        chunks = lanes // chunk
        acc_bits = config.number.accumulator_bits

        m.submodules.reciprocal = reciprocal = Reciprocal(total_bits(config))
        row = Signal(FinishedRow(config))
        row_multiplier = Signal(MULTIPLIER_BITS + 1)
        row_shift = Signal(range(total_bits(config) + (1 << SHIFT_BITS)))
        m.d.comb += reciprocal.total.eq(row.total)

        # Everything behind the read stage moves together; it stops while a word waits.
        advance = Signal()
        m.d.comb += advance.eq(~self.o.valid | self.o.ready)

        wait = Signal(range(Reciprocal.LATENCY + 2))
        beat = Signal(range(config.max_beats))
        part = Signal(range(max(2, chunks)))
        reading = Signal()
        last_part = part == chunks - 1
        last_beat = beat + 1 == self.beats
        m.d.comb += self.busy.eq(1)
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [self.row.ready.eq(1), self.busy.eq(self.row.valid)]
                m.d.sync += wait.eq(0)
                with m.If(self.row.valid):
                    m.d.sync += row.eq(self.row.payload)
                    m.next = "RECIPROCAL"
            with m.State("RECIPROCAL"):
                m.d.sync += [
                    wait.eq(wait + 1),
                    row_multiplier.eq(round_shift(reciprocal.y * self.multiplier, RECIPROCAL_BITS)),
                    row_shift.eq(reciprocal.n + self.shift),
                    beat.eq(0),
                    part.eq(0),
                ]
                with m.If(wait == Reciprocal.LATENCY):
                    m.next = "READ"
            with m.State("READ"):
                m.d.comb += reading.eq(1)
                with m.If(advance):
                    m.d.sync += part.eq(Mux(last_part, 0, part + 1))
                    with m.If(last_part):
                        m.d.sync += beat.eq(beat + 1)
                        with m.If(last_beat):
                            m.d.comb += self.half_read.eq(1 << row.half)
                            m.next = "IDLE"

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
                "multiplier": row_multiplier.shape(),
                "shift": row_shift.shape(),
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
                read_tag.multiplier.eq(row_multiplier),
                read_tag.shift.eq(row_shift),
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
        with m.If(self.o.valid | read_tag.valid | product_tag.valid):
            m.d.comb += self.busy.eq(1)
        return m
