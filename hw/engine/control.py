"""One command at a time: taken, held, and finished when its last row has been delivered."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from hw.array.dot_queue import dot_queue_depth
from hw.command import FuseLayout
from hw.engine.ports import EngineCounters
from hw.softmax.sum_queue import sum_queue_depth

__all__ = ["CommandControl"]


class CommandControl(wiring.Component):
    """Holds a command until its last row has been delivered and its last mask made, and counts.

    Every cycle of a command is one of dot, of axpy, of waiting for room in the middle of a row, or
    one without a row that is ready.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    i : In, stream of `FuseLayout`
    no_rows : In
        With the command: it has none.
    command, groups : Out
        The command in progress, and the columns that a bank holds.
    restart : Out
        A command is taken.
    running : Out
        Its rows may be taken.
    row_accepted, row_last : In
        A row is taken, and is the command's last.
    row_delivered : In
    drained : Out
        Nothing but masks is missing.
    making_masks : In
    dot, axpy, no_room : In
        To be counted: what the array does.
    step, columns : In
        To be counted: dot products of a column a bank are complete, and of how many columns.
    busy : Out
    counters : Out, `EngineCounters`
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        super().__init__(
            {
                "i": In(stream.Signature(FuseLayout(config))),
                "no_rows": In(1),
                "command": Out(FuseLayout(config)),
                "groups": Out(config.local_bits + 1),
                "restart": Out(1),
                "running": Out(1),
                "row_accepted": In(1),
                "row_last": In(1),
                "row_delivered": In(1),
                "drained": Out(1),
                "making_masks": In(1),
                "dot": In(1),
                "axpy": In(1),
                "no_room": In(1),
                "step": In(1),
                "columns": In(range(config.array.banks + 1)),
                "busy": Out(1),
                "counters": Out(EngineCounters()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, counters = self.config, self.counters
        banks = config.array.banks
        m.d.sync += self.groups.eq((self.command.columns + (banks - 1)) >> config.bank_bits)

        last_accepted = Signal()
        with m.If(self.row_accepted):
            m.d.sync += last_accepted.eq(self.row_last)
        # Each row not delivered is in flight, holds room in a queue, or is about to leave.
        queued = max(sum_queue_depth(config), dot_queue_depth(config))
        outstanding = Signal(range(config.array.rows_in_flight + queued + 4))
        m.d.sync += outstanding.eq(outstanding + self.row_accepted - self.row_delivered)

        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.i.ready.eq(1)
                with m.If(self.i.valid):
                    m.d.comb += self.restart.eq(1)
                    m.d.sync += [
                        self.command.eq(self.i.payload),
                        last_accepted.eq(self.no_rows),
                        counters.eq(0),
                    ]
                    m.next = "SETTLE"
            with m.State("SETTLE"):
                # Sizes derived from the command are registered once.
                m.d.comb += self.busy.eq(1)
                m.next = "RUN"
            with m.State("RUN"):
                m.d.comb += [self.busy.eq(1), self.running.eq(~last_accepted)]
                m.d.comb += self.drained.eq(last_accepted & (outstanding == 0))
                with m.If(self.drained & ~self.making_masks):
                    m.next = "IDLE"
        with m.If(self.busy):
            m.d.sync += [
                counters.cycles.eq(counters.cycles + 1),
                counters.rows.eq(counters.rows + self.row_accepted),
                counters.dot.eq(counters.dot + self.dot),
                counters.axpy.eq(counters.axpy + self.axpy),
                counters.no_room.eq(counters.no_room + self.no_room),
                counters.no_row.eq(counters.no_row + ~(self.dot | self.axpy | self.no_room)),
                counters.kept.eq(counters.kept + self.columns),
                counters.imbalance.eq(counters.imbalance + Mux(self.step, banks - self.columns, 0)),
            ]
        return m
