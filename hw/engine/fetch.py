"""Operands for the array: list entry, then bank and row words, then the array."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.program import Function
from hw.adder_tree import adder_tree, adder_tree_latency, delay
from hw.array.dpu_array import ArrayStep, scalar_bits
from hw.command import FuseLayout
from hw.engine.issue import Step
from hw.engine.rows import RowSlot
from hw.masks.generator import total_bits
from hw.softmax.numerator import NumeratorUnit

__all__ = ["OperandFetch"]


class OperandFetch(wiring.Component):
    """Reads what a step needs and hands it to the array; adds up the numerators of a row.

    Cycle 0: list entries.  Cycle 1: bank words, row word, distance of the score to the maximum.
    Cycle 2: the array's operand registers take everything.

    With `mark` the array delivers no sum of an axpy over all columns.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    command : In, `FuseLayout`
        Quasi-static.
    go, step, row : In
        From the issuer, and the row's slot.
    local, value : In, [B]
        From the `RowStore`, which is read at the step's position in cycle 0: local index and
        score, or operand.
    kept_counts, kept_local, kept_numerator : In, [B]
        From `KeptColumns`, likewise.
    bank_en, bank_address : Out, [B]
    word_en, word_address : Out
        To banks and row buffer, in cycle 1.
    array_valid, array_step, array_enable, array_scalar : Out
        To the array, in cycle 2.
    array_local : Out, [B]
        Local indices, in cycle 2.
    numerator_valid, numerator : Out, [B]
    numerator_position, numerator_half : Out
        Each numerator of a row over all columns, once.
    total_valid, total, total_half, total_kept : Out
        Sum of a row's numerators, a cycle before its first word of sums leaves the array or more.
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        B, number = config.array.banks, config.number
        local = data.ArrayLayout(config.local_bits, B)
        numerators = data.ArrayLayout(number.numerator_bits, B)
        words = (config.memory.bank_words - 1).bit_length()
        super().__init__(
            {
                "command": In(FuseLayout(config)),
                "go": In(1),
                "step": In(Step(config)),
                "row": In(RowSlot(config)),
                "local": In(local),
                "value": In(data.ArrayLayout(signed(number.score_bits), B)),
                "kept_counts": In(data.ArrayLayout(config.local_bits + 1, B)),
                "kept_local": In(local),
                "kept_numerator": In(numerators),
                "bank_en": Out(1),
                "bank_address": Out(data.ArrayLayout(words, B)),
                "word_en": Out(1),
                "word_address": Out(range(max(2, config.query_words))),
                "array_valid": Out(1),
                "array_step": Out(ArrayStep()),
                "array_enable": Out(B),
                "array_scalar": Out(data.ArrayLayout(signed(scalar_bits(config)), B)),
                "array_local": Out(local),
                "numerator_valid": Out(B),
                "numerator": Out(numerators),
                "numerator_position": Out(config.local_bits),
                "numerator_half": Out(1),
                "total_valid": Out(1),
                "total": Out(total_bits(config)),
                "total_half": Out(1),
                "total_kept": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, B = self.config, self.config.array.banks
        step_0 = self.step
        softmax = self.command.function == Function.SOFTMAX

        # Cycle 0.
        counts = [Mux(step_0.kept, self.kept_counts[b], self.row.counts[b]) for b in range(B)]
        enable_0 = Cat(step_0.position < counts[b] for b in range(B))

        # Cycle 1.
        valid_1 = delay(m, self.go, 1, name="valid", reset_less=False)
        step_1 = data.View(Step(config), delay(m, Value.cast(step_0), 1, name="step"))
        enable_1 = delay(m, enable_0, 1, name="enable")
        word_1 = Signal(self.word_address.shape(), reset_less=True)
        maximum_1 = Signal(self.row.maximum.shape(), reset_less=True)
        m.d.sync += [word_1.eq(self.row.word + step_0.beat), maximum_1.eq(self.row.maximum)]
        m.d.comb += [
            self.bank_en.eq(valid_1),
            self.word_en.eq(valid_1),
            self.word_address.eq(word_1),
        ]
        kept_2 = delay(m, step_1.kept, 1, name="kept_late")
        numerators = []
        for b in range(B):
            m.submodules[f"numerator_{b}"] = unit = NumeratorUnit(config)
            local = Mux(step_1.kept, self.kept_local[b], self.local[b])
            kept = delay(m, self.kept_numerator[b], 1, name=f"kept_numerator_{b}")
            value = delay(m, self.value[b], 1, name=f"value_{b}")
            numerator = Signal(config.number.numerator_bits, name=f"numerator_2_{b}")
            m.d.comb += [
                self.bank_address[b].eq(local + step_1.offset),
                unit.score.eq(self.value[b]),
                unit.maximum.eq(maximum_1),
                numerator.eq(Mux(kept_2, kept, unit.numerator)),
                self.array_scalar[b].eq(Mux(softmax, numerator, value)),
            ]
            m.d.sync += self.array_local[b].eq(local)
            numerators.append(numerator)

        # Cycle 2.
        valid_2 = delay(m, valid_1, 1, name="valid_late", reset_less=False)
        step_2 = data.View(Step(config), delay(m, Value.cast(step_1), 1, name="step_late"))
        enable_2 = delay(m, enable_1, 1, name="enable_late")
        m.d.comb += [
            self.array_valid.eq(valid_2),
            self.array_step.axpy.eq(step_2.axpy),
            self.array_step.first.eq(step_2.first),
            self.array_step.last.eq(
                step_2.last & ~(self.command.mark & step_2.axpy & ~step_2.kept)
            ),
            self.array_step.last_step.eq(step_2.last_column),
            self.array_enable.eq(enable_2),
        ]
        self._count_numerators(m, valid_2, step_2, enable_2, numerators, softmax)
        return m

    def _count_numerators(self, m, valid_2, step_2, enable_2, numerators, softmax):
        """Add up a row's numerators; each counts once, in the row's first word."""
        config, B = self.config, self.config.array.banks
        counted_2 = valid_2 & step_2.axpy & (step_2.beat == 0)

        # Cycle 3.
        step_3 = data.View(Step(config), delay(m, Value.cast(step_2), 1, name="step_3"))
        counted_3 = delay(m, counted_2, 1, name="counted", reset_less=False)
        masked = []
        for b in range(B):
            numerator = Signal(config.number.numerator_bits, name=f"numerator_3_{b}")
            m.d.sync += numerator.eq(Mux(counted_2 & enable_2[b] & softmax, numerators[b], 0))
            m.d.comb += self.numerator[b].eq(numerator)
            masked.append(numerator)
        kept = Signal(B)
        m.d.sync += kept.eq(Mux(counted_2 & ~step_2.kept, enable_2, 0))
        m.d.comb += [
            self.numerator_valid.eq(kept),
            self.numerator_position.eq(step_3.position),
            self.numerator_half.eq(step_3.half),
        ]

        cycles = adder_tree_latency(B)
        counted = delay(m, counted_3, cycles, name="total_counted", reset_less=False)
        step = data.View(Step(config), delay(m, Value.cast(step_3), cycles, name="total_step"))
        added = Mux(step.first, 0, self.total) + adder_tree(m, masked, name="total")
        with m.If(counted):
            m.d.sync += self.total.eq(added)
        m.d.sync += [
            self.total_valid.eq(counted & step.last),
            self.total_half.eq(step.half),
            self.total_kept.eq(step.kept),
        ]
