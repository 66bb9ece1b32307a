"""From dot products to scores or operands, and the row's integer maximum."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.tables import MULTIPLIER_BITS, SHIFT_BITS
from hw.adder_tree import delay
from hw.fixed import round_shift, saturate

__all__ = ["ScoreUnit", "maximum_bits"]


def maximum_bits(config: CoreConfig) -> int:
    """Signed bits of a row's integer maximum, in whole units of log2."""
    return config.number.score_bits - config.number.score_fraction_bits + 1


class ScoreUnit(wiring.Component):
    """Requantises B dot products a cycle and keeps the row's maximum.

    `score = saturate(round_shift(dot * multiplier, shift))`: for softmax fixed point in units of
    log2, with `narrow` an operand.  After the last column of a row the maximum over all banks is
    rounded up to a whole number.

    Latency: `score_valid` follows `i_valid` by 2 cycles; `maximum_valid` follows the last
    `i_valid` of a row by 4.  Throughput: one step of B columns a cycle; rows may follow each
    other without a gap.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    narrow : In
        Saturate to `operand_bits`.  Quasi-static.
    i_valid, i, i_enable, i_last : In
        Dot products as the array emits them.
    multiplier, shift : In, [B]
        With the dot products.
    score_valid : Out
    score : Out, [B] signed `score_bits`
    score_enable : Out, [B]
    score_last : Out
    maximum_valid : Out
        Pulses once a row.
    maximum : Out, signed `maximum_bits`
        Of a row that keeps no column the lowest there is, below that of any score.
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        B, number = config.array.banks, config.number
        super().__init__(
            {
                "narrow": In(1),
                "multiplier": In(data.ArrayLayout(MULTIPLIER_BITS, B)),
                "shift": In(data.ArrayLayout(SHIFT_BITS, B)),
                "i_valid": In(1),
                "i": In(data.ArrayLayout(signed(number.accumulator_bits), B)),
                "i_enable": In(B),
                "i_last": In(1),
                "score_valid": Out(1),
                "score": Out(data.ArrayLayout(signed(number.score_bits), B)),
                "score_enable": Out(B),
                "score_last": Out(1),
                "maximum_valid": Out(1),
                "maximum": Out(signed(maximum_bits(config))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        B, number = self.config.array.banks, self.config.number
        score_shape = signed(number.score_bits)
        lowest = -(1 << (number.score_bits - 1))

        for b in range(B):
            product = Signal(
                signed(number.accumulator_bits + MULTIPLIER_BITS),
                name=f"product_{b}",
                reset_less=True,
            )
            shift = Signal(SHIFT_BITS, name=f"shift_{b}", reset_less=True)
            shifted = round_shift(product, shift)
            wide = Signal(shifted.shape(), name=f"wide_{b}")
            m.d.comb += wide.eq(shifted)
            m.d.sync += [
                product.eq(self.i[b] * self.multiplier[b]),
                shift.eq(self.shift[b]),
                self.score[b].eq(
                    Mux(
                        self.narrow,
                        saturate(wide, number.operand_bits),
                        saturate(wide, number.score_bits),
                    )
                ),
            ]
        m.d.comb += [
            self.score_valid.eq(delay(m, self.i_valid, 2, name="valid", reset_less=False)),
            self.score_enable.eq(delay(m, self.i_enable, 2, name="enable")),
            self.score_last.eq(delay(m, self.i_last, 2, name="last")),
        ]

        # Each bank keeps its own maximum over the row; the banks' are compared once, at its end.
        bank_maximum = [Signal(score_shape, name=f"bank_maximum_{b}") for b in range(B)]
        first = Signal(init=1)
        some = Signal()
        with m.If(self.score_valid):
            m.d.sync += [
                first.eq(self.score_last),
                some.eq(self.score_enable.any() | (some & ~first)),
            ]
            for b in range(B):
                candidate = Mux(self.score_enable[b], self.score[b], lowest)
                with m.If(first | (candidate > bank_maximum[b])):
                    m.d.sync += bank_maximum[b].eq(candidate)
        row_done = Signal()
        m.d.sync += row_done.eq(self.score_valid & self.score_last)

        candidates = bank_maximum
        while len(candidates) > 1:
            candidates = [
                Mux(a > b, a, b) for a, b in zip(candidates[::2], candidates[1::2], strict=True)
            ]
        one = 1 << number.score_fraction_bits
        m.d.sync += [
            self.maximum.eq(
                Mux(
                    some,
                    (candidates[0] + (one - 1)) >> number.score_fraction_bits,
                    -(1 << (maximum_bits(self.config) - 1)),
                )
            ),
            self.maximum_valid.eq(row_done),
        ]
        return m
