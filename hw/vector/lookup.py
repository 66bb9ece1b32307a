"""An activation function as a table: GELU between the two layers of the MLP."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from hw.sram import Sram

__all__ = ["ActivationTable", "TableEntry"]


class TableEntry(data.StructLayout):
    """What input `index` becomes; entry n of the golden table is that of n - 2**(bits - 1)."""

    def __init__(self, config: CoreConfig):
        operand = signed(config.number.operand_bits)
        super().__init__({"index": operand, "value": operand})


class ActivationTable(wiring.Component):
    """`out = table[x]` in every lane.

    Golden: `mlp.look_up`.

    Each lane has a copy of the table.  There is one table, loaded between commands: a word sees the
    entries that were taken before it.

    Throughput: one word a cycle.  Latency: 1 cycle.

    Parameters
    ----------
    config : CoreConfig
    lanes : int, optional
        Elements of a word; unset: `array.banks`, since activations stay in the banks of their
        columns.

    Members
    -------
    load : In, stream of `TableEntry`
        Never stalls.
    i, o : In, Out, streams of [lanes] signed `operand_bits`

    Raises
    ------
    ValueError
        `lanes` is less than 1.
    """

    def __init__(self, config: CoreConfig, lanes: int | None = None):
        self.config = config
        self.lanes = config.array.banks if lanes is None else lanes
        if self.lanes < 1:
            raise ValueError(f"lanes: must be at least 1, got {lanes}")
        word = data.ArrayLayout(signed(config.number.operand_bits), self.lanes)
        super().__init__(
            {
                "load": In(stream.Signature(TableEntry(config))),
                "i": In(stream.Signature(word)),
                "o": Out(stream.Signature(word)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bits = self.config.number.operand_bits

        # The memories' read registers are the output: they hold while nothing is read.
        accept, advance = Signal(), Signal()
        m.d.comb += [
            advance.eq(~self.o.valid | self.o.ready),
            self.i.ready.eq(advance),
            accept.eq(self.i.valid & advance),
            self.load.ready.eq(1),
        ]
        with m.If(advance):
            m.d.sync += self.o.valid.eq(self.i.valid)
        for lane in range(self.lanes):
            m.submodules[f"table_{lane}"] = table = Sram(signed(bits), 1 << bits)
            m.d.comb += [
                table.write_address.eq(self.load.payload.index),
                table.write_data.eq(self.load.payload.value),
                table.write_en.eq(self.load.valid),
                table.read_address.eq(self.i.payload[lane]),
                table.read_en.eq(accept),
                self.o.payload[lane].eq(table.read_data),
            ]
        return m
