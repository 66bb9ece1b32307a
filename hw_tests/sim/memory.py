"""Backdoor access to memories: load and read them without simulated time.

An `Sram` that is submodule `bank0` of the top is `dut.bank0.words`, if the build was given
`public=[(Sram.MODULE, "words")]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from cocotb.handle import Immediate

__all__ = ["pack_words", "read_memory", "unpack_words", "write_memory"]


def pack_words(lanes: np.ndarray, bits: int) -> list[int]:
    """Pack rows of lanes into memory words, lane 0 at bit 0.

    Parameters
    ----------
    lanes : integer array [words, lanes]
        Signed or unsigned; each must fit `bits`.
    bits : int
        Width of a lane, 1 to 63.

    Raises
    ------
    ValueError
        A value does not fit.
    """
    wide = np.asarray(lanes, dtype=np.int64)
    if wide.size and (wide.min() < -(1 << (bits - 1)) or wide.max() >= 1 << bits):
        raise ValueError(f"lanes: values from {wide.min()} to {wide.max()} do not fit {bits} bits")
    single = (wide[:, :, None] >> np.arange(bits)) & 1
    packed = np.packbits(single.reshape(len(wide), -1).astype(np.uint8), 1, bitorder="little")
    return [int.from_bytes(row.tobytes(), "little") for row in packed]


def unpack_words(words: Sequence[int], lanes: int, bits: int, *, signed: bool) -> np.ndarray:
    """Return int64 lanes [words, lanes]; the inverse of `pack_words`."""
    size = -(-lanes * bits // 8)
    packed = np.frombuffer(b"".join(word.to_bytes(size, "little") for word in words), np.uint8)
    single = np.unpackbits(packed.reshape(-1, size), 1, count=lanes * bits, bitorder="little")
    weights = 1 << np.arange(bits, dtype=np.int64)
    if signed:
        weights[-1] = -weights[-1]
    return single.reshape(-1, lanes, bits).astype(np.int64) @ weights


def write_memory(memory: Any, words: Sequence[int], *, offset: int = 0) -> None:
    """Store words from `offset` on, at once.  Do it between clock edges."""
    for index, word in enumerate(words, offset):
        memory[index].set(Immediate(word))


def read_memory(memory: Any, count: int, *, offset: int = 0) -> list[int]:
    """Return `count` words from `offset` on."""
    return [memory[index].value.to_unsigned() for index in range(offset, offset + count)]
