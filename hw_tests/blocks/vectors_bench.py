"""The cocotb side of `vectors.drive`."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge

from hw_tests.lib import start
from hw_tests.sim import inputs, outputs


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def drive(dut: Any) -> None:
    """Apply `in.<port>` [cycles, bytes] to the ports of `block`; return `outputs` likewise."""
    given = inputs()
    prefix = f"{given['block']}__"
    sources = [
        (getattr(dut, prefix + name.removeprefix("in.")), words)
        for name, words in given.items()
        if name.startswith("in.")
    ]
    cycles = len(sources[0][1])
    changes: list[list[tuple[Any, int]]] = [[] for _ in range(cycles)]
    for handle, words in sources:
        last = None
        for cycle, word in enumerate(words):
            value = int.from_bytes(word.tobytes(), "little")
            if value != last:
                changes[cycle].append((handle, value))
                last = value

    sinks = [getattr(dut, prefix + name) for name in given["outputs"].tolist()]
    seen: list[list[int]] = [[] for _ in sinks]
    await start(dut)
    edge = RisingEdge(dut.clk)
    for now in changes:
        for handle, value in now:
            handle.value = value
        await edge
        for handle, values in zip(sinks, seen, strict=True):
            values.append(int(handle.value))

    for name, handle, values in zip(given["outputs"].tolist(), sinks, seen, strict=True):
        size = -(-len(handle) // 8) if hasattr(handle, "__len__") else 1
        raw = b"".join(value.to_bytes(size, "little") for value in values)
        outputs(**{name: np.frombuffer(raw, np.uint8).reshape(cycles, size)})
