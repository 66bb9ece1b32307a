"""Drive a block with one input vector a cycle and record its outputs in every cycle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from amaranth.hdl import Shape
from amaranth.lib import data

from disc.config import CoreConfig
from hw_tests import sim
from hw_tests.blocks.harness import port_shapes, simulator

__all__ = ["drive", "from_bytes", "to_bytes"]


def drive(
    config: CoreConfig,
    block: str,
    inputs: Mapping[str, Any],
    outputs: Iterable[str],
    *,
    seed: int,
) -> dict[str, Any]:
    """Return what came out of `block` in each cycle.

    Row c of an output belongs to the cycle in which row c of the inputs was applied: a block of
    latency n shows in row c + n what it makes of row c.

    Parameters
    ----------
    inputs : mapping of port to values
        Integers [cycles, ...], the dimensions behind those of the port's array; for a structure,
        a mapping by field of such arrays.
    outputs : ports to record
    """
    shapes = port_shapes(config)
    outputs = list(outputs)
    given = {
        f"in.{port}": to_bytes(shapes[f"{block}__{port}"], value) for port, value in inputs.items()
    }
    lengths = {len(words) for words in given.values()}
    assert len(lengths) == 1, f"inputs of {block} differ in length: {lengths}"
    result = sim.run(
        simulator(config),
        "hw_tests.blocks.vectors_bench",
        seed=seed,
        inputs={"block": block, "outputs": np.array(outputs), **given},
    )
    return {port: from_bytes(shapes[f"{block}__{port}"], result.outputs[port]) for port in outputs}


def to_bytes(shape: Any, value: Any) -> np.ndarray:
    """Pack values [n, ...] to port values uint8 [n, bytes], bit 0 first."""
    return np.packbits(_to_bits(shape, value), axis=1, bitorder="little")


def from_bytes(shape: Any, words: np.ndarray) -> Any:
    """Return values [n, ...]; the inverse of `to_bytes`."""
    return _from_bits(shape, np.unpackbits(words, axis=1, bitorder="little"))


def _to_bits(shape: Any, value: Any) -> np.ndarray:
    if isinstance(shape, data.StructLayout):
        fields = list(shape)
        assert set(value) == {key for key, _ in fields}, f"fields {sorted(value)} of {shape!r}"
        return np.concatenate([_to_bits(field.shape, value[key]) for key, field in fields], axis=1)
    value = np.asarray(value, dtype=np.int64)
    if isinstance(shape, data.ArrayLayout):
        assert value.shape[1:2] == (shape.length,), f"{value.shape} for {shape!r}"
        flat = value.reshape(-1, *value.shape[2:])
        return _to_bits(shape.elem_shape, flat).reshape(len(value), -1)
    cast = Shape.cast(shape)
    assert value.ndim == 1, f"{value.shape} for {cast!r}"
    low = -(1 << (cast.width - 1)) if cast.signed else 0
    assert value.min() >= low, f"{value.min()} does not fit {cast!r}"
    assert value.max() < low + (1 << cast.width), f"{value.max()} does not fit {cast!r}"
    return ((value[:, None] >> np.arange(cast.width)) & 1).astype(np.uint8)


def _from_bits(shape: Any, bits: np.ndarray) -> Any:
    if isinstance(shape, data.StructLayout):
        return {
            key: _from_bits(field.shape, bits[:, field.offset : field.offset + field.width])
            for key, field in shape
        }
    if isinstance(shape, data.ArrayLayout):
        count = len(bits)
        flat = bits[:, : shape.size].reshape(count * shape.length, -1)
        value = _from_bits(shape.elem_shape, flat)

        def by_element(values: np.ndarray) -> np.ndarray:
            return values.reshape(count, shape.length, *values.shape[1:])

        if isinstance(value, dict):
            return {key: by_element(values) for key, values in value.items()}
        return by_element(value)
    cast = Shape.cast(shape)
    weights = np.int64(1) << np.arange(cast.width)
    if cast.signed:
        weights[-1] = -weights[-1]
    return bits[:, : cast.width].astype(np.int64) @ weights
