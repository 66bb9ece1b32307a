"""cocotb tests of the simulation infrastructure itself; `test_sim.py` launches them."""

from __future__ import annotations

import os
import time
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import RisingEdge

from hw_tests.lib import PAUSES, Scoreboard, StreamSink, StreamSource, cycles, rng, start
from hw_tests.sim import inputs, outputs, read_memory, write_memory


@cocotb.test(timeout_time=10, timeout_unit="us")
async def edge_semantics(dut: Any) -> None:
    """Right after the edge a bench sees what the flip-flops saw, in both stages of a pipe."""
    await start(dut)
    edge = RisingEdge(dut.clk)
    sent, seen = [], []
    for value in range(1, 9):
        dut.d.value = value
        sent.append(value)
        await edge
        seen.append((dut.q1.value.to_unsigned(), dut.q2.value.to_unsigned()))
    assert seen == list(zip([0, *sent], [0, 0, *sent], strict=False))[: len(sent)], seen


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def stream_echo(dut: Any) -> None:
    """Words sent come out again, under every pause policy."""
    given = inputs()
    await start(dut)
    shape = given["bits"]
    board = Scoreboard("o", "echo")
    source = StreamSource(dut, "i", shape, PAUSES[given["source"]])
    sink = StreamSink(dut, "o", shape, PAUSES[given["sink"]], callback=board.got)
    random = rng("words")
    words = [random.getrandbits(shape) for _ in range(64)]
    board.expect(words)
    source.send(words)
    await source.drained()
    await sink.take(len(words))
    board.finish()
    outputs(first=source.accepted[0], last=source.accepted[-1])


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def backdoor(dut: Any) -> None:
    """Words written by the backdoor are read by the hardware and by the backdoor."""
    words = [int(word) for word in inputs()["words"]]
    await start(dut)
    memory = dut.bank0.words
    write_memory(memory, words)
    assert read_memory(memory, len(words)) == words
    edge = RisingEdge(dut.clk)
    seen = []
    for address in range(len(words)):
        dut.address.value = address
        await edge
        await edge
        dut.address.value = 0
        seen.append(dut.data.value.to_unsigned())
    outputs(seen=seen)


@cocotb.test(timeout_time=1, timeout_unit="ms")
async def as_found(dut: Any) -> None:
    """What a memory holds that nobody wrote, and a register before and after reset."""
    before = dut.count.value.to_unsigned()
    await start(dut)
    outputs(
        memory=np.array(read_memory(dut.bank0.words, 32)),
        before=before,
        after=dut.count.value.to_unsigned(),
    )


@cocotb.test()
async def free_run(dut: Any) -> None:
    """Measure simulated cycles per second; the number is printed, never judged."""
    count = inputs()["cycles"]
    await start(dut)
    begin = time.perf_counter()
    await cycles(count)
    outputs(rate=count / (time.perf_counter() - begin))


@cocotb.test()
async def failing(dut: Any) -> None:
    """Fail."""
    await start(dut)
    raise AssertionError("this test fails on purpose")


@cocotb.test()
async def crashing(dut: Any) -> None:
    """End the simulator without results."""
    await start(dut)
    os._exit(7)


@cocotb.test()
async def hanging(dut: Any) -> None:
    """Spend wall-clock time without simulated time."""
    await start(dut)
    while True:
        time.sleep(0.1)


@cocotb.test(timeout_time=10, timeout_unit="us")
async def constant_bits(dut: Any) -> None:
    """They have their values from the start, whatever the others do."""
    await start(dut)
    edge = RisingEdge(dut.clk)
    for kind in (0, 2, 3, 0):
        dut.kind.value = kind
        await edge
        await edge
        raw = dut.o.value.to_unsigned()
        assert (raw & 31, raw >> 5 & 255, raw >> 13) == (1, kind or 0x21, 0), hex(raw)
