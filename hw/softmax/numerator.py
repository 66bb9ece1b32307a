"""Softmax numerators: base-2 exponential of the distance to the row's integer maximum."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.tables import EXP2_GUARD_BITS, exp2_table
from hw.fixed import lookup, round_shift
from hw.softmax.score import maximum_bits

__all__ = ["NumeratorUnit"]


class NumeratorUnit(wiring.Component):
    """`2**(score - maximum)` as an unsigned `numerator_bits`-bit fraction, 1.0 being all ones.

    The whole part of the distance shifts, its fraction selects one of 2**score_fraction_bits table
    entries with 4 guard bits; rounded to nearest.  There is one unit a bank, so scores never leave
    the bank in which they were computed.

    Latency 1 cycle (the distance is registered), one numerator a cycle.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    score : In, signed `score_bits`
    maximum : In, signed `maximum_bits`
        In whole units of log2.  A score above it counts as equal to it.
    numerator : Out, unsigned `numerator_bits`
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        super().__init__(
            {
                "score": In(signed(config.number.score_bits)),
                "maximum": In(signed(maximum_bits(config))),
                "numerator": Out(config.number.numerator_bits),
            }
        )

    def elaborate(self, platform):
        m = Module()
        number = self.config.number
        difference = Signal(signed(number.score_bits + 2), reset_less=True)
        m.d.sync += difference.eq((self.maximum << number.score_fraction_bits) - self.score)
        distance = Signal(number.score_bits + 1)
        m.d.comb += distance.eq(Mux(difference < 0, 0, difference))

        # From numerator_bits + 2 on every entry rounds to zero, so the shifter need not be wider.
        whole = distance[number.score_fraction_bits :]
        most = number.numerator_bits + 2
        shift = Signal(range(most + EXP2_GUARD_BITS + 1))
        m.d.comb += shift.eq(Mux(whole > most, most, whole) + EXP2_GUARD_BITS)
        entry = lookup(m, distance[: number.score_fraction_bits], exp2_table(number), name="exp2")
        rounded = round_shift(entry, shift)
        top = (1 << number.numerator_bits) - 1
        m.d.comb += self.numerator.eq(Mux(rounded > top, top, rounded))
        return m
