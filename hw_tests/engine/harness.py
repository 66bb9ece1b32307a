"""Hardware around the engine that feeds it and stalls it, so that a run needs no Python a cycle."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from hw.array.dot_queue import DotGroup
from hw.command import FuseLayout, RowEntry
from hw.engine import AttentionEngine, EngineCounters
from hw.hash import matrix_layout
from hw.softmax.sum_stream import SumWord
from hw.sram import Sram

__all__ = ["RAW_WORDS", "TOP", "EngineHarness"]

TOP = "engine_harness"

RAW_WORDS = 2048
"""Words of sums, and groups of dot products, that one command may deliver."""


class EngineHarness(wiring.Component):
    """Engine with a list of rows at its input and memories at its outputs.

    All memories, the engine's too, are loaded and read by the backdoor; `start` runs one command
    over the first `row_count` entries of the row list.  A linear-feedback shift register stalls
    each of the streams in a fraction of all cycles.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    matrix, command : In
        Hold them while `busy`.
    row_count : In
    stall_rows, stall_results : In, [8]
        Stall in this many of 256 cycles; 0 never stalls.
    read_masks : In, [8]
        Read a line of the mask memory in this many of 256 cycles, to get in the way.
    start : In
    busy : Out
    results, sums, dots : Out
        Result words, words of sums and groups of dot products that have arrived.
    counters : Out
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        rows = range(config.memory.query_rows + 1)
        super().__init__(
            {
                "matrix": In(matrix_layout(config)),
                "command": In(FuseLayout(config)),
                "row_count": In(rows),
                "stall_rows": In(8),
                "stall_results": In(8),
                "read_masks": In(8),
                "start": In(1),
                "busy": Out(1),
                "results": Out(range(config.query_words + 1)),
                "sums": Out(range(RAW_WORDS + 1)),
                "dots": Out(range(RAW_WORDS + 1)),
                "counters": Out(EngineCounters()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.engine = engine = AttentionEngine(config)
        m.submodules.row_list = rows = Sram(RowEntry(config), config.memory.query_rows)
        m.submodules.result = result = Sram(engine.o.payload.shape(), config.query_words)
        m.submodules.sum_word = sum_word = Sram(SumWord(config), RAW_WORDS)
        m.submodules.dot_group = dot_group = Sram(DotGroup(config), RAW_WORDS)

        # x^32 + x^22 + x^2 + x + 1; three bytes far enough apart to look independent.
        noise = Signal(32, init=0xACE1_2B5D)
        m.d.sync += noise.eq(Cat(noise[31] ^ noise[21] ^ noise[1] ^ noise[0], noise[:31]))

        m.d.comb += [
            engine.matrix.eq(self.matrix),
            engine.command.payload.eq(self.command),
            engine.command.valid.eq(self.start & ~self.busy),
            engine.no_rows.eq(self.row_count == 0),
            self.counters.eq(engine.counters),
        ]

        # Rows: a prefetched entry, offered unless the dice say no; once offered it stays.
        index = Signal(range(config.memory.query_rows + 1))
        sent = Signal.like(index)
        fetched = Signal()
        offered = Signal()
        give = Signal()
        m.d.comb += [
            rows.read_address.eq(index),
            rows.read_en.eq(1),
            give.eq(offered | (noise[:8] >= self.stall_rows)),
            engine.rows.valid.eq(fetched & give),
            engine.rows.payload.eq(rows.read_data),
        ]
        taken = engine.rows.valid & engine.rows.ready
        m.d.sync += offered.eq(engine.rows.valid & ~engine.rows.ready)
        with m.If(taken):
            m.d.sync += [sent.eq(sent + 1), index.eq(index + 1), fetched.eq(0)]
        with m.Elif(self.busy & (sent != self.row_count)):
            m.d.sync += fetched.eq(1)

        # Everything that leaves: into memories, in order of arrival.
        for stream_, memory, count, stall, dice in (
            (engine.o, result, self.results, self.stall_results, noise[11:19]),
            (engine.sums, sum_word, self.sums, self.stall_results, noise[11:19]),
            (engine.dots, dot_group, self.dots, self.stall_results, noise[11:19]),
        ):
            m.d.comb += [
                stream_.ready.eq(dice >= stall),
                memory.write_address.eq(count),
                memory.write_data.eq(stream_.payload),
                memory.write_en.eq(stream_.valid & stream_.ready),
            ]
            with m.If(stream_.valid & stream_.ready):
                m.d.sync += count.eq(count + 1)

        # Somebody who reads masks all the time.
        address = Signal(range(config.mask_lines))
        m.d.comb += [
            engine.mask_read.payload.eq(address),
            engine.mask_read.valid.eq(noise[23:31] < self.read_masks),
            engine.mask_word.ready.eq(noise[7:15] >= self.stall_results),
        ]
        with m.If(engine.mask_read.valid & engine.mask_read.ready):
            m.d.sync += address.eq(Mux(address == config.mask_lines - 1, 0, address + 1))

        started = self.start & ~self.busy & engine.command.ready
        was_busy = Signal()
        m.d.comb += self.busy.eq(engine.busy | was_busy)
        m.d.sync += was_busy.eq(started)
        with m.If(started):
            m.d.sync += [
                index.eq(0),
                sent.eq(0),
                fetched.eq(0),
                self.results.eq(0),
                self.sums.eq(0),
                self.dots.eq(0),
            ]
        return m
