"""Pipelined reciprocal: one table look-up and one Newton step."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from disc.tables import RECIPROCAL_BITS, RECIPROCAL_INDEX_BITS, reciprocal_table
from hw.adder_tree import delay
from hw.fixed import lookup, round_shift

__all__ = ["Reciprocal"]


class Reciprocal(wiring.Component):
    """`1 / total ~ y / 2**(16 + n)` with `n = floor(log2(total))`; relative error below 8e-5.

    Latency `Reciprocal.LATENCY` cycles, one result a cycle.  A total of 0 gives y = 0, n = 0.

    Parameters
    ----------
    width : int
        Bits of `total`.

    Members
    -------
    total : In, unsigned
    y : Out, unsigned 17 bits
    n : Out, unsigned
    """

    LATENCY = 4

    def __init__(self, width: int):
        if width < 1:
            raise ValueError(f"width: must be at least 1, got {width}")
        self.width = width
        super().__init__(
            {
                "total": In(width),
                "y": Out(RECIPROCAL_BITS + 1),
                "n": Out(range(max(width, 2))),
            }
        )

    def elaborate(self, platform):
        m = Module()

        # Stage 1: position of the leading one.
        leading = Signal(self.n.shape())
        for i in range(self.width):
            with m.If(self.total[i]):
                m.d.comb += leading.eq(i)
        n = Signal(self.n.shape(), reset_less=True)
        total = Signal(self.width, reset_less=True)
        nonzero = Signal(reset_less=True)
        m.d.sync += [n.eq(leading), total.eq(self.total), nonzero.eq(self.total.any())]

        # Stage 2: mantissa in [1, 2) with 16 fraction bits, cut off; first guess from the table.
        mantissa = Signal(RECIPROCAL_BITS + 1, reset_less=True)
        m.d.sync += mantissa.eq((total << RECIPROCAL_BITS) >> n)

        # Stage 3: 2 - mantissa * guess.
        index = mantissa[RECIPROCAL_BITS - RECIPROCAL_INDEX_BITS : RECIPROCAL_BITS]
        guess_now = lookup(m, index, reciprocal_table(), name="guess_entry")
        guess = Signal.like(guess_now, name="guess", reset_less=True)
        correction = Signal(RECIPROCAL_BITS + 2, reset_less=True)
        two = 1 << (2 * RECIPROCAL_BITS + 1)
        m.d.sync += [
            guess.eq(guess_now),
            correction.eq((two - mantissa * guess_now) >> RECIPROCAL_BITS),
        ]

        # Stage 4: one Newton step.
        keep = delay(m, nonzero, 2, name="nonzero_late")
        y = Signal(RECIPROCAL_BITS + 1, reset_less=True)
        m.d.sync += y.eq(0)
        with m.If(keep):
            m.d.sync += y.eq(round_shift(guess * correction, RECIPROCAL_BITS))
        m.d.comb += [self.y.eq(y), self.n.eq(delay(m, n, 3, name="n_late"))]
        return m
