"""The columns that the mask just made keeps, for their own sums."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from hw.reduce import largest
from hw.sram import Sram

__all__ = ["KeptColumns"]


class KeptColumns(wiring.Component):
    """Per bank a list of local indices and numerators: one row, written once, read `beats` times.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    write_valid, numerator : In, [B]
    local : In
        From the mask generator.
    row_compared : In
        The row is complete, in this cycle.
    ready, steps : Out
        A row is complete and waits, and columns of its fullest bank, at least 1.
    start, end : In
        It is being read; it may be forgotten.
    counts : Out, [B]
    en, position : In
        Reads entries of all banks, one cycle later.
    read_local, read_numerator : Out, [B]
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        B, local_bits = config.array.banks, config.local_bits
        numerators = data.ArrayLayout(config.number.numerator_bits, B)
        super().__init__(
            {
                "write_valid": In(B),
                "numerator": In(numerators),
                "local": In(local_bits),
                "row_compared": In(1),
                "start": In(1),
                "end": In(1),
                "ready": Out(1),
                "steps": Out(local_bits + 1),
                "counts": Out(data.ArrayLayout(local_bits + 1, B)),
                "en": In(1),
                "position": In(local_bits),
                "read_local": Out(data.ArrayLayout(local_bits, B)),
                "read_numerator": Out(numerators),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        entry = data.StructLayout(
            {"local": config.local_bits, "numerator": config.number.numerator_bits}
        )
        counts = []
        for b in range(config.array.banks):
            count = Signal(config.local_bits + 1, name=f"count_{b}")
            counts.append(count)
            m.submodules[f"entries_{b}"] = entries = Sram(entry, 1 << config.local_bits)
            m.d.comb += [
                entries.write_address.eq(count),
                entries.write_data.local.eq(self.local),
                entries.write_data.numerator.eq(self.numerator[b]),
                entries.write_en.eq(self.write_valid[b]),
                entries.read_address.eq(self.position),
                entries.read_en.eq(self.en),
                self.counts[b].eq(count),
                self.read_local[b].eq(entries.read_data.local),
                self.read_numerator[b].eq(entries.read_data.numerator),
            ]
            with m.If(self.end):
                m.d.sync += count.eq(0)
            with m.Elif(self.write_valid[b]):
                m.d.sync += count.eq(count + 1)

        compared = Signal()
        m.d.sync += compared.eq(self.row_compared)
        with m.If(compared):
            most = largest(counts)
            m.d.sync += [self.ready.eq(1), self.steps.eq(Mux(most == 0, 1, most))]
        with m.If(self.start):
            m.d.sync += self.ready.eq(0)
        return m
