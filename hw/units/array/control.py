"""One command of the array queue at a time."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.program import Function, MaskMode, Queue
from hw.command import FuseLayout
from hw.control.layouts import QueueLayout, QueuePort
from hw.units.array.translate import Translator

__all__ = ["ArrayControl"]


class ArrayControl(wiring.Component):
    """Takes a command, starts the engine and all moves at once, and says when all are done.

    The engine takes the command in the cycle after it was accepted.  A command without rows starts
    nothing, except one that notes hot columns.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    queue : In, `QueuePort`
    command : Out, `QueueLayout`
        In progress.
    listed : In
        Entries of the command's list buffer.
    count : Out
        Rows.
    direct : Out
        As of `Translator`.
    begin : Out
        High for one cycle: moves and rows begin.
    running : Out
        A command is in progress.
    fuse, no_rows : Out
        To the engine.
    engine_busy, written : In
        The engine works; all rows of the moves that began have been written.
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        rows = range(config.memory.query_rows + 1)
        super().__init__(
            {
                "queue": In(QueuePort(Queue.ARRAY, config)),
                "command": Out(QueueLayout(Queue.ARRAY, config)),
                "listed": In(rows),
                "count": Out(rows),
                "direct": Out(1),
                "begin": Out(1),
                "running": Out(1),
                "fuse": Out(stream.Signature(FuseLayout(config))),
                "no_rows": Out(1),
                "engine_busy": In(1),
                "written": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.translator = translator = Translator(self.config)
        # All commands have list and rows in the same place.
        wanted = self.command.project.rows
        fuse = translator.fuse
        finished, noting = Signal(), Signal()
        m.d.comb += [
            noting.eq((fuse.function == Function.GELU) & (fuse.mode == MaskMode.GENERATE)),
            translator.command.eq(self.command),
            self.direct.eq(translator.direct),
            self.fuse.payload.eq(translator.fuse),
            self.count.eq(Mux(wanted < self.listed, wanted, self.listed)),
            self.no_rows.eq(self.count == 0),
            finished.eq(~self.engine_busy & self.written),
        ]
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.queue.command.ready.eq(1)
                m.d.sync += self.command.eq(self.queue.command.payload)
                with m.If(self.queue.command.valid):
                    m.next = "BEGIN"
            with m.State("BEGIN"):
                # The engine is at rest, and so are all moves.  Without rows no column becomes hot,
                # and that is what the mask must say, with no bits beyond the last column.
                m.d.comb += self.running.eq(1)
                with m.If(self.no_rows & ~noting):
                    m.d.comb += self.queue.done.eq(1)
                    m.next = "IDLE"
                with m.Else():
                    m.d.comb += self.fuse.valid.eq(1)
                    with m.If(self.fuse.ready):
                        m.d.comb += self.begin.eq(1)
                        m.next = "RUN"
            with m.State("RUN"):
                # The engine is busy from the first cycle on.
                m.d.comb += [self.running.eq(1), self.queue.done.eq(finished)]
                with m.If(finished):
                    m.next = "IDLE"
        return m
