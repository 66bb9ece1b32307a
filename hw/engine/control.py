"""One command at a time: taken, held, and finished when its last row has been delivered."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from hw.command import FuseLayout
from hw.dot_queue import dot_queue_depth
from hw.engine.ports import EngineCounters
from hw.sum_queue import sum_queue_depth

__all__ = ["CommandControl"]


class CommandControl(wiring.Component):
    """Holds a command until its last row has been delivered and its last mask made, and counts.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    i : In, stream of `FuseLayout`
    command, groups : Out
        The command in progress, and the columns that a bank holds.
    restart : Out
        A command is taken.
    running : Out
        Its rows may be taken.
    row_accepted, row_last : In
        A row is taken, and is the command's last.
    row_delivered : In
    making_masks : In
    dot, axpy, columns : In
        To be counted: a cycle of dot, a cycle of axpy, columns whose dot product is complete.
    busy : Out
    counters : Out, `EngineCounters`
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        super().__init__(
            {
                "i": In(stream.Signature(FuseLayout(config))),
                "command": Out(FuseLayout(config)),
                "groups": Out(config.local_bits + 1),
                "restart": Out(1),
                "running": Out(1),
                "row_accepted": In(1),
                "row_last": In(1),
                "row_delivered": In(1),
                "making_masks": In(1),
                "dot": In(1),
                "axpy": In(1),
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
                        last_accepted.eq(0),
                        counters.eq(0),
                    ]
                    m.next = "SETTLE"
            with m.State("SETTLE"):
                # Sizes derived from the command are registered once.
                m.d.comb += self.busy.eq(1)
                m.next = "RUN"
            with m.State("RUN"):
                m.d.comb += [self.busy.eq(1), self.running.eq(~last_accepted)]
                with m.If(last_accepted & (outstanding == 0) & ~self.making_masks):
                    m.next = "IDLE"
        with m.If(self.busy):
            m.d.sync += [
                counters.cycles.eq(counters.cycles + 1),
                counters.rows.eq(counters.rows + self.row_accepted),
                counters.dot.eq(counters.dot + self.dot),
                counters.axpy.eq(counters.axpy + self.axpy),
                counters.kept.eq(counters.kept + self.columns),
            ]
        return m
