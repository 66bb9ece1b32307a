"""What becomes of a dot product that axpy will use: a score, or a looked-up operand."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.program import Function
from hw.adder_tree import delay
from hw.array.column_constants import Constants
from hw.command import FuseLayout
from hw.softmax.score import ScoreUnit, maximum_bits
from hw.vector.lookup import ActivationTable, TableEntry

__all__ = ["Activation"]


class Activation(wiring.Component):
    """Requantises dot products and writes what axpy needs beside their list entries.

    SOFTMAX: scores with the command's scale, 2 cycles after the dot product; the row's maximum
    another 2 cycles after its last.  GELU: `table[saturate(round_shift(dot * multiplier, shift))]`
    with the column's scale, 3 cycles after; the maximum means nothing.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    command : In, `FuseLayout`
        Quasi-static.
    restart : In
        Begin with the first slot; only while no row is in flight.
    table : In, stream of `TableEntry`
    dot_valid, dot, dot_enable, dot_last : In
        As the array emits them.
    constants : In, [B] `Constants`
        Of the columns of `dot`.
    write_valid, value : Out, [B]
    write_slot, write_position : Out
        To the `RowStore`.
    row_done, maximum : Out
        The next row is complete.
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        B, number = config.array.banks, config.number
        super().__init__(
            {
                "command": In(FuseLayout(config)),
                "restart": In(1),
                "table": In(stream.Signature(TableEntry(config))),
                "dot_valid": In(1),
                "dot": In(data.ArrayLayout(signed(number.accumulator_bits), B)),
                "dot_enable": In(B),
                "dot_last": In(1),
                "constants": In(data.ArrayLayout(Constants(config), B)),
                "write_valid": Out(B),
                "value": Out(data.ArrayLayout(signed(number.score_bits), B)),
                "write_slot": Out(range(config.array.rows_in_flight)),
                "write_position": Out(config.local_bits),
                "row_done": Out(1),
                "maximum": Out(signed(maximum_bits(config))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        cmd, B = self.command, self.config.array.banks
        gelu = cmd.function == Function.GELU
        m.submodules.score = score = ScoreUnit(self.config)
        m.submodules.table = table = ActivationTable(self.config)
        wiring.connect(m, wiring.flipped(self.table), table.load)
        m.d.comb += [
            score.narrow.eq(gelu),
            table.i.valid.eq(score.score_valid),
            table.o.ready.eq(1),
            score.i_valid.eq(self.dot_valid & (cmd.function != Function.PROJECT)),
            score.i.eq(self.dot),
            score.i_enable.eq(self.dot_enable),
            score.i_last.eq(self.dot_last),
            self.maximum.eq(score.maximum),
        ]
        for b in range(B):
            own = self.constants[b]
            m.d.comb += [
                score.multiplier[b].eq(Mux(gelu, own.multiplier, cmd.score_multiplier)),
                score.shift[b].eq(Mux(gelu, own.shift, cmd.score_shift)),
                table.i.payload[b].eq(score.score[b]),
                self.value[b].eq(Mux(gelu, table.o.payload[b], score.score[b])),
            ]

        # The table takes a cycle.
        looked_up = table.o.valid
        enable = delay(m, score.score_enable, 1, name="enable")
        last = delay(m, score.score_last, 1, name="last")
        valid = Mux(gelu, looked_up, score.score_valid)
        row_last = Mux(gelu, last, score.score_last)
        m.d.comb += [
            self.write_valid.eq(Mux(valid, Mux(gelu, enable, score.score_enable), 0)),
            self.row_done.eq(Mux(gelu, looked_up & last, score.maximum_valid)),
        ]
        with m.If(valid):
            m.d.sync += self.write_position.eq(Mux(row_last, 0, self.write_position + 1))
            with m.If(row_last):
                top = self.config.array.rows_in_flight - 1
                m.d.sync += self.write_slot.eq(Mux(self.write_slot == top, 0, self.write_slot + 1))
        with m.If(self.restart):
            m.d.sync += self.write_slot.eq(0)
        return m
