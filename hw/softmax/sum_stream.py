"""Sums that leave the engine as they are: for gates, partial sums and residual sharing."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from hw.masks.generator import total_bits
from hw.softmax.score import maximum_bits
from hw.softmax.sum_queue import QueuedWord, beat_bits, sum_queue_depth

__all__ = ["SumStream", "SumWord"]


class SumWord(data.StructLayout):
    """V accumulators: elements `(beat * L / V + part) * V` and on of a row."""

    def __init__(self, config: CoreConfig):
        lanes, chunk = config.array.lanes, config.vector.lanes
        super().__init__(
            {
                "slot": range(config.memory.query_rows),
                "token": config.column_bits,
                "beat": beat_bits(config),
                "part": range(max(2, lanes // chunk)),
                "row_last": 1,  # of these sums
                "last": 1,  # of the command
                "kept": 1,  # sums over the columns of the mask just made, not over all
                "maximum": signed(maximum_bits(config)),
                "total": total_bits(config),
                "data": data.ArrayLayout(signed(config.number.accumulator_bits), chunk),
            }
        )


class SumStream(wiring.Component):
    """Cuts words of L accumulators into words of V and adds the row's total.

    Latency 1 cycle; throughput a word of V a cycle.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    total_valid, total : In
        Total of the next row, before its first word.  Cannot be refused: each row holds room in
        the `SumQueue` from before its total is known until its last word has been taken.
    i : In, stream of `QueuedWord`
    o : Out, stream of `SumWord`
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        super().__init__(
            {
                "total_valid": In(1),
                "total": In(total_bits(config)),
                "i": In(stream.Signature(QueuedWord(config))),
                "o": Out(stream.Signature(SumWord(config))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, chunk = self.config, self.config.vector.lanes
        parts = config.array.lanes // chunk
        m.submodules.totals = totals = SyncFIFO(
            width=total_bits(config), depth=sum_queue_depth(config)
        )
        m.d.comb += [totals.w_data.eq(self.total), totals.w_en.eq(self.total_valid)]

        tag, payload = self.i.payload.tag, self.o.payload
        part = Signal(range(max(2, parts)))
        advance = self.i.valid & (~self.o.valid | self.o.ready)
        last_part = part == parts - 1
        m.d.comb += [
            self.i.ready.eq(advance & last_part),
            totals.r_en.eq(advance & last_part & tag.row_last),
        ]
        with m.If(self.o.ready):
            m.d.sync += self.o.valid.eq(0)
        with m.If(advance):
            m.d.sync += [
                part.eq(Mux(last_part, 0, part + 1)),
                self.o.valid.eq(1),
                payload.part.eq(part),
                payload.row_last.eq(tag.row_last & last_part),
                payload.last.eq(tag.last & last_part),
                payload.total.eq(totals.r_data),
            ]
            m.d.sync += [
                payload[name].eq(tag[name]) for name in ("slot", "token", "beat", "kept", "maximum")
            ]
            with m.Switch(part):
                for p in range(parts):
                    with m.Case(p):
                        m.d.sync += [
                            payload.data[i].eq(self.i.payload.data[p * chunk + i])
                            for i in range(chunk)
                        ]
        return m
