"""cocotb side of the vector unit's tests."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles, RisingEdge

from disc.config import CoreConfig
from hw_tests.blocks.vector_bench import SETTLE, Changing
from hw_tests.control.dram import ReadMemory, WriteMemory
from hw_tests.lib import StreamSink, StreamSource, start
from hw_tests.lib.clocking import now
from hw_tests.sim import inputs, outputs
from hw_tests.units.store_bench import fill


@cocotb.test(timeout_time=60, timeout_unit="ms")
async def commands(dut: Any) -> None:
    """Execute commands of the vector queue, case by case.

    Inputs: `config` (JSON); `cases`, and of each `n.image`, `n.list.<buffer>`, `n.commands` (uint8
    [commands, bytes]), `n.pauses` (of reads, of writes, of the row buffer) and `n.latency` (least
    and most of reads, of writes).
    Outputs, by case: `images` behind each command, `failed`, `starts`, `ends`, `data` and `space`
    (cycles of waiting), `held` (cycles in which the row buffer or memory does not take a word) and
    `counts` (words for the row buffer) of each command; `rows` (uint8 [words, bytes]); cycles of
    `rows`, `reads` and `writes`.
    """
    given = inputs()
    config = CoreConfig.model_validate_json(given["config"])
    image = bytearray()
    latency = [(1, 1), (1, 1)]
    pauses = [Changing() for _ in range(3)]
    for name in ("list", "entry", "token", "en", "count", "set"):
        getattr(dut, f"lists__{name}").value = 0
    await start(dut)
    read = ReadMemory(dut, "read", image, config.bus, lambda: latency[0], pauses[0].pause)
    written = WriteMemory(dut, "write", image, config.bus, lambda: latency[1], pauses[1].pause)
    source = StreamSource(dut, "queue__command", len(dut.queue__command__payload))
    rows = StreamSink(dut, "rows", len(dut.rows__payload), pauses[2].pause)
    ports = rows._port, written._in
    edge = RisingEdge(dut.clk)
    result: dict[str, Any] = {}
    for n in range(given["cases"]):
        mine = {k.removeprefix(f"{n}."): v for k, v in given.items() if k.startswith(f"{n}.")}
        for pause, policy in zip(pauses, mine["pauses"].tolist(), strict=True):
            pause.policy = policy
        latency[:] = [tuple(pair) for pair in mine["latency"].tolist()]
        image[:] = mine["image"].tobytes()
        for name, tokens in mine.items():
            if name.startswith("list."):
                await fill(dut, int(name.removeprefix("list.")), tokens.tolist())
        for cycles in (read.cycles, written.cycles, source.accepted):
            cycles.clear()
        seen = len(rows.received)
        found: dict[str, list[Any]] = {
            name: [] for name in ("images", "failed", "ends", "data", "space", "held", "counts")
        }
        for raw in mine["commands"]:
            source.send_raw([int.from_bytes(raw.tobytes(), "little")])
            data = space = held = 0
            while True:
                await edge
                data += int(dut.waiting_data.value)
                space += int(dut.waiting_space.value)
                held += any(one.valid.value and not one.ready.value for one in ports)
                if dut.queue__done.value:
                    break
            found["images"].append(np.frombuffer(bytes(image), np.uint8))
            found["failed"].append(int(dut.queue__failed.value))
            found["ends"].append(now())
            found["data"].append(data)
            found["space"].append(space)
            found["held"].append(held)
            found["counts"].append(len(rows.received) - seen)
        before = len(rows.received), len(read.cycles), len(written.cycles)
        await ClockCycles(dut.clk, SETTLE)
        after = len(rows.received), len(read.cycles), len(written.cycles)
        assert after == before, "something comes behind the last command"
        size = -(-len(dut.rows__payload) // 8)
        words = b"".join(word.to_bytes(size, "little") for word in rows.received[seen:])
        result |= {f"{n}.{name}": np.array(values) for name, values in found.items()}
        result |= {
            f"{n}.starts": np.array(source.accepted),
            f"{n}.rows": np.frombuffer(words, np.uint8).reshape(-1, size),
            f"{n}.rows.cycles": np.array(rows.transfers[seen:]),
            f"{n}.reads": np.array(read.cycles),
            f"{n}.writes": np.array(written.cycles),
        }
    outputs(**result)
