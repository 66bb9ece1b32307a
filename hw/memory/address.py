"""Addresses of rows: `base + index * stride`."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from disc.program.fields import ADDRESS_BITS, STRIDE_BITS, TOKEN_BITS
from hw.memory.reader import LENGTH_BITS, RowRequest

__all__ = ["RowAddresses", "RowRun"]


class RowRun(data.StructLayout):
    """`rows` rows of `length` bytes, `stride` apart.

    With `gather` row s is that of the token in entry s of the list, else it is row s.
    """

    def __init__(self, most_rows: int):
        super().__init__(
            {
                "rows": range(most_rows + 1),
                "base": ADDRESS_BITS,
                "stride": STRIDE_BITS,
                "length": LENGTH_BITS,
                "gather": 1,
            }
        )


class RowAddresses(wiring.Component):
    """Rows of a run, one a cycle.

    The product of token and stride is a multiplier of 20 x 24 bits, a cycle of its own, between
    the list buffer and the adder.  Differences of tokens cannot replace it: a list may be in any
    order.  A serial multiplier would need more cycles than short rows take on a wide bus.

    Latency: a row is offered 4 cycles after its run was taken.  The next run is taken when the
    last row of the one before has been looked up.

    Parameters
    ----------
    most_rows : int
        Of a run.

    Members
    -------
    run : In, stream of `RowRun`
        Without rows, nothing comes of it.
    entry, en : Out
    token : In
        Of the list, as in `ListReadPort`.
    rows : Out, stream of `RowRequest`
    """

    def __init__(self, most_rows: int):
        self.most_rows = most_rows
        super().__init__(
            {
                "run": In(stream.Signature(RowRun(most_rows))),
                "entry": Out(range(most_rows + 1)),
                "en": Out(1),
                "token": In(TOKEN_BITS),
                "rows": Out(stream.Signature(RowRequest())),
            }
        )

    def elaborate(self, platform):
        m = Module()
        run = Signal(RowRun(self.most_rows))
        entry = self.entry
        active = Signal()

        # Rigid: it stops as a whole while a row waits.
        advance, last = Signal(), Signal()
        m.d.comb += [
            advance.eq(~self.rows.valid | self.rows.ready),
            active.eq(entry != run.rows),
            last.eq(entry + 1 == run.rows),
            self.run.ready.eq(~active | (last & advance)),
            self.en.eq(advance),
        ]
        index, looked_up = Signal(TOKEN_BITS), Signal()
        product, multiplied = Signal(TOKEN_BITS + STRIDE_BITS), Signal()
        # What a run says of its rows goes along with them.
        runs = [run]
        for n in range(2):
            later = Signal(run.shape(), name=f"run_{n + 1}")
            with m.If(advance):
                m.d.sync += later.eq(runs[-1])
            runs.append(later)
        with m.If(advance):
            m.d.sync += [
                looked_up.eq(active),
                index.eq(entry),
                entry.eq(entry + active),
                multiplied.eq(looked_up),
                self.rows.valid.eq(multiplied),
                self.rows.payload.length.eq(runs[2].length),
                self.rows.payload.address.eq(runs[2].base + product),
            ]
            with m.If(runs[1].gather):
                m.d.sync += product.eq(self.token * runs[1].stride)
            with m.Else():
                m.d.sync += product.eq(index * runs[1].stride)
        with m.If(self.run.valid & self.run.ready):
            m.d.sync += [run.eq(self.run.payload), entry.eq(0)]
        return m
