"""Makes a mask from thresholded numerators while later rows are being computed."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.tables import THRESHOLD_BITS
from hw.hash import BankHash, matrix_layout
from hw.masks.controller import MaskLine, bank_columns
from hw.reduce import largest
from hw.sram import Sram
from hw.vector.words import total_bits as whole_total_bits

__all__ = ["MaskGenerator", "MaskRow", "total_bits"]


def total_bits(config: CoreConfig) -> int:
    """Bits of a row's sum of numerators over the columns of one command."""
    return config.number.numerator_bits + config.column_bits


class MaskRow(data.StructLayout):
    """A row whose numerators have all been written.

    The total may be that of a row over several key tiles, and its own column in another one.
    """

    def __init__(self, config: CoreConfig):
        super().__init__(
            {
                "half": 1,
                "slot": range(config.memory.query_rows),
                "token": config.column_bits,
                "outside": 1,
                "total": whole_total_bits(config),
            }
        )


class MaskGenerator(wiring.Component):
    """Keeps a column iff `numerator * 2**20 >= threshold * total`, or if it is the row's own.

    Numerators of a dense row are written into one half of a buffer as the array consumes them, in
    local order; when the row is complete and its total known, the half is read back, compared, and
    leaves as `MaskLine`s.  So a row being written and one being compared overlap.

    With `fill` the half is read twice.  The first pass only counts each bank's columns.  The second
    one makes the same decisions again, and a bank that counted fewer than the fullest one also
    keeps columns of at least half the threshold, by ascending local index, until it has as many.

    Latency: the first line is offered `3 + mask_word_bits` cycles after `row` was accepted (fewer
    for a shorter row); throughput: one column a bank and cycle, plus 3 cycles a row.  With `fill`
    both take `ceil(columns / B) + 1` cycles more.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    matrix, columns, threshold, diagonal, fill : In
        Quasi-static.
    write_valid : In, [B]
    write_position : In
        Position within the row: the local index, since the row is dense.
    write_half : In
    numerator : In, [B]
    row : In, stream of `MaskRow`
        A row whose half is complete.
    half_free : Out, [2]
        This half may be written.  It counts as taken from `claim` until it has been read back.
    claim : In, [2]
    lines : Out, stream of `MaskLine`
    kept_valid, kept_numerator : Out, [B]
    kept_local : Out
        Columns as they are found to be kept, one a bank and cycle, by ascending local index.
    row_compared : Out
        Pulses with the last of them.
    busy : Out
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        B = config.array.banks
        super().__init__(
            {
                "matrix": In(matrix_layout(config)),
                "columns": In(config.column_bits + 1),
                "threshold": In(THRESHOLD_BITS + 1),
                "diagonal": In(1),
                "fill": In(1),
                "write_valid": In(B),
                "write_position": In(config.local_bits),
                "write_half": In(1),
                "numerator": In(data.ArrayLayout(config.number.numerator_bits, B)),
                "row": In(stream.Signature(MaskRow(config))),
                "half_free": Out(2, init=0b11),
                "claim": In(2),
                "lines": Out(stream.Signature(MaskLine(config))),
                "kept_valid": Out(B),
                "kept_numerator": Out(data.ArrayLayout(config.number.numerator_bits, B)),
                "kept_local": Out(config.local_bits),
                "row_compared": Out(1),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, B = self.config, self.config.array.banks
        local_bits, word_bits = config.local_bits, config.memory.mask_word_bits
        numerator_bits = config.number.numerator_bits
        index_bits = word_bits.bit_length() - 1

        # The row in hand.
        slot = Signal(self.row.payload.slot.shape())
        half = Signal()
        least = Signal(numerator_bits + 2)
        product = Signal(THRESHOLD_BITS + 1 + whole_total_bits(config))
        own_bank = Signal(B)
        own_local = Signal(local_bits)
        m.submodules.hash = own = BankHash(config)
        m.d.comb += [own.matrix.eq(self.matrix), own.column.eq(self.row.payload.token)]
        inside = ~self.row.payload.outside & (self.row.payload.token < self.columns)

        groups = Signal(local_bits + 1)
        in_bank = [Signal(local_bits + 1, name=f"columns_{b}") for b in range(B)]
        m.d.sync += groups.eq((self.columns + (B - 1)) >> config.bank_bits)
        for b in range(B):
            m.d.sync += in_bank[b].eq(bank_columns(config, self.matrix, self.columns, b))

        # Read back: `position` goes to the memories, `compared` is a cycle behind.
        position = Signal(local_bits + 1)
        compared = Signal(local_bits + 1)
        comparing = Signal()
        word_done = Signal()
        row_done = Signal()
        advance = Signal()
        second = Signal()  # pass, with `fill`
        final = Signal()
        line = Signal(MaskLine(config))
        line_valid = Signal()
        m.d.comb += [
            self.lines.payload.eq(line),
            self.lines.valid.eq(line_valid),
            row_done.eq(compared + 1 == groups),
            word_done.eq(row_done | compared[:index_bits].all()),
            final.eq(second | ~self.fill),
            # A finished word needs the output register; anything else just goes on.
            advance.eq(~(comparing & final & word_done & line_valid & ~self.lines.ready)),
        ]
        with m.If(self.lines.ready):
            m.d.sync += line_valid.eq(0)

        keep, counted = Signal(B), Signal(B)
        counts = [Signal(local_bits + 1, name=f"count_{b}") for b in range(B)]
        fullest = Signal(local_bits + 1)
        half_least = (least + 1) >> 1
        m.d.comb += self.kept_local.eq(compared)
        for b in range(B):
            m.submodules[f"numerators_{b}"] = memory = Sram(numerator_bits, 2 * (1 << local_bits))
            m.d.comb += [
                memory.write_address.eq(Cat(self.write_position, self.write_half)),
                memory.write_data.eq(self.numerator[b]),
                memory.write_en.eq(self.write_valid[b]),
                memory.read_address.eq(Cat(position[:local_bits], half)),
                memory.read_en.eq(advance),
            ]
            here = compared < in_bank[b]
            above = memory.read_data >= least
            own_column = own_bank[b] & (own_local == compared)
            plain = here & (above | own_column)
            # In the second pass a bank's count includes its columns that are still to come, so that
            # only additions change it.
            added = here & second & (memory.read_data >= half_least) & (counts[b] < fullest)
            m.d.comb += [
                keep[b].eq(plain | added),
                counted[b].eq(Mux(second, added & ~plain, plain)),
                self.kept_numerator[b].eq(memory.read_data),
            ]

        shifted = Signal(data.ArrayLayout(word_bits, B))
        collected = Signal(data.ArrayLayout(word_bits, B))
        bit = Signal(word_bits)
        m.d.comb += bit.eq(Const(1, word_bits) << compared[:index_bits])
        for b in range(B):
            m.d.comb += shifted[b].eq(
                Mux(compared[:index_bits] == 0, 0, collected[b]) | Mux(keep[b], bit, 0)
            )
        word_number = Signal(range(max(2, config.mask_words_per_row)))
        m.d.comb += word_number.eq(compared >> index_bits)

        m.d.sync += self.half_free.eq(self.half_free & ~self.claim)
        m.d.comb += self.busy.eq(1)
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += [self.row.ready.eq(1), self.busy.eq(line_valid)]
                with m.If(self.row.valid):
                    m.d.sync += [
                        slot.eq(self.row.payload.slot),
                        half.eq(self.row.payload.half),
                        product.eq(self.row.payload.total * self.threshold),
                        own_bank.eq((self.diagonal & inside) << own.bank),
                        own_local.eq(own.local),
                    ]
                    m.next = "THRESHOLD"
            with m.State("THRESHOLD"):
                ceiling = (product + ((1 << THRESHOLD_BITS) - 1)) >> THRESHOLD_BITS
                # Half of it, too, is above every numerator.
                top = 2 << numerator_bits
                m.d.sync += [
                    *(count.eq(0) for count in counts),
                    least.eq(Mux(ceiling > top, top, ceiling)),
                    position.eq(0),
                    comparing.eq(0),
                    second.eq(0),
                ]
                m.next = "COMPARE"
            with m.State("COMPARE"), m.If(advance):
                m.d.sync += [
                    position.eq(position + 1),
                    compared.eq(position),
                    comparing.eq(1),
                ]
                with m.If(comparing):
                    m.d.sync += [counts[b].eq(counts[b] + counted[b]) for b in range(B)]
                with m.Else():
                    m.d.sync += fullest.eq(largest(counts))
                with m.If(comparing & final):
                    m.d.comb += [self.kept_valid.eq(keep), self.row_compared.eq(row_done)]
                    m.d.sync += collected.eq(shifted)
                    with m.If(word_done):
                        m.d.sync += [
                            line.address.eq(slot * config.mask_words_per_row + word_number),
                            line.bits.eq(shifted),
                            line_valid.eq(1),
                        ]
                    with m.If(row_done):
                        m.d.sync += self.half_free.bit_select(half, 1).eq(1)
                        m.next = "IDLE"
                with m.Elif(comparing & row_done):
                    m.d.sync += [second.eq(1), position.eq(0), comparing.eq(0)]
        return m
