"""Pipelined reciprocal square root: one table look-up and one Newton step."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from disc.tables import RSQRT_BITS, RSQRT_INDEX_BITS, rsqrt_table
from hw.adder_tree import delay
from hw.fixed import lookup, round_shift

__all__ = ["Rsqrt"]


class Rsqrt(wiring.Component):
    """`1 / sqrt(v) ~ y / 2**(16 + n)` with `n = floor(log4(v))`.

    Latency `Rsqrt.LATENCY` cycles, one result a cycle.  A `v` of 0 gives y = 0, n = 0.

    Parameters
    ----------
    width : int
        Bits of `v`.

    Members
    -------
    v : In, unsigned
    y : Out, unsigned 17 bits
    n : Out, unsigned

    Raises
    ------
    ValueError
        `width` is less than 1.
    """

    LATENCY = 6

    def __init__(self, width: int):
        if width < 1:
            raise ValueError(f"width: must be at least 1, got {width}")
        self.width = width
        super().__init__(
            {
                "v": In(width),
                "y": Out(RSQRT_BITS + 1),
                "n": Out(range(max(2, (width + 1) // 2))),
            }
        )

    def elaborate(self, platform):
        m = Module()

        # Stage 1: position of the leading one, halved.
        leading = Signal(range(max(2, self.width)))
        for i in range(self.width):
            with m.If(self.v[i]):
                m.d.comb += leading.eq(i)
        n = Signal(self.n.shape(), reset_less=True)
        odd, nonzero = Signal(reset_less=True), Signal(reset_less=True)
        v = Signal(self.width, reset_less=True)
        m.d.sync += [
            n.eq(leading >> 1),
            odd.eq(leading[0]),
            v.eq(self.v),
            nonzero.eq(self.v.any()),
        ]

        # Stage 2: mantissa in [1, 4) with 16 fraction bits, cut off.
        mantissa = Signal(RSQRT_BITS + 2, reset_less=True)
        m.d.sync += mantissa.eq((v << RSQRT_BITS) >> (n << 1))
        odd = delay(m, odd, 1, name="odd")

        # Stage 3: first guess; the table has a half for each parity of the exponent.
        fine = RSQRT_INDEX_BITS - 1
        index = Signal(RSQRT_INDEX_BITS)
        start = RSQRT_BITS - fine
        even_index, odd_index = mantissa[start:][:fine], mantissa[start + 1 :][:fine]
        m.d.comb += index.eq(Cat(even_index, 0))
        with m.If(odd):
            m.d.comb += index.eq(Cat(odd_index, 1))
        guess = delay(m, lookup(m, index, rsqrt_table(), name="guess_entry"), 1, name="guess")
        mantissa = delay(m, mantissa, 1, name="mantissa_late")

        # Stages 4 and 5: 3 - mantissa * guess**2.
        square = Signal(2 * RSQRT_BITS, reset_less=True)
        correction = Signal(RSQRT_BITS + 2, reset_less=True)
        m.d.sync += square.eq(guess * guess)
        mantissa = delay(m, mantissa, 1, name="mantissa_later")
        three = 3 << (3 * RSQRT_BITS)
        m.d.sync += correction.eq((three - mantissa * square) >> (2 * RSQRT_BITS))

        # Stage 6: one Newton step.
        guess = delay(m, guess, 2, name="guess_late")
        keep = delay(m, nonzero, 4, name="nonzero_late")
        y = Signal(RSQRT_BITS + 1, reset_less=True)
        m.d.sync += y.eq(0)
        with m.If(keep):
            m.d.sync += y.eq(round_shift(guess * correction, RSQRT_BITS + 1))
        m.d.comb += [self.y.eq(y), self.n.eq(delay(m, n, 5, name="n_late"))]
        return m
