"""cocotb test of the normaliser; `test_normaliser.py` launches it."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles, RisingEdge

from disc.config import loads
from hw.normaliser import FinishedRow, ResultWord
from hw_tests.lib import PAUSES, StreamSink, encode, rng, start
from hw_tests.lib.clocking import now
from hw_tests.sim import inputs, outputs, pack_words

SETTLE = 4


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def normalise(dut: Any) -> None:
    """Finish rows as the array does, in alternate halves of the accumulators.

    Inputs: `config`, `pause_in`, `pause_out`, `alone` (no row before the last one has left),
    `cases`; for each case n `n.multiplier`, `n.shift`, `n.beats`, `n.rows` (slot, token, total,
    last) and `n.acc` [rows, max_beats, L].  Outputs for each case: cycles of rows, words and
    `half_read`, and the words: slot, token, beat, last, data.
    """
    given = inputs()
    config = loads(given["config"])
    pause_in, pause_out = PAUSES[given["pause_in"]], PAUSES[given["pause_out"]]
    dut.normaliser__row_valid.value = 0
    await start(dut)
    sink = StreamSink(dut, "normaliser__o", ResultWord(config), pause_out)
    for n in range(given["cases"]):
        for name in ("multiplier", "shift", "beats"):
            getattr(dut, f"normaliser__{name}").value = given[f"{n}.{name}"]
        await ClockCycles(dut.clk, SETTLE)
        sink.received.clear()
        sink.transfers.clear()
        rows, reads = await _rows(dut, config, given, n, pause_in, sink)
        words = [
            [word["slot"], word["token"], word["beat"], word["last"], *word["data"]]
            for word in sink.received
        ]
        outputs(
            **{
                f"{n}.rows": np.array(rows),
                f"{n}.reads": np.array(reads),
                f"{n}.transfers": np.array(sink.transfers),
                f"{n}.words": np.array(words),
            }
        )


async def _rows(
    dut: Any, config: Any, given: dict[str, Any], n: int, pause: Any, sink: StreamSink
) -> tuple[list[int], list[tuple[int, int]]]:
    """Hand in all rows of a case; return cycles of the rows, and (cycle, half) of the reads."""
    edge, random = RisingEdge(dut.clk), rng(f"case {n}")
    pauses = pause.decisions(random)
    acc_bits = config.number.accumulator_bits
    half_bits = config.max_beats * config.array.lanes * acc_bits
    contents = given[f"{n}.acc"]
    packed = pack_words(contents.reshape(len(contents), -1), acc_bits)
    beats, fields = given[f"{n}.beats"], given[f"{n}.rows"].tolist()
    shape = FinishedRow(config)
    halves = [random.getrandbits(half_bits) for _ in range(2)]
    taken = [False, False]
    rows: list[int] = []
    reads: list[tuple[int, int]] = []
    while len(sink.received) < beats * len(fields):
        await edge
        read = int(dut.normaliser__half_read.value)
        for half in range(2):
            if read >> half & 1:
                assert taken[half], f"half {half} read without a row, at cycle {now()}"
                taken[half] = False
                reads.append((now(), half))
                # Gone at once: the next row may already be summed there.
                halves[half] = random.getrandbits(half_bits)
        row = len(rows)
        waits = given["alone"] and len(sink.received) < beats * row
        valid = row < len(fields) and not taken[row % 2] and not waits and not next(pauses)
        dut.normaliser__row_valid.value = int(valid)
        if valid:
            slot, token, total, last = fields[row]
            value = {"half": row % 2, "slot": slot, "token": token, "total": total, "last": last}
            dut.normaliser__row.value = encode(shape, value)
            halves[row % 2] = packed[row]
            taken[row % 2] = True
            rows.append(now() + 1)
        else:
            dut.normaliser__row.value = random.getrandbits(shape.size)
        dut.normaliser__accumulators.value = halves[0] | halves[1] << half_bits
    assert not any(taken), "a half was never read"
    return rows, reads
