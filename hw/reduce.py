"""Many values to one."""

from __future__ import annotations

from amaranth.hdl import Mux, Value

__all__ = ["largest"]


def largest(values: list[Value]) -> Value:
    """Return the largest of 2**n values: a tree of comparators."""
    while len(values) > 1:
        pairs = zip(values[::2], values[1::2], strict=True)
        values = [Mux(a > b, a, b) for a, b in pairs]
    return values[0]
