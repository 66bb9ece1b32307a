"""cocotb tests of mask controller and mask generator; `test_mask_*.py` launch them."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import ClockCycles, RisingEdge

from disc.config import loads
from hw.hash import matrix_layout
from hw.masks.controller import MaskLine
from hw.masks.generator import MaskRow
from hw_tests.lib import PAUSES, StreamSink, StreamSource, encode, rng, start
from hw_tests.lib.clocking import now
from hw_tests.sim import inputs, outputs

SETTLE = 4
"""Cycles from a change of a quasi-static input to its first use."""


class Recorder:
    """Records ports in every cycle in which the first one is not zero."""

    def __init__(self, dut: Any, *names: str):
        self.cycles: list[int] = []
        self.values: list[list[int]] = []
        self._clock = dut.clk
        self._handles = [getattr(dut, name) for name in names]
        cocotb.start_soon(self._watch())

    async def _watch(self) -> None:
        edge, first = RisingEdge(self._clock), self._handles[0]
        while True:
            await edge
            if int(first.value):
                self.cycles.append(now())
                self.values.append([int(handle.value) for handle in self._handles])


def _slots_shape(config: Any) -> Any:
    return range(config.memory.query_rows)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def controller(dut: Any) -> None:
    """Load mask lines and list rows.

    Inputs: `config` (TOML), `pause`, `cases`; for each case n `n.hash`, `n.columns`, `n.masked`,
    `n.early` and `n.late` (address and one word a bank: loaded before the first row, and while
    rows are listed), `n.slots`, `n.reads` (addresses of early lines, read meanwhile).  Outputs for
    each case: cycles in which lines and rows were accepted, `done` rose and was taken; rows taken;
    kept columns (cycle, valid, packed); lines read, and cycles in which their addresses were
    accepted and they were taken.
    """
    given = inputs()
    config, pause = loads(given["config"]), PAUSES[given["pause"]]
    dut.controller__columns.value = 1
    dut.controller__peek_en.value = 0
    await start(dut)
    prefix = "controller__"
    lines = StreamSource(dut, f"{prefix}lines", MaskLine(config), pause)
    rows = StreamSource(dut, f"{prefix}row", _slots_shape(config), pause)
    sink = StreamSink(dut, f"{prefix}done", _slots_shape(config), pause)
    reads = StreamSource(dut, f"{prefix}read", MaskLine(config)["address"].shape, pause)
    words = StreamSink(dut, f"{prefix}word", MaskLine(config), pause)
    offered = Recorder(dut, f"{prefix}done__valid")
    kept = Recorder(dut, f"{prefix}kept_valid", f"{prefix}kept")
    for n in range(given["cases"]):
        case = {name: given[f"{n}.{name}"] for name in ("columns", "masked", "slots")}
        dut.controller__matrix.value = encode(matrix_layout(config), given[f"{n}.hash"].tolist())
        dut.controller__columns.value = case["columns"]
        dut.controller__masked.value = case["masked"]
        for stream in (lines, rows, reads):
            stream.accepted.clear()
        for stream in (sink, words):
            stream.transfers.clear()
            stream.received.clear()
        for log in (offered.cycles, offered.values, kept.cycles, kept.values):
            log.clear()
        await ClockCycles(dut.clk, SETTLE)
        lines.send({"address": w[0], "bits": w[1:]} for w in given[f"{n}.early"].tolist())
        await lines.drained()
        if len(given[f"{n}.late"]):
            lines.send({"address": w[0], "bits": w[1:]} for w in given[f"{n}.late"].tolist())
        rows.send(case["slots"].tolist())
        reads.send(given[f"{n}.reads"].tolist())
        edge = RisingEdge(dut.clk)
        while len(sink.received) < len(case["slots"]):
            await edge
        listed = len(reads.accepted)
        while len(words.received) < len(given[f"{n}.reads"]):
            await edge
        await lines.drained()
        await ClockCycles(dut.clk, SETTLE)
        # A stalled `done` is offered for several cycles; its first one counts.
        rising = [
            c for i, c in enumerate(offered.cycles) if i == 0 or offered.cycles[i - 1] < c - 1
        ]
        outputs(
            **{
                f"{n}.lines": np.array(lines.accepted),
                f"{n}.accepted": np.array(rows.accepted),
                f"{n}.offered": np.array(rising),
                f"{n}.taken": np.array(sink.transfers),
                f"{n}.slots": np.array(sink.received),
                f"{n}.kept": _kept(config, kept),
                f"{n}.read": np.array(reads.accepted),
                f"{n}.read_meanwhile": listed,
                f"{n}.word_taken": np.array(words.transfers),
                f"{n}.words": np.array([[w["address"], *w["bits"]] for w in words.received]),
            }
        )


def _kept(config: Any, kept: Recorder) -> np.ndarray:
    """Return (cycle, bank, local index) of every kept column, by cycle and bank."""
    bits, mask = config.local_bits, (1 << config.local_bits) - 1
    events = [
        (cycle, b, packed >> (b * bits) & mask)
        for cycle, (valid, packed) in zip(kept.cycles, kept.values, strict=True)
        for b in range(config.array.banks)
        if valid >> b & 1
    ]
    return np.array(events, dtype=np.int64).reshape(-1, 3)


@cocotb.test(timeout_time=2, timeout_unit="ms")
async def generator(dut: Any) -> None:
    """Write numerators, hand rows over, collect lines.

    Inputs: `config`, `pause_in`, `pause_out`, `cases`; for each case n `n.hash`, `n.columns`,
    `n.threshold`, `n.diagonal`, `n.fill`, `n.pairs` (hand over rows two at a time, after both have
    been written), `n.rows` (slot, token, outside, total), `n.numerators` [rows, B, groups],
    `n.exists` [B, groups].  Outputs for each case: cycles of rows and lines, the lines, and the
    cycles in which a half was not free and in which the generator was busy.
    """
    given = inputs()
    config = loads(given["config"])
    pause_in, pause_out = PAUSES[given["pause_in"]], PAUSES[given["pause_out"]]
    prefix = "generator__"
    for name in ("write_valid", "claim"):
        getattr(dut, prefix + name).value = 0
    dut.generator__columns.value = 1
    await start(dut)
    rows = StreamSource(dut, f"{prefix}row", MaskRow(config))
    sink = StreamSink(dut, f"{prefix}lines", MaskLine(config), pause_out)
    busy = Recorder(dut, f"{prefix}busy")
    free: list[tuple[int, int]] = []
    cocotb.start_soon(_watch_free(dut, free))
    for n in range(given["cases"]):
        for name in ("columns", "threshold", "diagonal", "fill"):
            getattr(dut, prefix + name).value = given[f"{n}.{name}"]
        dut.generator__matrix.value = encode(matrix_layout(config), given[f"{n}.hash"].tolist())
        for log in (rows.accepted, sink.transfers, sink.received, busy.cycles, busy.values, free):
            log.clear()
        await ClockCycles(dut.clk, SETTLE)
        waiting: list[dict[str, int]] = []
        claims = []
        for i, row in enumerate(given[f"{n}.rows"].tolist()):
            claims.append(
                await _write_row(
                    dut, i % 2, given[f"{n}.numerators"][i], given[f"{n}.exists"], pause_in
                )
            )
            fields = dict(zip(("slot", "token", "outside", "total"), row, strict=True))
            waiting.append({"half": i % 2, **fields})
            if i % 2 or not given[f"{n}.pairs"]:
                rows.send(waiting)
                waiting.clear()
        rows.send(waiting)
        wanted = len(given[f"{n}.rows"]) * given[f"{n}.words"]
        edge = RisingEdge(dut.clk)
        while len(sink.received) < wanted:
            await edge
        await ClockCycles(dut.clk, SETTLE)
        lines = [[line["address"], *line["bits"]] for line in sink.received]
        outputs(
            **{
                f"{n}.accepted": np.array(rows.accepted),
                f"{n}.transfers": np.array(sink.transfers),
                f"{n}.lines": np.array(lines),
                f"{n}.busy": np.array(busy.cycles),
                f"{n}.claims": np.array(claims),
                f"{n}.free": np.array(free),
                f"{n}.end": now(),
            }
        )


async def _watch_free(dut: Any, log: list[tuple[int, int]]) -> None:
    edge = RisingEdge(dut.clk)
    while True:
        await edge
        log.append((now(), int(dut.generator__half_free.value)))


async def _write_row(
    dut: Any, half: int, numerators: np.ndarray, exists: np.ndarray, pause: Any
) -> int:
    """Wait for a half, claim it, write a row of numerators; return the cycle of the claim."""
    edge, random = RisingEdge(dut.clk), rng(f"row {now()}")
    pauses = pause.decisions(random)
    banks, positions = exists.shape
    write_shape = len(dut.generator__numerator) // banks
    while True:
        await edge
        if int(dut.generator__half_free.value) >> half & 1:
            break
    dut.generator__claim.value = 1 << half
    claim = now() + 1
    await edge
    dut.generator__claim.value = 0
    for position in range(positions):
        while next(pauses):
            # What is not valid means nothing.
            dut.generator__write_valid.value = 0
            dut.generator__numerator.value = random.getrandbits(write_shape * banks)
            await edge
        dut.generator__write_valid.value = sum(int(exists[b, position]) << b for b in range(banks))
        dut.generator__write_position.value = position
        dut.generator__write_half.value = half
        dut.generator__numerator.value = sum(
            int(numerators[b, position]) << (b * write_shape) for b in range(banks)
        )
        await edge
    dut.generator__write_valid.value = 0
    dut.generator__numerator.value = random.getrandbits(write_shape * banks)
    return claim
