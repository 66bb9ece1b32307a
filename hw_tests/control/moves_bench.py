"""cocotb side of the tests of readers, writers and arbiters."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles, RisingEdge

from disc.config import BusConfig
from hw.memory.packer import ByteWord
from hw.memory.reader import RowRequest
from hw_tests.blocks.vector_bench import Changing
from hw_tests.control.dram import ReadMemory, WriteMemory
from hw_tests.lib import StreamSink, StreamSource, start
from hw_tests.lib.codec import width
from hw_tests.sim import inputs, outputs


def _words(array: np.ndarray) -> list[int]:
    return [int.from_bytes(row.tobytes(), "little") for row in array]


def _port(name: str, part: str) -> str:
    """Ports of a block, or of a part of the block `sharing`."""
    return f"{name}_{part}" if name.startswith("sharing__") else f"{name}__{part}"


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def moves(dut: Any) -> None:
    """Move rows, case by case.

    Inputs: `bus`; `readers` and `writers` (names) with the bytes of their words, `sizes.<name>`;
    `read` and `write`, names of memory ports; `image`; `cases`, and of each `n.pauses` (of memory,
    sources, sinks), `n.latency`, `n.size` (of a reader), `n.size.<name>`
    (of a writer that has several), `n.rows.<name>` [R, 2], `n.count.<name>`
    (words of a reader) and `n.words.<name>` (of a writer, uint8 [W, size]).
    Outputs: `n.<name>`, words of a reader; cycles `n.cycles.<name>` and `n.cycles.memory`, those of
    rows `n.taken.<name>`; `image` behind all cases.
    """
    given = inputs()
    bus = BusConfig.model_validate_json(given["bus"])
    image = bytearray(given["image"].tobytes())
    pauses = {name: Changing() for name in ("memory", "in", "out")}
    latency = (1, 1)
    readers, writers = (given[name].tolist() for name in ("readers", "writers"))
    await start(dut)
    memories = []
    for direction, kind in (("read", ReadMemory), ("write", WriteMemory)):
        names = given[direction].tolist()
        memories += [
            kind(dut, name, image, bus, lambda: latency, pauses["memory"].pause) for name in names
        ]
    row, rows, streams = RowRequest(), {}, {}
    for name in (*readers, *writers):
        rows[name] = StreamSource(dut, _port(name, "rows"), row, pauses["in"].pause)
    for name in readers:
        bits = width(ByteWord(given[f"sizes.{name}"]))
        streams[name] = StreamSink(dut, _port(name, "o"), bits, pauses["out"].pause)
    for name in writers:
        bits = 8 * given[f"sizes.{name}"]
        streams[name] = StreamSource(dut, _port(name, "i"), bits, pauses["in"].pause)
    seen = dict.fromkeys(readers, 0)
    result: dict[str, Any] = {}
    for n in range(given["cases"]):
        mine = {k.removeprefix(f"{n}."): v for k, v in given.items() if k.startswith(f"{n}.")}
        for pause, policy in zip(pauses.values(), mine["pauses"].tolist(), strict=True):
            pause.policy = policy
        latency = tuple(mine["latency"].tolist())
        if "size" in mine:
            dut.reader__size.value = mine["size"]
        for name in writers:
            if f"size.{name}" in mine:
                getattr(dut, _port(name, "size")).value = mine[f"size.{name}"]
        for memory in memories:
            memory.cycles.clear()
        for name, source in rows.items():
            source.accepted.clear()
            wanted = mine[f"rows.{name}"].tolist()
            source.send([{"address": a, "length": length} for a, length in wanted])
        for name in writers:
            streams[name].accepted.clear()
            streams[name].send_raw(_words(mine[f"words.{name}"]))
        for name in writers:
            await streams[name].drained()
            await rows[name].drained()
            while not getattr(dut, _port(name, "idle")).value:
                await RisingEdge(dut.clk)
            result[f"{n}.cycles.{name}"] = np.array(streams[name].accepted)
        for name in readers:
            sink = streams[name]
            await sink.take(mine[f"count.{name}"])
        await ClockCycles(dut.clk, 8)  # whatever comes in them came unasked
        for name in readers:
            sink, new = streams[name], slice(seen[name], None)
            size = -(-width(ByteWord(given[f"sizes.{name}"])) // 8)
            raw = b"".join(word.to_bytes(size, "little") for word in sink.received[new])
            result[f"{n}.{name}"] = np.frombuffer(raw, np.uint8).reshape(-1, size)
            result[f"{n}.cycles.{name}"] = np.array(sink.transfers[new])
            seen[name] = len(sink.received)
        for name, source in rows.items():
            result[f"{n}.taken.{name}"] = np.array(source.accepted)
        result[f"{n}.cycles.memory"] = np.array([c for one in memories for c in one.cycles])
    outputs(image=np.frombuffer(bytes(image), np.uint8), **result)
