"""cocotb side of the vector unit's tests; `vector_harness.run` launches it."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles

from hw_tests.lib import PAUSES, Pause, StreamSink, StreamSource, start
from hw_tests.sim import inputs, outputs

LATE = 40
"""Cycles by which streams that are to be late begin behind those that are named before them."""

SETTLE = 8
"""Cycles without traffic between cases: whatever comes in them came unasked."""


class Changing:
    """A pause whose policy changes from case to case."""

    def __init__(self) -> None:
        self.policy = "never"
        self.pause = Pause("changing", self._decisions)

    def _decisions(self, random: Random) -> Iterator[bool]:
        policies = {name: pause.decisions(random) for name, pause in PAUSES.items()}
        while True:
            yield next(policies[self.policy])


def _words(array: np.ndarray) -> list[int]:
    return [int.from_bytes(row.tobytes(), "little") for row in array]


@cocotb.test(timeout_time=3, timeout_unit="ms")
async def cases(dut: Any) -> None:
    """Stream cases through a block, one after another.

    Inputs: `block`, `sources` and `sinks` (names of its streams), `widths` of their payloads,
    `cases`; for each case n `n.pause_in`, `n.pause_out`, `n.set.<port>`, `n.pulse` (ports that are
    high for a cycle), `n.late` (streams that begin later), `n.load.<stream>` (taken before the rest
    begins), `n.in.<stream>` and `n.count.<stream>`, words as uint8 [words, bytes].
    Outputs: `n.out.<stream>` likewise, and the cycles of all transfers, `n.cycles.<stream>`.
    """
    given = inputs()
    prefix = f"{given['block']}__"
    pause_in, pause_out = Changing(), Changing()
    names = [*given["sources"].tolist(), *given["sinks"].tolist()]
    widths = dict(zip(names, given["widths"].tolist(), strict=True))
    busy = getattr(dut, f"{prefix}busy", None)
    await start(dut)
    sources = {
        name: StreamSource(dut, prefix + name, widths[name], pause_in.pause)
        for name in given["sources"].tolist()
    }
    sinks = {
        name: StreamSink(dut, prefix + name, widths[name], pause_out.pause)
        for name in given["sinks"].tolist()
    }
    seen = dict.fromkeys(sinks, 0)
    result: dict[str, np.ndarray] = {}
    for n in range(given["cases"]):
        mine = {key.removeprefix(f"{n}."): v for key, v in given.items() if key.startswith(f"{n}.")}
        pause_in.policy, pause_out.policy = mine["pause_in"], mine["pause_out"]
        for key, value in mine.items():
            if key.startswith("set."):
                getattr(dut, prefix + key.removeprefix("set.")).value = value
        for level in (1, 0):
            for port in mine.get("pulse", []):
                getattr(dut, prefix + port).value = level
            await ClockCycles(dut.clk, 1)
        for kind in ("load.", "in."):
            used = [key for key in mine if key.startswith(kind)]
            for key in used:
                if key.removeprefix("in.") in mine.get("late", []):
                    await ClockCycles(dut.clk, LATE)
                source = sources[key.removeprefix(kind)]
                source.accepted.clear()  # transfers of `load` do not count
                source.send_raw(_words(mine[key]))
            for key in used:
                await sources[key.removeprefix(kind)].drained()
        for name, sink in sinks.items():
            await sink.take(mine[f"count.{name}"])
        await ClockCycles(dut.clk, SETTLE)
        assert busy is None or not busy.value, f"case {n}: still busy"
        for name, sink in sinks.items():
            size, new = -(-widths[name] // 8), slice(seen[name], None)
            raw = b"".join(word.to_bytes(size, "little") for word in sink.received[new])
            result[f"{n}.out.{name}"] = np.frombuffer(raw, np.uint8).reshape(-1, size)
            result[f"{n}.cycles.{name}"] = np.array(sink.transfers[new], dtype=np.int64)
            seen[name] = len(sink.received)
        for name, source in sources.items():
            result[f"{n}.cycles.{name}"] = np.array(source.accepted, dtype=np.int64)
            source.accepted.clear()
    outputs(**result)
