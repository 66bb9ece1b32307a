"""Balanced sums with a register after every second level."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Module, Signal, Value

__all__ = ["adder_tree", "adder_tree_latency", "delay"]

_LEVELS_PER_STAGE = 2


def adder_tree_latency(terms: int) -> int:
    """Cycles that `adder_tree` takes for this many terms."""
    levels = (terms - 1).bit_length()
    return -(-levels // _LEVELS_PER_STAGE)


def adder_tree(m: Module, terms: Sequence[Value], *, name: str) -> Value:
    """Return the exact sum of `terms`, `adder_tree_latency(len(terms))` cycles later.

    Throughput is one sum a cycle.  Widths grow, so nothing overflows.  Terms are all signed or all
    unsigned.
    """
    level, terms = 0, list(terms)
    while len(terms) > 1:
        pairs = [a + b for a, b in zip(terms[::2], terms[1::2], strict=False)]
        terms = pairs + terms[len(pairs) * 2 :]
        level += 1
        if level % _LEVELS_PER_STAGE == 0 or len(terms) == 1:
            registered = []
            for i, term in enumerate(terms):
                register = Signal(term.shape(), name=f"{name}_{level}_{i}", reset_less=True)
                m.d.sync += register.eq(term)
                registered.append(register)
            terms = registered
    return terms[0]


def delay(m: Module, value: Value, cycles: int, *, name: str, reset_less: bool = True) -> Value:
    """Return `value` as it was `cycles` cycles ago."""
    for i in range(cycles):
        register = Signal(value.shape(), name=f"{name}_{i + 1}", reset_less=reset_less)
        m.d.sync += register.eq(value)
        value = register
    return value
