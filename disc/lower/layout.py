"""What lies where in DRAM: named buffers, and an image of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from disc.program import sizes
from disc.program.program import Buffer, BufferKind

ALIGN = 64
"""Bytes to a multiple of which buffers are aligned: a DRAM burst."""


@dataclass
class Layout:
    """Buffers one behind the other, from `ALIGN` on, so that address 0 names nothing."""

    buffers: list[Buffer] = field(default_factory=list)
    groups: dict[str, str] = field(default_factory=dict)
    """What each holds, for reports: weights, caches, ..."""
    end: int = ALIGN

    def add(self, name: str, size: int, kind: BufferKind, group: str) -> Buffer:
        """Append a buffer of `size` bytes."""
        if name in self.groups:
            raise ValueError(f"buffer {name}: there is one already")
        buffer = Buffer(name, self.end, size, kind)
        self.buffers.append(buffer)
        self.groups[name] = group
        self.end = -(-buffer.end // ALIGN) * ALIGN
        return buffer

    def to_json(self) -> dict[str, Any]:
        """Return names, addresses, sizes and what they are."""
        return {
            "bytes": self.end,
            "buffers": [
                {
                    "name": b.name,
                    "address": b.address,
                    "bytes": b.size,
                    "kind": b.kind.value,
                    "group": self.groups[b.name],
                }
                for b in self.buffers
            ],
        }


class Image:
    """The bytes of a layout; scratch and output buffers hold noise, which nobody may rely on."""

    def __init__(self, layout: Layout, *, seed: int = 0) -> None:
        self.data = np.zeros(layout.end, np.uint8)
        noise = np.random.default_rng(seed)
        for b in layout.buffers:
            if not b.kind.defined:
                self.data[b.address : b.end] = noise.integers(0, 256, b.size, dtype=np.uint8)

    def put(self, buffer: Buffer, values: ArrayLike, kind: str, *, offset: int = 0) -> None:
        """Write numbers of a NumPy type from a byte offset on."""
        array, info = np.asarray(values), np.iinfo(kind)
        if array.size and (array.min() < info.min or array.max() > info.max):
            raise ValueError(
                f"{buffer.name}: values must be in [{info.min}, {info.max}], got "
                f"[{array.min()}, {array.max()}]"
            )
        raw = np.ascontiguousarray(array.astype(kind)).view(np.uint8).ravel()
        if offset + raw.size > buffer.size:
            raise ValueError(
                f"{buffer.name}: {raw.size} bytes at offset {offset} do not fit {buffer.size}"
            )
        start = buffer.address + offset
        self.data[start : start + raw.size] = raw

    def get(
        self, buffer: Buffer, shape: tuple[int, ...], kind: str, *, offset: int = 0
    ) -> NDArray[np.int64]:
        """Read numbers of a NumPy type from a byte offset on."""
        start = buffer.address + offset
        size = int(np.prod(shape)) * np.dtype(kind).itemsize
        if offset + size > buffer.size:
            raise ValueError(f"{buffer.name}: has {buffer.size} bytes, asked for {offset + size}")
        return self.data[start : start + size].view(kind).astype(np.int64).reshape(shape)

    def put_list(self, buffer: Buffer, tokens: Iterable[int]) -> None:
        """Write a row list."""
        entries = list(tokens)
        self.put(buffer, [len(entries), *entries], "<u4")

    def put_constants(
        self,
        buffer: Buffer,
        bias: NDArray[np.int64],
        multiplier: ArrayLike = 0,
        shift: ArrayLike = 0,
    ) -> None:
        """Write the constants of columns, [columns] each."""
        record = np.zeros((len(bias), sizes.CONSTANT_BYTES), np.uint8)
        for (low, high, kind), values in zip(
            ((0, 4, "<i4"), (4, 6, "<u2"), (6, 7, "u1")), (bias, multiplier, shift), strict=True
        ):
            array, info = np.broadcast_to(values, bias.shape), np.iinfo(kind)
            if array.min() < info.min or array.max() > info.max:
                raise ValueError(
                    f"{buffer.name}: constants must be in [{info.min}, {info.max}], got "
                    f"[{array.min()}, {array.max()}]"
                )
            record[:, low:high] = array.astype(kind)[:, None].view(np.uint8)
        self.put(buffer, record, "u1")

    def put_vectors(self, buffer: Buffer, shift: int, *vectors: NDArray[np.int64]) -> None:
        """Write vectors with their shift ahead of them."""
        self.put(buffer, [shift, 0, 0, 0], "<u2")
        self.put(buffer, np.concatenate(vectors), "<i2", offset=sizes.HEADER_BYTES)
