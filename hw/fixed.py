"""Rounding, saturation and table look-up as expressions.

Twins of the functions of the same names in the integer golden core; `docs/arithmetic.md` defines
them.  All are combinational.
"""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Const, Module, Mux, Signal, Value, ValueLike

__all__ = ["lookup", "round_shift", "saturate"]


def round_shift(x: Value, shift: ValueLike) -> Value:
    """Divide by 2**shift, rounding to nearest and halves towards +infinity.

    Computed as `(((2 * x) >> shift) + 1) >> 1`, which is the same number and keeps the adder behind
    the shifter, so that its width does not grow with the shift.
    """
    return (((x << 1) >> shift) + 1) >> 1


def saturate(x: Value, bits: int) -> Value:
    """Clamp to the range of a signed integer of `bits` bits."""
    limit = 1 << (bits - 1)
    clamped = Mux(x >= limit, limit - 1, Mux(x < -limit, -limit, x))
    return clamped[:bits].as_signed()


def lookup(m: Module, index: Value, table: Sequence[int], *, name: str) -> Signal:
    """Return the entry of a constant table of non-negative integers that `index` selects.

    Takes 2**len(index) entries; becomes a small ROM of logic.
    """
    if len(table) != 1 << len(index):
        raise ValueError(f"table: {1 << len(index)} entries wanted, got {len(table)}")
    entry = Signal(max(table).bit_length(), name=name)
    with m.Switch(index):
        for i, value in enumerate(table):
            with m.Case(i):
                m.d.comb += entry.eq(Const(value, len(entry)))
    return entry
