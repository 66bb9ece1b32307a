"""Constants of rows, computed ahead of the rows' words."""

from __future__ import annotations

from amaranth.hdl import Module, ShapeLike, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

__all__ = ["RowQueue"]


class RowQueue(wiring.Component):
    """Queue behind a pipeline that cannot stop; it lets in no more rows than it can hold.

    A row that `accept` let in comes out of the pipeline `latency` cycles later, as `result`.

    Parameters
    ----------
    shape
        Shape of a result.
    latency : int
        Cycles from `accept` to `result`, at least 1.  The queue holds as many rows as keep one-word
        rows at one a cycle.

    Members
    -------
    free : Out
        A row may be let in.
    accept : In
        One is let in; only while `free`.
    result : In
    inside : Out
        A row was let in and has not left.
    o : Out, stream of `shape`

    Raises
    ------
    ValueError
        `latency` is less than 1.
    """

    def __init__(self, shape: ShapeLike, latency: int):
        if latency < 1:
            raise ValueError(f"latency: must be at least 1, got {latency}")
        self.shape, self.latency = shape, latency
        self.depth = latency + 2
        super().__init__(
            {
                "free": Out(1),
                "accept": In(1),
                "result": In(shape),
                "inside": Out(1),
                "o": Out(stream.Signature(shape)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        width = data.ArrayLayout(self.shape, 1).size
        m.submodules.queue = queue = SyncFIFO(width=width, depth=self.depth)
        held = Signal(range(self.depth + 1))
        coming = Signal(self.latency)
        taken = self.o.valid & self.o.ready
        m.d.sync += [
            held.eq(held + self.accept - taken),
            coming.eq(coming << 1 | self.accept),
        ]
        m.d.comb += [
            self.free.eq(held != self.depth),
            self.inside.eq(held != 0),
            queue.w_data.eq(self.result),
            queue.w_en.eq(coming[-1]),
            self.o.valid.eq(queue.r_rdy),
            self.o.payload.eq(queue.r_data),
            queue.r_en.eq(self.o.ready),
        ]
        return m
