"""cocotb side of the array unit's tests."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge

from disc.config import CoreConfig
from hw.hash import matrix_layout
from hw_tests.blocks.vector_bench import Changing
from hw_tests.control.dram import ReadMemory, WriteMemory
from hw_tests.lib import encode, start
from hw_tests.lib.clocking import now
from hw_tests.sim import inputs, outputs


@cocotb.test(timeout_time=100, timeout_unit="ms")
async def programs(dut: Any) -> None:
    """Run programs one after another.

    Inputs: `config` (JSON); `cases`, and of each `n.image`, `n.program` (address, commands),
    `n.hash`, `n.pauses` (of reads, of writes), `n.latency` (least and most of reads, of writes) and
    `n.most` cycles.
    Outputs, by case: `image`, `error` (code and index), and of the array queue's commands `starts`,
    `ends`, `engine` (cycles in which it is busy), `data` and `space` (cycles of waiting) and
    `stalled` (cycles in which memory does not take a write).
    """
    given = inputs()
    config = CoreConfig.model_validate_json(given["config"])
    image = bytearray()
    latency = [(1, 1), (1, 1)]
    pauses = [Changing(), Changing()]
    for name in ("start", "address", "count", "matrix"):
        getattr(dut, name).value = 0
    await start(dut)
    ReadMemory(dut, "read", image, config.bus, lambda: latency[0], pauses[0].pause)
    WriteMemory(dut, "write", image, config.bus, lambda: latency[1], pauses[1].pause)
    edge = RisingEdge(dut.clk)
    result: dict[str, Any] = {}
    for n in range(given["cases"]):
        mine = {k.removeprefix(f"{n}."): v for k, v in given.items() if k.startswith(f"{n}.")}
        for pause, policy in zip(pauses, mine["pauses"].tolist(), strict=True):
            pause.policy = policy
        latency[:] = [tuple(pair) for pair in mine["latency"].tolist()]
        image[:] = mine["image"].tobytes()
        dut.matrix.value = encode(matrix_layout(config), mine["hash"].tolist())
        dut.address.value, dut.count.value = mine["program"].tolist()
        dut.start.value = 1
        await edge
        dut.start.value = 0
        starts, ends, counts = [], [], []
        for _ in range(mine["most"]):
            await edge
            if dut.begun.value:
                starts.append(now())
                counts.append([0, 0, 0, 0])
            if len(ends) < len(starts):
                stalled = dut.write__request__valid.value and not dut.write__request__ready.value
                counts[-1][3] += int(stalled)
                for i, name in enumerate(("engine_busy", "waiting_data", "waiting_space")):
                    counts[-1][i] += int(getattr(dut, name).value)
            if dut.complete.value:
                ends.append(now())
            if dut.done.value:
                break
        else:
            raise AssertionError(f"case {n}: {len(ends)} of {len(starts)} commands complete")
        engine, data, space, stalled = np.array(counts, np.int64).reshape(-1, 4).T
        result |= {
            f"{n}.image": np.frombuffer(bytes(image), np.uint8),
            f"{n}.error": np.array([int(dut.error.value), int(dut.error_index.value)]),
            f"{n}.starts": np.array(starts),
            f"{n}.ends": np.array(ends),
            f"{n}.engine": engine,
            f"{n}.data": data,
            f"{n}.space": space,
            f"{n}.stalled": stalled,
        }
    outputs(**result)
