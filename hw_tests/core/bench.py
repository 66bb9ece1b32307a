"""The cocotb side of `simulate`: load DRAM, start, wait, save."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import First, RisingEdge, Timer

from disc.config import CoreConfig, loads
from disc.program import Queue
from hw.counters import CoreCounters
from hw.engine import EngineCounters
from hw.hash import matrix_layout
from hw_tests.core.dram import Traffic
from hw_tests.lib import CLOCK_NS, decode, encode, start
from hw_tests.lib.clocking import now
from hw_tests.lib.codec import width
from hw_tests.sim import inputs, outputs


@cocotb.test()
async def programs(dut: Any) -> None:
    """Run the program of every job."""
    given = inputs()
    config = loads(given["config"])
    for name in ("start", "load", "save", "index", "last", "address", "count", "matrix"):
        getattr(dut, name).value = 0
    dut.traffic.value = encode(Traffic(), {"latency": 1, "spread": 0, "stall": 0})
    await start(dut)
    for n in range(given["jobs"]):
        job = {k.removeprefix(f"{n}."): v for k, v in given.items() if k.startswith(f"{n}.")}
        results = await _run(dut, config, n, job, given["most"])
        outputs(**{f"{n}.{name}": value for name, value in results.items()})


async def _watch(dut: Any, seen: list[tuple[int, ...]]) -> None:
    """Note when queues begin and end commands, and what the engine has counted by then."""
    layout, engine = CoreCounters(), dict(EngineCounters())
    while True:
        await dut.running.value_change
        counted = decode(layout, int(dut.counters.value))["engine"]
        seen.append((now(), int(dut.running.value), *(counted[name] for name in engine)))


async def _pulse(dut: Any, name: str) -> None:
    edge = RisingEdge(dut.clk)
    await edge
    getattr(dut, name).value = 1
    await edge
    getattr(dut, name).value = 0
    await edge
    await edge


async def _run(
    dut: Any, config: CoreConfig, index: int, job: dict[str, Any], most: int
) -> dict[str, Any]:
    size, image = config.bus.word_bytes, job["image"]
    loaded, saved = Path(f"load_{index}.hex"), Path(f"save_{index}.hex")
    write_hex(loaded, image, size)
    traffic = dict(zip(("latency", "spread", "stall"), job["traffic"].tolist(), strict=True))
    dut.traffic.value = encode(Traffic(), traffic)
    dut.matrix.value = encode(matrix_layout(config), job["hash"].tolist())
    dut.index.value = index
    dut.last.value = len(image) // size - 1
    address, count = job["program"].tolist()
    dut.address.value, dut.count.value = address, count
    await _pulse(dut, "load")
    before = time.perf_counter()
    await RisingEdge(dut.clk)
    dut.start.value = 1
    await RisingEdge(dut.clk)
    dut.start.value = 0
    begun, seen = now(), []
    watch = cocotb.start_soon(_watch(dut, seen))
    limit = Timer(most * CLOCK_NS, unit="ns")
    ended = await First(RisingEdge(dut.done), limit)
    assert ended is not limit, f"job {index}: not done after {most} cycles: {_where(dut)}"
    seconds = time.perf_counter() - before
    watch.cancel()
    await _pulse(dut, "save")
    bits = width(CoreCounters())
    counters = int(dut.counters.value).to_bytes(-(-bits // 8), "little")
    result = {
        "image": read_hex(saved, size),
        "state": np.array([int(dut.error.value), int(dut.error_index.value)]),
        "counters": np.frombuffer(counters, np.uint8),
        "seconds": seconds,
        "running": np.array(seen, np.int64).reshape(-1, 2 + len(dict(EngineCounters()))),
        "begun": begun,
    }
    loaded.unlink()
    saved.unlink()
    return result


def _where(dut: Any) -> str:
    """Return what every queue has done and does."""
    found = decode(CoreCounters(), int(dut.counters.value))
    queues = {queue.name.lower(): found[queue.name.lower()] for queue in Queue}
    return ", ".join(
        f"{name}: {own['commands']} commands, busy {own['busy']}, data {own['waiting_data']}, "
        f"space {own['waiting_space']}, blocked {own['blocked']}"
        for name, own in queues.items()
    )


def write_hex(path: Path, image: np.ndarray, size: int) -> None:
    """Write bytes as a line a word, as `$readmemh` wants them."""
    words = image.reshape(-1, size)[:, ::-1].tobytes().hex()
    digits = 2 * size
    lines = np.frombuffer(words.encode(), "u1").reshape(-1, digits)
    path.write_bytes(np.pad(lines, ((0, 0), (0, 1)), constant_values=10).tobytes())


def read_hex(path: Path, size: int) -> np.ndarray:
    """Undo `write_hex`."""
    words = [bytes.fromhex(line)[::-1] for line in path.read_text().split() if line[0] not in "/@"]
    return np.frombuffer(b"".join(words), np.uint8)
