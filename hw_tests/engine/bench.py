"""The cocotb side of `simulate`: load, start, wait, read."""

from __future__ import annotations

import time
from typing import Any

import cocotb
import numpy as np
from cocotb.triggers import FallingEdge, RisingEdge, SimTimeoutError, with_timeout

from disc.config import CoreConfig, loads
from disc.hashing import BankHash
from disc.program import Function, FuseCommand, MaskMode
from hw.command import FuseLayout
from hw.hash import matrix_layout
from hw_tests.engine import load, read
from hw_tests.lib import CLOCK_NS, encode, rng, start
from hw_tests.sim import inputs, outputs


@cocotb.test()
async def heads(dut: Any) -> None:
    """Run every job of the caller."""
    given = inputs()
    config = loads(given["config"])
    dut.start.value = 0
    await start(dut)
    for number in range(given["jobs"]):
        prefix = f"{number}."
        job = {k.removeprefix(prefix): v for k, v in given.items() if k.startswith(prefix)}
        results = await _head(dut, config, job)
        outputs(**{prefix + name: value for name, value in results.items()})


async def _head(dut: Any, config: CoreConfig, job: dict[str, Any]) -> dict[str, Any]:
    hash_ = BankHash(config.bank_bits, config.local_bits, tuple(map(int, job["hash"])))
    fields = dict(zip(FuseCommand.widths(config), map(int, job["command"]), strict=True))
    command = FuseCommand.decode(fields)
    dut.matrix.value = encode(matrix_layout(config), list(hash_.rows))
    dut.command.value = encode(FuseLayout(config), fields)
    for stream in ("rows", "results"):
        getattr(dut, f"stall_{stream}").value = int(job["stall"])
    dut.read_masks.value = int(job["read_masks"])

    load.columns(dut, config, hash_, job["k"], command.beats, command.dot_base)
    if command.function != Function.PROJECT:
        load.columns(dut, config, hash_, job["v"], command.sum_beats(), command.axpy_base)
    if command.function == Function.GELU:
        load.constants(dut, config, hash_, command.constant_base, job["constants"])
        load.table(dut, config, job["table"])

    hot = command.function == Function.GELU and command.mode == MaskMode.GENERATE
    if hot:
        load.masks(dut, config, hash_, job["mask"], [command.mask_slot])
    rows, tile_rows = len(job["q"]), int(job["tile_rows"])
    parts: dict[str, list[Any]] = {"counters": []}
    seconds = 0.0
    for begin in range(0, max(1, rows), tile_rows):
        tile = slice(begin, min(begin + tile_rows, rows))
        if hot and begin:
            # Further rows add to the columns that are hot already.
            fields["fresh"] = 0
            dut.command.value = encode(FuseLayout(config), fields)
        # Slots in random order: nothing may depend on a row lying where it is computed.
        count = tile.stop - tile.start
        slots = rng(f"slots {begin}").sample(range(int(job["slots"])), count)
        tokens = job["token"][tile]
        load.rows(dut, config, command, job["q"][tile], slots)
        if command.mode == MaskMode.MASKED:
            mask = job["mask"][tile]
            owners = [0] * count if command.shared_mask else slots
            load.masks(dut, config, hash_, mask, [command.mask_slot + s for s in owners])
        load.row_list(dut, config, slots, {name: job[name][tile] for name in load.ROW_FIELDS})
        dut.row_count.value = count
        begun = time.perf_counter()
        await _execute(dut, limit=_patience(config, command, count, int(job["stall"])))
        seconds += time.perf_counter() - begun
        parts["counters"].append(_counters(dut))
        for name, value in read.results(dut, config, command, hash_, slots, tokens).items():
            parts.setdefault(name, []).append(value)
    arrays = {name: np.concatenate(values) for name, values in parts.items() if name != "counters"}
    return {**arrays, "counters": np.array(parts["counters"]), "seconds": seconds}


def _patience(config: CoreConfig, command: FuseCommand, rows: int, stall: int) -> int:
    """Return cycles after which a command must have ended, however it was stalled."""
    groups = command.groups(config)
    beats = command.beats + 2 * command.sum_beats()
    out = (8 * config.array.lanes + 4) * command.sum_beats()
    dense = rows * (groups * beats + out + groups + 100)
    return 1000 + 4 * dense * 256 // (256 - stall)


async def _execute(dut: Any, *, limit: int) -> None:
    edge = RisingEdge(dut.clk)
    dut.start.value = 1
    await edge
    dut.start.value = 0
    await edge
    await edge
    if dut.busy.value:
        try:
            await with_timeout(FallingEdge(dut.busy), limit * CLOCK_NS, "ns")
        except SimTimeoutError:
            raise AssertionError(f"engine: still busy after {limit} cycles") from None


def _counters(dut: Any) -> list[int]:
    word = dut.counters.value.to_unsigned()
    return [word >> shift & 0xFFFF_FFFF for shift in range(0, 256, 32)]
