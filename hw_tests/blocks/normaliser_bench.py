"""cocotb test of the normaliser; `test_normaliser.py` launches it."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles, RisingEdge

from disc.config import loads
from hw.softmax.normaliser import ResultWord
from hw.softmax.sum_queue import QueuedWord, sum_queue_depth
from hw_tests.lib import PAUSES, StreamSink, encode, rng, start
from hw_tests.lib.clocking import now
from hw_tests.sim import inputs, outputs

SETTLE = 4


@cocotb.test(timeout_time=5, timeout_unit="ms")
async def normalise(dut: Any) -> None:
    """Give totals and words of rows as the array and its queue do.

    Inputs: `config`, `pause_in`, `pause_out`, `alone` (no row before the last one has left),
    `cases`; for each case n `n.multiplier`, `n.shift`, `n.beats`, `n.rows` (slot, token, total,
    last) and `n.acc` [rows, max_beats, L].  Outputs for each case: cycles of totals, of words read
    and of words out, and these: slot, token, beat, last, data.
    """
    given = inputs()
    config = loads(given["config"])
    pause_in, pause_out = PAUSES[given["pause_in"]], PAUSES[given["pause_out"]]
    dut.normaliser__total_valid.value = 0
    dut.normaliser__i__valid.value = 0
    await start(dut)
    sink = StreamSink(dut, "normaliser__o", ResultWord(config), pause_out)
    for n in range(given["cases"]):
        for name in ("multiplier", "shift"):
            getattr(dut, f"normaliser__{name}").value = given[f"{n}.{name}"]
        await ClockCycles(dut.clk, SETTLE)
        sink.received.clear()
        sink.transfers.clear()
        totals, reads = await _rows(dut, config, given, n, pause_in, sink)
        words = [
            [word["slot"], word["token"], word["beat"], word["last"], *word["data"]]
            for word in sink.received
        ]
        outputs(
            **{
                f"{n}.totals": np.array(totals),
                f"{n}.reads": np.array(reads),
                f"{n}.transfers": np.array(sink.transfers),
                f"{n}.words": np.array(words),
            }
        )


def _encoded(config: Any, rows: list[list[int]], acc: np.ndarray, beats: int) -> list[int]:
    """Return the words of all rows as port values."""
    shape = QueuedWord(config)
    words = []
    for (slot, token, _, last), sums in zip(rows, acc, strict=True):
        for beat in range(beats):
            row_last = int(beat == beats - 1)
            tag = {"slot": slot, "token": token, "beat": beat, "row_last": row_last}
            tag |= {"last": last & row_last, "kept": 0, "maximum": 0}
            words.append(encode(shape, {"tag": tag, "data": sums[beat].tolist()}))
    return words


async def _rows(
    dut: Any, config: Any, given: dict[str, Any], n: int, pause: Any, sink: StreamSink
) -> tuple[list[int], list[int]]:
    """Hand in all rows of a case; return cycles of the totals and of the words' reads."""
    edge, random = RisingEdge(dut.clk), rng(f"case {n}")
    pauses = pause.decisions(random)
    beats, fields = given[f"{n}.beats"], given[f"{n}.rows"].tolist()
    words = _encoded(config, fields, given[f"{n}.acc"], beats)
    totals: list[int] = []
    reads: list[int] = []
    offered = False
    while len(sink.received) < len(words):
        await edge
        if offered and int(dut.normaliser__i__ready.value):
            reads.append(now())
            offered = False
        row = len(totals)
        # A row's total is known before its first word can be read, and no earlier than there is
        # room for the word.
        room = row * beats < len(reads) + sum_queue_depth(config)
        waits = given["alone"] and len(sink.received) < beats * row
        valid = row < len(fields) and room and not waits and not next(pauses)
        dut.normaliser__total_valid.value = int(valid)
        dut.normaliser__total.value = fields[row][2] if valid else random.getrandbits(8)
        if valid:
            totals.append(now() + 1)
        there = len(reads) < beats * len(totals)
        offered = offered or (there and (given["alone"] or not next(pauses)))
        dut.normaliser__i__valid.value = int(offered)
        dut.normaliser__i__payload.value = words[len(reads)] if offered else 0
    dut.normaliser__i__valid.value = 0
    return totals, reads
