"""cocotb side of the store unit's tests."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge

from disc.config import CoreConfig
from hw_tests.blocks.vector_bench import Changing
from hw_tests.control.dram import ReadMemory, WriteMemory
from hw_tests.lib import StreamSink, StreamSource, start
from hw_tests.lib.clocking import now
from hw_tests.sim import inputs, outputs

READS = ("read_latent", "read_reference", "read_previous")
WRITES = ("write_rows", "write_lists")

MOST_CYCLES = 100_000
"""Of a command."""


async def fill(dut: Any, buffer: int, tokens: list[int]) -> None:
    """Fill a list buffer."""
    edge = RisingEdge(dut.clk)
    dut.lists__list.value = buffer
    dut.lists__en.value = 1
    for entry, token in enumerate(tokens):
        dut.lists__entry.value, dut.lists__token.value = entry, token
        await edge
    dut.lists__en.value = 0
    dut.lists__count.value, dut.lists__set.value = len(tokens), 1
    await edge
    dut.lists__set.value = 0


@cocotb.test(timeout_time=60, timeout_unit="ms")
async def stores(dut: Any) -> None:
    """Execute commands of the store queue, case by case.

    Inputs: `config` (JSON); `cases`, and of each `n.image`, `n.masks` (uint8 [lines, bytes]),
    `n.list.<buffer>`, `n.commands` (uint8 [commands, bytes]), `n.pauses` (of reads, of writes, of
    the mask memory) and `n.latency` (least and most of reads, of writes).
    Outputs, by case: `images` behind each command, `failed`, `starts`, `ends`, `data` and `space`
    (cycles of waiting), `lines` asked for by each command, cycles of `reads` and of `writes`.
    """
    given = inputs()
    config = CoreConfig.model_validate_json(given["config"])
    image = bytearray()
    latency = [(1, 1), (1, 1)]
    pauses = [Changing() for _ in range(3)]
    for name in ("list", "entry", "token", "en", "count", "set"):
        getattr(dut, f"lists__{name}").value = 0
    await start(dut)
    read = [
        ReadMemory(dut, name, image, config.bus, lambda: latency[0], pauses[0].pause)
        for name in READS
    ]
    written = [
        WriteMemory(dut, name, image, config.bus, lambda: latency[1], pauses[1].pause)
        for name in WRITES
    ]
    source = StreamSource(dut, "queue__command", len(dut.queue__command__payload))
    lines: list[int] = []
    address_bits = len(dut.mask_read__payload)
    words = StreamSource(dut, "mask_word", len(dut.mask_word__payload), pauses[2].pause)
    asked = StreamSink(
        dut,
        "mask_read",
        address_bits,
        pauses[2].pause,
        callback=lambda address: words.send_raw([lines[address] << address_bits | address]),
    )
    edge = RisingEdge(dut.clk)
    result: dict[str, Any] = {}
    for n in range(given["cases"]):
        mine = {k.removeprefix(f"{n}."): v for k, v in given.items() if k.startswith(f"{n}.")}
        for pause, policy in zip(pauses, mine["pauses"].tolist(), strict=True):
            pause.policy = policy
        latency[:] = [tuple(pair) for pair in mine["latency"].tolist()]
        image[:] = mine["image"].tobytes()
        lines[:] = [int.from_bytes(line.tobytes(), "little") for line in mine["masks"]]
        for name, tokens in mine.items():
            if name.startswith("list."):
                await fill(dut, int(name.removeprefix("list.")), tokens.tolist())
        for one in (*read, *written):
            one.cycles.clear()
        source.accepted.clear()
        images, failures, ends, data, space, counts = [], [], [], [], [], []
        for raw in mine["commands"]:
            source.send_raw([int.from_bytes(raw.tobytes(), "little")])
            first = len(asked.received)
            waits, begun = [0, 0], now()
            while True:
                await edge
                waits[0] += int(dut.waiting_data.value)
                waits[1] += int(dut.waiting_space.value)
                assert now() - begun < MOST_CYCLES, f"case {n}, command {len(ends)} hangs"
                if dut.queue__done.value:
                    break
            images.append(np.frombuffer(bytes(image), np.uint8))
            ends.append(now())
            failures.append(int(dut.queue__failed.value))
            data.append(waits[0])
            space.append(waits[1])
            counts.append(len(asked.received) - first)
            assert not words._queue, "lines that nobody took"
        result |= {
            f"{n}.images": np.stack(images),
            f"{n}.failed": np.array(failures),
            f"{n}.starts": np.array(source.accepted),
            f"{n}.ends": np.array(ends),
            f"{n}.data": np.array(data),
            f"{n}.space": np.array(space),
            f"{n}.lines": np.array(counts),
        }
        for name, one in zip((*READS, *WRITES), (*read, *written), strict=True):
            result[f"{n}.{name}"] = np.array(one.cycles)
    outputs(**result)
