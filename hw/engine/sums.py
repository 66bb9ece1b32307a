"""What becomes of a row's sums: normalised, or out as they are; and its mask."""

from __future__ import annotations

from amaranth.hdl import Array, Module, Mux, Signal, Value, signed
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.program import Function, MaskMode
from hw.command import FuseLayout, RowEntry
from hw.engine.issue import Step
from hw.engine.rows import RowSlot
from hw.masks.generator import MaskRow, total_bits
from hw.softmax.normaliser import Normaliser, ResultWord
from hw.softmax.score import maximum_bits
from hw.softmax.sum_queue import QueuedWord, SumQueue
from hw.softmax.sum_stream import SumStream, SumWord

__all__ = ["RowSums"]


class RowSums(wiring.Component):
    """Queues words of sums and sends them through the normaliser or out as they are.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    command : In, `FuseLayout`
        Quasi-static.
    row : In
        Slot of the row in the array.
    begin_axpy, begin, step : In
        The step begins a word of an axpy over all columns, and one that will come as a sum.
    room : Out
    sum_valid, sum : In
        A word, as the array emits it.
    total_valid, total, total_half, total_kept : In
    mask_row : Out, stream of `MaskRow`
        With GENERATE: a row whose total is known.
    o : Out, stream of `ResultWord`
    sums : Out, stream of `SumWord`
    row_delivered : Out
        The last word of a row was taken.
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        super().__init__(
            {
                "command": In(FuseLayout(config)),
                "row": In(RowSlot(config)),
                "begin_axpy": In(1),
                "begin": In(1),
                "step": In(Step(config)),
                "room": Out(1),
                "sum_valid": In(1),
                "sum": In(QueuedWord(config)["data"].shape),
                "total_valid": In(1),
                "total": In(total_bits(config)),
                "total_half": In(1),
                "total_kept": In(1),
                "mask_row": Out(stream.Signature(MaskRow(config))),
                "o": Out(stream.Signature(ResultWord(config))),
                "sums": Out(stream.Signature(SumWord(config))),
                "row_delivered": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, cmd, step = self.config, self.command, self.step
        m.submodules.queue = queue = SumQueue(config)
        m.submodules.normaliser = normaliser = Normaliser(config)
        m.submodules.stream = raw = SumStream(config)
        twice = cmd.share | cmd.mark
        as_they_are = cmd.raw | twice | (cmd.function == Function.GELU)

        # Rows being summed, by half: a slot of the ring may serve another row meanwhile.
        rows = Array(Signal(RowEntry(config), name=f"row_{half}") for half in range(2))
        maximum = Signal(signed(maximum_bits(config)))
        with m.If(self.begin_axpy):
            m.d.sync += [rows[step.half].eq(self.row.row), maximum.eq(self.row.maximum)]
        row = Signal(RowEntry(config))
        softmax = cmd.function == Function.SOFTMAX
        m.d.comb += row.eq(Mux(step.kept, Value.cast(rows[step.half]), Value.cast(self.row.row)))
        m.d.comb += [
            queue.start.eq(self.begin),
            queue.tag.slot.eq(row.slot),
            queue.tag.token.eq(row.token),
            queue.tag.beat.eq(step.beat),
            queue.tag.row_last.eq(step.last_beat),
            queue.tag.last.eq(step.last_beat & row.last & (step.kept | ~twice)),
            queue.tag.kept.eq(step.kept),
            queue.tag.maximum.eq(Mux(softmax, Mux(step.kept, maximum, self.row.maximum), 0)),
            self.room.eq(queue.room),
            queue.sum_valid.eq(self.sum_valid),
            queue.sum.eq(self.sum),
        ]

        m.d.comb += [
            normaliser.multiplier.eq(cmd.output_multiplier),
            normaliser.shift.eq(cmd.output_shift),
            normaliser.total_valid.eq(self.total_valid & ~as_they_are),
            normaliser.total.eq(self.total),
            raw.total_valid.eq(self.total_valid & as_they_are & (self.total_kept | ~cmd.mark)),
            raw.total.eq(self.total),
            normaliser.i.payload.eq(queue.o.payload),
            normaliser.i.valid.eq(queue.o.valid & ~as_they_are),
            raw.i.payload.eq(queue.o.payload),
            raw.i.valid.eq(queue.o.valid & as_they_are),
            queue.o.ready.eq(Mux(as_they_are, raw.i.ready, normaliser.i.ready)),
        ]
        wiring.connect(m, normaliser.o, wiring.flipped(self.o))
        wiring.connect(m, raw.o, wiring.flipped(self.sums))
        m.d.comb += self.row_delivered.eq(
            (self.o.valid & self.o.ready & (self.o.payload.beat + 1 == cmd.beats))
            | (
                self.sums.valid
                & self.sums.ready
                & self.sums.payload.row_last
                & (self.sums.payload.kept | ~twice)
            )
        )

        # As many rows may wait for the mask generator as there are halves.
        generated = Signal(MaskRow(config))
        owner = rows[self.total_half]
        m.d.comb += [
            generated.half.eq(self.total_half),
            generated.slot.eq(cmd.mask_slot + owner.slot),
            generated.token.eq(owner.token),
            generated.outside.eq(owner.outside),
            generated.total.eq(Mux(cmd.mark, owner.total, self.total)),
        ]
        m.submodules.mask_rows = mask_rows = SyncFIFO(width=MaskRow(config).size, depth=2)
        m.d.comb += [
            mask_rows.w_en.eq(
                self.total_valid & ~self.total_kept & softmax & (cmd.mode == MaskMode.GENERATE)
            ),
            mask_rows.w_data.eq(generated),
            Value.cast(self.mask_row.payload).eq(mask_rows.r_data),
            self.mask_row.valid.eq(mask_rows.r_rdy),
            mask_rows.r_en.eq(self.mask_row.ready),
        ]
        return m
