"""cocotb side of the load unit's tests."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge

from disc.config import BusConfig
from hw_tests.blocks.vector_bench import Changing
from hw_tests.control.dram import ReadMemory
from hw_tests.lib import StreamSink, StreamSource, start
from hw_tests.lib.clocking import now
from hw_tests.sim import inputs, outputs

P = "loading__"


async def look(dut: Any, buffer: int) -> list[int]:
    """Read a list buffer."""
    port = {name: getattr(dut, f"{P}look__{name}") for name in ("list", "entry", "en", "token")}
    edge, found = RisingEdge(dut.clk), []
    port["list"].value, port["en"].value = buffer, 1
    await edge
    await edge
    count = int(getattr(dut, f"{P}look__count").value)
    for entry in range(count):
        port["entry"].value = entry
        await edge  # the address is applied
        await edge  # it is read
        await edge  # the token can be seen
        found.append(int(port["token"].value))
    port["en"].value = 0
    return found


@cocotb.test(timeout_time=30, timeout_unit="ms")
async def loads(dut: Any) -> None:
    """Execute commands of the load queue, case by case.

    Inputs: `bus`, `streams` and `widths` of their payloads; `cases`, and of each `n.image`,
    `n.commands` (uint8 [commands, bytes]), `n.lists` (the buffer that a command fills, or -1),
    `n.pauses` (of memory, of the streams) and `n.latency`.
    Outputs, by case: `<stream>` (uint8 [words, bytes]) with `cycles.<stream>`, `counts` [commands,
    streams] of words up to each `done`, `failed`, `starts`, `ends`, `memory` (cycles), and what was
    found in list buffers, `list.<command>`.
    """
    given = inputs()
    bus = BusConfig.model_validate_json(given["bus"])
    image = bytearray()
    latency = (1, 1)
    pause_memory, pause_out = Changing(), Changing()
    names = given["streams"].tolist()
    widths = dict(zip(names, given["widths"].tolist(), strict=True))
    done, failed = (getattr(dut, f"{P}queue__{name}") for name in ("done", "failed"))
    for name in ("list", "entry", "en"):
        getattr(dut, f"{P}look__{name}").value = 0
    await start(dut)
    memory = ReadMemory(dut, f"{P}read", image, bus, lambda: latency, pause_memory.pause)
    bits = len(getattr(dut, f"{P}queue__command__payload"))
    source = StreamSource(dut, f"{P}queue__command", bits)
    sinks = {name: StreamSink(dut, P + name, widths[name], pause_out.pause) for name in names}
    edge = RisingEdge(dut.clk)
    result: dict[str, Any] = {}
    for n in range(given["cases"]):
        mine = {k.removeprefix(f"{n}."): v for k, v in given.items() if k.startswith(f"{n}.")}
        pause_memory.policy, pause_out.policy = mine["pauses"].tolist()
        latency = tuple(mine["latency"].tolist())
        image[:] = mine["image"].tobytes()
        seen = {name: len(sink.received) for name, sink in sinks.items()}
        memory.cycles.clear()
        source.accepted.clear()
        counts, failures, ends = [], [], []
        for i, raw in enumerate(mine["commands"]):
            source.send_raw([int.from_bytes(raw.tobytes(), "little")])
            while True:
                await edge
                if done.value:
                    break
            ends.append(now())
            failures.append(int(failed.value))
            counts.append([len(sink.received) - seen[name] for name, sink in sinks.items()])
            if mine["lists"][i] >= 0:
                found = await look(dut, int(mine["lists"][i]))
                result[f"{n}.list.{i}"] = np.array(found, np.int64)
        for name, sink in sinks.items():
            size = -(-widths[name] // 8)
            raw = b"".join(word.to_bytes(size, "little") for word in sink.received[seen[name] :])
            result[f"{n}.{name}"] = np.frombuffer(raw, np.uint8).reshape(-1, size)
            result[f"{n}.cycles.{name}"] = np.array(sink.transfers[seen[name] :])
        result |= {
            f"{n}.counts": np.array(counts),
            f"{n}.failed": np.array(failures),
            f"{n}.starts": np.array(source.accepted),
            f"{n}.ends": np.array(ends),
            f"{n}.memory": np.array(memory.cycles),
        }
    outputs(**result)
