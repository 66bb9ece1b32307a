"""The DPU array: one grid of B x L multipliers with two reductions."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from hw.adder_tree import adder_tree, adder_tree_latency, delay

__all__ = ["ArrayStep", "DpuArray", "scalar_bits"]


def scalar_bits(config: CoreConfig) -> int:
    """Signed bits of a multiplier's second operand: a row's element, a numerator, an activation."""
    return max(config.number.operand_bits, config.number.numerator_bits + 1)


class ArrayStep(data.StructLayout):
    """What one cycle of the array does."""

    def __init__(self):
        super().__init__(
            {
                "axpy": 1,  # reduce over banks, else over lanes
                "first": 1,  # dot: first beat of a column; axpy: first column of a word
                "last": 1,  # dot: last beat of a column; axpy: last column of a word
                "last_step": 1,  # dot: no further column of this row
            }
        )


class DpuArray(wiring.Component):
    """B dot-product units of L lanes; multiplier (b, l) sees element l of bank b's word.

    *dot*: bank b accumulates `sum_l query[l] * word[b][l]` over the beats of its column.
    *axpy*: lane l accumulates `sum_b scalar[b] * word[b][l]` over the columns of a row.  A row's
    words come one after the other, each with all columns, so L accumulators serve rows of any
    length.

    The array never stalls: a step is accepted every cycle, and whoever issues it must have room
    for the result.  Disabled banks contribute zero.

    Latency, from `step_valid` to the accumulator holding the result, `dot_latency` and
    `axpy_latency` cycles: one for the operand registers, one for the products, the adder tree, one
    to accumulate.  Throughput: B * L multiplications a cycle.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    step_valid, step : In, `ArrayStep`
    enable : In, [B]
        Banks that take part.
    word : In, [B][L] signed `operand_bits`
    query : In, [L] signed `operand_bits`
        Broadcast row, used by dot.
    scalar : In, [B] signed `scalar_bits`
        One multiplicand a bank, used by axpy.
    bias : In, [B] signed `accumulator_bits`
        What dot starts from, `dot_latency - 1` cycles after the first beat of a column.
    dot_valid : Out
        `dot` holds finished dot products of the banks in `dot_enable`.
    dot : Out, [B] signed `accumulator_bits`
    dot_enable : Out, [B]
    dot_last : Out
        These were the last of the row.
    sum_valid : Out
        `sum` holds a finished word.
    sum : Out, [L] signed `accumulator_bits`
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        B, L = config.array.banks, config.array.lanes
        acc = signed(config.number.accumulator_bits)
        operand = signed(config.number.operand_bits)
        self.dot_latency = 3 + adder_tree_latency(L)
        self.axpy_latency = 3 + adder_tree_latency(B)
        lanes = data.ArrayLayout(operand, L)
        super().__init__(
            {
                "step_valid": In(1),
                "step": In(ArrayStep()),
                "enable": In(B),
                "word": In(data.ArrayLayout(lanes, B)),
                "query": In(lanes),
                "scalar": In(data.ArrayLayout(signed(scalar_bits(config)), B)),
                "bias": In(data.ArrayLayout(acc, B)),
                "dot_valid": Out(1),
                "dot": Out(data.ArrayLayout(acc, B)),
                "dot_enable": Out(B),
                "dot_last": Out(1),
                "sum_valid": Out(1),
                "sum": Out(data.ArrayLayout(acc, L)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        B, L = self.config.array.banks, self.config.array.lanes

        # Operand registers.  A disabled bank gets a zero multiplicand, whatever its word is.
        products = []
        for b in range(B):
            row = []
            for lane in range(L):
                word = Signal(
                    signed(self.config.number.operand_bits),
                    name=f"word_{b}_{lane}",
                    reset_less=True,
                )
                other = Signal(
                    signed(scalar_bits(self.config)), name=f"other_{b}_{lane}", reset_less=True
                )
                product = Signal(
                    signed(len(word) + len(other)), name=f"product_{b}_{lane}", reset_less=True
                )
                m.d.sync += [
                    word.eq(self.word[b][lane]),
                    other.eq(
                        Mux(
                            self.enable[b],
                            Mux(self.step.axpy, self.scalar[b], self.query[lane]),
                            0,
                        )
                    ),
                    product.eq(word * other),
                ]
                row.append(product)
            products.append(row)

        valid = delay(m, self.step_valid, 2, name="product_valid", reset_less=False)
        step = delay(m, Value.cast(self.step), 2, name="product_step")
        enable = delay(m, self.enable, 2, name="product_enable")
        self._accumulate_dot(m, products, valid, step, enable)
        self._accumulate_axpy(m, products, valid, step)
        return m

    def _accumulate_dot(self, m, products, valid, step, enable):
        B, L = self.config.array.banks, self.config.array.lanes
        cycles = adder_tree_latency(L)
        valid = delay(m, valid, cycles, name="dot_sum_valid", reset_less=False)
        step = data.View(ArrayStep(), delay(m, step, cycles, name="dot_sum_step"))
        enable = delay(m, enable, cycles, name="dot_sum_enable")
        for b in range(B):
            total = adder_tree(m, products[b], name=f"dot_{b}")
            with m.If(valid & ~step.axpy):
                m.d.sync += self.dot[b].eq(Mux(step.first, self.bias[b], self.dot[b]) + total)
        m.d.sync += [
            self.dot_valid.eq(valid & ~step.axpy & step.last),
            self.dot_enable.eq(enable),
            self.dot_last.eq(step.last_step),
        ]

    def _accumulate_axpy(self, m, products, valid, step):
        B, L = self.config.array.banks, self.config.array.lanes
        cycles = adder_tree_latency(B)
        valid = delay(m, valid, cycles, name="axpy_sum_valid", reset_less=False)
        step = data.View(ArrayStep(), delay(m, step, cycles, name="axpy_sum_step"))
        for lane in range(L):
            total = adder_tree(m, [products[b][lane] for b in range(B)], name=f"axpy_{lane}")
            with m.If(valid & step.axpy):
                m.d.sync += self.sum[lane].eq(Mux(step.first, 0, self.sum[lane]) + total)
        m.d.sync += self.sum_valid.eq(valid & step.axpy & step.last)
