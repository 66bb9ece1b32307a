"""Python values to port values and back, by the Amaranth shape that the hardware uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amaranth.hdl import Shape
from amaranth.lib import data

__all__ = ["decode", "encode", "width"]


def width(shape: Any) -> int:
    """Return the bits of a shape."""
    return Shape.cast(shape).width


def encode(shape: Any, value: Any) -> int:
    """Return `value` as the unsigned number on a port of `shape`.

    Structures are mappings by field name, arrays are sequences, the rest are integers.

    Raises
    ------
    ValueError
        A number does not fit, or the fields or the length are not those of the shape.
    """
    layout = _layout(shape)
    if layout is None:
        number, cast = int(value), Shape.cast(shape)
        low = -(1 << (cast.width - 1)) if cast.signed and cast.width else 0
        if not low <= number < low + (1 << cast.width):
            raise ValueError(f"{number} does not fit {cast!r}")
        return number & ((1 << cast.width) - 1)
    fields = list(layout)
    keys = set(value) if isinstance(value, Mapping) else set(range(len(value)))
    if keys != {key for key, _ in fields}:
        raise ValueError(f"fields {[key for key, _ in fields]} wanted, got {sorted(keys)}")
    return sum(encode(field.shape, value[key]) << field.offset for key, field in fields)


def decode(shape: Any, raw: int) -> Any:
    """Return the value of a port of `shape`: dict, list or int; the inverse of `encode`."""
    layout = _layout(shape)
    if layout is None:
        cast = Shape.cast(shape)
        raw &= (1 << cast.width) - 1
        return raw - (1 << cast.width) if cast.signed and raw >> (cast.width - 1) else raw
    values = {key: decode(field.shape, raw >> field.offset) for key, field in layout}
    return list(values.values()) if isinstance(layout, data.ArrayLayout) else values


def _layout(shape: Any) -> data.Layout | None:
    if isinstance(shape, data.Layout):
        return shape
    if isinstance(shape, type) and issubclass(shape, data.Struct | data.Union):
        return data.Layout.cast(shape)
    return None
