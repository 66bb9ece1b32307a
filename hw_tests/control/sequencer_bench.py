"""cocotb side of the sequencer's tests."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles, RisingEdge

from disc.config import BusConfig
from disc.program import Queue
from disc.program.encoding import WORD_BYTES
from hw_tests.blocks.vector_bench import Changing
from hw_tests.control.dram import ReadMemory
from hw_tests.control.programs import Rules
from hw_tests.lib import rng, start
from hw_tests.lib.clocking import now
from hw_tests.sim import inputs, outputs

P = "sequencer__"


class Units:
    """The four units: each takes a command when it is ready, and is done some cycles later."""

    def __init__(self, dut: Any, pause: Changing) -> None:
        self.rules: Rules | None = None
        self.busy = (1, 1)
        self.fails: set[int] = set()
        self.starts: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self._edge = RisingEdge(dut.clk)
        self._ports = {
            queue: [
                getattr(dut, f"{P}{queue.name.lower()}__{name}")
                for name in ("command__valid", "command__ready", "command__payload")
            ]
            for queue in Queue
        }
        self._done = {q: getattr(dut, f"{P}{q.name.lower()}__done") for q in Queue}
        self._failed = {q: getattr(dut, f"{P}{q.name.lower()}__failed") for q in Queue}
        self._random = rng("units")
        self._pauses = {q: pause.pause.decisions(rng(f"unit {q.name}")) for q in Queue}
        for queue in Queue:
            self._ports[queue][1].value = self._done[queue].value = self._failed[queue].value = 0
        cocotb.start_soon(self._run())

    async def _run(self) -> None:
        ready = dict.fromkeys(Queue, False)
        offered: dict[Queue, int | None] = dict.fromkeys(Queue)
        left = dict.fromkeys(Queue, 0)
        finishing: list[tuple[Queue, bool]] = []
        while True:
            await self._edge
            for queue, (valid, _, payload) in self._ports.items():
                if not valid.value:
                    assert offered[queue] is None, f"{queue.name}: an offer was withdrawn"
                    continue
                raw = int(payload.value)
                assert offered[queue] in (None, raw), f"{queue.name}: an offer was changed"
                offered[queue] = None if ready[queue] else raw
                assert not left[queue], f"{queue.name}: offer while a command is in progress"
                if ready[queue]:
                    assert self.rules is not None, "a command before the program"
                    index = self.rules.start(queue, raw, len(payload))
                    self.starts[index] = now()
                    left[queue] = self._random.randint(*self.busy)
            # What is done at this edge counts from the next one on.
            for queue, failed in finishing:
                index = self.rules.started[queue]
                self.ends[index] = now()
                self.rules.done(queue, failed=failed)
                self._done[queue].value = self._failed[queue].value = 0
            finishing = []
            for queue in Queue:
                if left[queue] == 1:
                    failed = self.rules.started[queue] in self.fails
                    finishing.append((queue, failed))
                    self._done[queue].value = 1
                    self._failed[queue].value = int(failed)
                left[queue] = max(0, left[queue] - 1)
                ready[queue] = not next(self._pauses[queue])
                self._ports[queue][1].value = int(ready[queue])


async def finished(dut: Any) -> None:
    """Wait for the end of the program."""
    edge = RisingEdge(dut.clk)
    for _ in range(200_000):
        await edge
        if getattr(dut, f"{P}done").value:
            return
    raise AssertionError("the program does not end")


@cocotb.test(timeout_time=50, timeout_unit="ms")
async def programs(dut: Any) -> None:
    """Run programs one after another.

    Inputs: `bus` (word bits, burst), `cases`, and of each the fields of `ProgramCase`.
    Outputs: `n.starts` and `n.ends`, cycles by index (-1: never), and `n.begin`.
    """
    given = inputs()
    bus = BusConfig.model_validate_json(given["bus"])
    pause = Changing()
    image = bytearray()
    latency = (1, 1)
    dut_ports = {name: getattr(dut, P + name) for name in ("start", "address", "count")}
    for port in dut_ports.values():
        port.value = 0
    await start(dut)
    memory = ReadMemory(dut, f"{P}read", image, bus, lambda: latency, pause.pause)
    units = Units(dut, pause)
    result: dict[str, Any] = {}
    for n in range(given["cases"]):
        mine = {k.removeprefix(f"{n}."): v for k, v in given.items() if k.startswith(f"{n}.")}
        pause.policy = mine["pause"]
        latency = tuple(mine["latency"].tolist())
        data, address = mine["words"].tobytes(), mine["address"]
        image[:] = bytes(address) + data
        words = [
            int.from_bytes(data[i : i + WORD_BYTES], "little")
            for i in range(0, len(data), WORD_BYTES)
        ]
        lists = [mine[name].tolist() for name in ("queues", "waits", "signals")]
        rules = units.rules = Rules(words, *lists)
        units.busy, units.fails = tuple(mine["busy"].tolist()), set(mine["fails"].tolist())
        units.starts, units.ends = {}, {}
        dut_ports["address"].value, dut_ports["count"].value = address, len(words)
        dut_ports["start"].value = 1
        await RisingEdge(dut.clk)
        begin = now()
        for port in dut_ports.values():
            port.value = 0
        await finished(dut)
        code, index = (int(getattr(dut, P + name).value) for name in ("error", "error_index"))
        assert (code, index) == tuple(mine["error"].tolist()), f"case {n}: {code=} {index=}"
        assert not getattr(dut, f"{P}busy").value
        assert all(one is None for one in rules.started.values()), "ended before its commands"
        if mine["complete"] >= 0:
            wanted = [i for i in range(mine["complete"]) if lists[0][i] >= 0]
            assert sorted(rules.complete) == wanted, f"case {n}: not all, or more, was executed"
        for name, cycles in (("starts", units.starts), ("ends", units.ends)):
            result[f"{n}.{name}"] = np.array([cycles.get(i, -1) for i in range(len(words))])
        result[f"{n}.begin"] = begin
        before = len(memory.cycles)
        await ClockCycles(dut.clk, 30)
        assert len(memory.cycles) == before, "still reading"
    outputs(**result)
