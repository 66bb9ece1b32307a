"""Key tiles: brings what two of them made of a row to one maximum and adds it."""

from __future__ import annotations

from amaranth.hdl import EnableInserter, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.tables import SHIFT_BITS
from hw.adder_tree import delay
from hw.fixed import round_shift
from hw.softmax.score import maximum_bits
from hw.vector.row_queue import RowQueue
from hw.vector.words import (
    RowWord,
    busy,
    join,
    masked,
    offer,
    row_left,
    row_position,
    total_bits,
)

__all__ = ["TileMerger", "TileRow"]


class TileRow(data.StructLayout):
    """Maximum of a row and sum of its numerators, over some of its columns."""

    def __init__(self, config: CoreConfig):
        super().__init__({"maximum": signed(maximum_bits(config)), "total": total_bits(config)})


class TileMerger(wiring.Component):
    """`M = max(M_a, M_b)`, `out = round_shift(a, M - M_a) + round_shift(b, M - M_b)`.

    Of totals and of every accumulator; golden: `tiled.merge`.  Shifts beyond 63 shift by 63, which
    leaves nothing either.  A tile of which a row keeps no column has the least maximum,
    `tiled.empty_maximum`, and zeros.

    Rows come ahead of their words.  The merged row leaves `ROW_LATENCY` cycles after its two halves
    were taken, whether or not its words have come.

    Throughput: one word a cycle, no gap between rows of any length.  Latency: `ROW_LATENCY` cycles
    from a row to its first word being taken, `LATENCY` from the last of the words to the result.

    Parameters
    ----------
    config : CoreConfig
        `vector.lanes` elements a word, rows of up to `memory.head_dim`.

    Members
    -------
    channels : In
        Quasi-static.
    row_a, row_b : In, streams of `TileRow`
        Taken together.
    a, b : In, streams of [lanes] signed `accumulator_bits`
        Taken together.
    row : Out, stream of `TileRow`
    o : Out, stream of `RowWord` of signed `accumulator_bits`
    busy : Out
    """

    LATENCY = 2
    ROW_LATENCY = 3

    def __init__(self, config: CoreConfig):
        self.config, lanes = config, config.vector.lanes
        acc = signed(config.number.accumulator_bits)
        rows = stream.Signature(TileRow(config))
        words = stream.Signature(data.ArrayLayout(acc, lanes))
        super().__init__(
            {
                "channels": In(range(config.memory.head_dim + 1)),
                "row_a": In(rows),
                "row_b": In(rows),
                "a": In(words),
                "b": In(words),
                "row": Out(rows),
                "o": Out(stream.Signature(RowWord(acc, lanes))),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        p = Module()  # the rigid pipeline of the words: everything in it stops together
        lanes, acc_bits = self.config.vector.lanes, self.config.number.accumulator_bits

        # Rows: how far each side shifts, then the total.
        shifts = data.StructLayout({"a": SHIFT_BITS, "b": SHIFT_BITS})
        m.submodules.rows = rows = RowQueue(shifts, 2)
        m.submodules.merged = merged = RowQueue(TileRow(self.config), 2)
        accept_row = join(m, rows.free & merged.free, [(self.row_a, 1), (self.row_b, 1)])
        sides = {"a": self.row_a.payload, "b": self.row_b.payload}
        maximum = Signal(sides["a"].maximum.shape())
        m.d.comb += maximum.eq(
            Mux(sides["a"].maximum > sides["b"].maximum, sides["a"].maximum, sides["b"].maximum)
        )
        shift = Signal(shifts, reset_less=True)
        most = (1 << SHIFT_BITS) - 1
        total = 0
        for name, side in sides.items():
            distance = Signal(maximum.shape().width, name=f"distance_{name}")
            m.d.comb += distance.eq(maximum - side.maximum)
            m.d.sync += shift[name].eq(Mux(distance > most, most, distance))
            held = delay(m, side.total, 1, name=f"total_{name}")
            total = total + round_shift(held, shift[name])
        sum_row = Signal(TileRow(self.config), reset_less=True)
        m.d.sync += [
            sum_row.maximum.eq(delay(m, maximum, 1, name="maximum")),
            sum_row.total.eq(total),
        ]
        m.d.comb += [
            rows.accept.eq(accept_row),
            rows.result.eq(delay(m, shift.as_value(), 1, name="shift_late")),
            merged.accept.eq(accept_row),
            merged.result.eq(sum_row),
        ]
        wiring.connect(m, merged.o, wiring.flipped(self.row))

        # Words.
        advance = Signal()
        accept = join(m, advance & rows.o.valid, [(self.a, 1), (self.b, 1)])
        here = row_position(m, accept, self.channels, lanes, self.config.memory.head_dim, name="in")
        m.d.comb += rows.o.ready.eq(accept & here.last)
        results = []
        for i in range(lanes):
            total = 0
            for name, words in (("a", self.a), ("b", self.b)):
                part = Signal(signed(acc_bits), name=f"part_{name}_{i}", reset_less=True)
                p.d.sync += part.eq(round_shift(words.payload[i], rows.o.payload[name]))
                total = total + part
            results.append(total[:acc_bits].as_signed())

        cycles = self.LATENCY - 1
        valid = delay(p, accept, cycles, name="valid", reset_less=False)
        enable = delay(p, here.enable, cycles, name="enable")
        fields = {"data": masked(results, enable), "last": delay(p, here.last, cycles, name="last")}
        m.d.comb += advance.eq(offer(m, {"o": (self.o, valid)}, {"o": fields}))
        m.submodules.pipeline = EnableInserter(advance)(p)
        inside = busy(m, accept_row, row_left(self.o), rows.depth + self.LATENCY + 1)
        m.d.comb += self.busy.eq(inside | merged.inside)
        return m
