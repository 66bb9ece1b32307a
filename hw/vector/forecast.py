"""What reused tokens are given instead of being computed, and what computed ones leave for it."""

from __future__ import annotations

from amaranth.hdl import EnableInserter, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.tables import DISTANCE_BITS, RATIO_BITS
from hw.adder_tree import delay
from hw.fixed import round_shift, saturate
from hw.sram import Sram
from hw.vector.row_queue import RowQueue
from hw.vector.words import (
    RowWord,
    busy,
    join,
    masked,
    offer,
    row_left,
    row_position,
)

__all__ = ["DISTANCES", "Forecast", "RatioEntry", "Record"]

DISTANCES = data.StructLayout({"since": DISTANCE_BITS, "apart": DISTANCE_BITS})
"""Steps since a token was last computed, and between its last two computations; apart = 0 holds."""


class RatioEntry(data.StructLayout):
    """`2**16 / index`, times the damping; 0 for 0."""

    def __init__(self):
        super().__init__({"index": DISTANCE_BITS, "value": RATIO_BITS + 1})


class Forecast(wiring.Component):
    """`x = saturate(embedding + f)`, f continuing the line through `before` and `last`.

    `f = saturate(last + round_shift((last - before) * (since * table[apart]), 16))`, golden:
    `forecast.forecast`.

    Rows' distances come ahead of their words, into a queue behind the table.

    Throughput: one word a cycle, no gap between rows of any length.  Latency: `ROW_LATENCY` cycles
    from a row to its first word being taken, `LATENCY` from the last of the words to the result.

    Parameters
    ----------
    config : CoreConfig
        `vector.lanes` elements a word, rows up to `vector.max_channels` long.

    Members
    -------
    channels, hold : In
        Quasi-static: D; `f = last`, for which neither rows' distances nor `before` are taken.
    load : In, stream of `RatioEntry`
        Never stalls.  One table, loaded while not `busy`.
    row : In, stream of `DISTANCES`
    embedding, last, before : In, streams of [lanes] signed `residual_bits`
    o : Out, stream of `RowWord` of signed `residual_bits`
    busy : Out
    missing : Out
        No row's distances are there.
    """

    LATENCY = 4
    ROW_LATENCY = 3

    def __init__(self, config: CoreConfig):
        self.config, lanes = config, config.vector.lanes
        self.max_channels = config.vector.max_channels
        x = signed(config.number.residual_bits)
        words = stream.Signature(data.ArrayLayout(x, lanes))
        super().__init__(
            {
                "channels": In(range(self.max_channels + 1)),
                "hold": In(1),
                "load": In(stream.Signature(RatioEntry())),
                "row": In(stream.Signature(DISTANCES)),
                "embedding": In(words),
                "last": In(words),
                "before": In(words),
                "o": Out(stream.Signature(RowWord(x, lanes))),
                "busy": Out(1),
                "missing": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        p = Module()  # the rigid pipeline of the words: everything in it stops together
        bits, lanes = self.config.number.residual_bits, self.config.vector.lanes

        # Rows: since * table[apart].
        m.submodules.table = table = Sram(RATIO_BITS + 1, 1 << DISTANCE_BITS)
        m.submodules.rows = rows = RowQueue(DISTANCE_BITS + RATIO_BITS + 1, 2)
        ratio = Signal(DISTANCE_BITS + RATIO_BITS + 1, reset_less=True)
        since = delay(m, self.row.payload.since, 1, name="since")
        m.d.sync += ratio.eq(since * table.read_data)
        m.d.comb += [
            self.load.ready.eq(1),
            table.write_address.eq(self.load.payload.index),
            table.write_data.eq(self.load.payload.value),
            table.write_en.eq(self.load.valid),
            table.read_address.eq(self.row.payload.apart),
            table.read_en.eq(rows.accept),
            rows.accept.eq(self.row.valid & rows.free),
            self.row.ready.eq(rows.free),
            rows.result.eq(ratio),
        ]

        # Words.
        advance = Signal()
        m.d.comb += self.missing.eq(~rows.o.valid & ~self.hold)
        accept = join(
            m,
            advance & ~self.missing,
            [(self.embedding, 1), (self.last, 1), (self.before, ~self.hold)],
        )
        here = row_position(m, accept, self.channels, lanes, self.max_channels, name="in")
        m.d.comb += rows.o.ready.eq(accept & here.last & ~self.hold)
        ratio = delay(p, rows.o.payload, 1, name="ratio_late")
        results = []
        for i in range(lanes):
            last, before = self.last.payload[i], self.before.payload[i]
            change = delay(p, Mux(self.hold, 0, last - before), 1, name=f"change_{i}")
            product = delay(p, change * ratio, 1, name=f"product_{i}")
            last = delay(p, last, 2, name=f"last_{i}")
            branch = saturate(last + round_shift(product, RATIO_BITS), bits)
            branch = delay(p, branch, 1, name=f"branch_{i}")
            embedding = delay(p, self.embedding.payload[i], 3, name=f"embedding_{i}")
            results.append(saturate(embedding + branch, bits))

        cycles = self.LATENCY - 1
        valid = delay(p, accept, cycles, name="valid", reset_less=False)
        enable = delay(p, here.enable, cycles, name="enable")
        row_end = delay(p, here.last, cycles, name="row_end")
        fields = {"data": masked(results, enable), "last": row_end}
        m.d.comb += advance.eq(offer(m, {"o": (self.o, valid)}, {"o": fields}))
        m.submodules.pipeline = EnableInserter(advance)(p)
        inside = busy(m, accept & here.first, row_left(self.o), self.LATENCY + 1)
        m.d.comb += self.busy.eq(inside | rows.inside)
        return m


class Record(wiring.Component):
    """`new_last = saturate(x - embedding)`, and what was `last` becomes `new_before`.

    What a computed token leaves for its next forecast: golden, `network.denoise_step`.

    Throughput: one word a cycle.  Latency: `LATENCY` cycles.

    Parameters
    ----------
    config : CoreConfig
        `vector.lanes` elements a word, rows up to `vector.max_channels` long.

    Members
    -------
    channels : In
        Quasi-static.
    x, embedding, last : In, streams of [lanes] signed `residual_bits`
    new_last, new_before : Out, streams of `RowWord` of signed `residual_bits`
    busy : Out
    """

    LATENCY = 1

    def __init__(self, config: CoreConfig):
        self.config, lanes = config, config.vector.lanes
        self.max_channels = config.vector.max_channels
        x = signed(config.number.residual_bits)
        words = stream.Signature(data.ArrayLayout(x, lanes))
        out = stream.Signature(RowWord(x, lanes))
        super().__init__(
            {
                "channels": In(range(self.max_channels + 1)),
                "x": In(words),
                "embedding": In(words),
                "last": In(words),
                "new_last": Out(out),
                "new_before": Out(out),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bits, lanes = self.config.number.residual_bits, self.config.vector.lanes
        advance = Signal()
        accept = join(m, advance, [(self.x, 1), (self.embedding, 1), (self.last, 1)])
        here = row_position(m, accept, self.channels, lanes, self.max_channels, name="in")
        change = [
            saturate(self.x.payload[i] - self.embedding.payload[i], bits) for i in range(lanes)
        ]
        last = [self.last.payload[i] for i in range(lanes)]
        outputs = {"new_last": (self.new_last, accept), "new_before": (self.new_before, accept)}
        fields = {
            "new_last": {"data": masked(change, here.enable), "last": here.last},
            "new_before": {"data": masked(last, here.enable), "last": here.last},
        }
        m.d.comb += advance.eq(offer(m, outputs, fields))
        inside = busy(m, accept & here.first, row_left(self.new_last), 2)
        m.d.comb += self.busy.eq(inside | self.new_before.valid)
        return m
