"""cocotb test of the token selector; `test_selector.py` launches it."""

from __future__ import annotations

from typing import Any

import cocotb
import numpy as np

from disc.config import loads
from hw.units.store.selector import command_layout, pixels_layout, summary_layout
from hw_tests.lib import PAUSES, Scoreboard, StreamSink, StreamSource, start
from hw_tests.lib.codec import width
from hw_tests.sim import inputs, outputs


@cocotb.test(timeout_time=20, timeout_unit="ms")
async def select(dut: Any) -> None:
    """Run all commands and compare both lists and the counts with the expected ones.

    Inputs: `config` (TOML), `pause_in`, `pause_out`, `commands` [n, 6], `words` [w, pixels, 3],
    `selected`, `reused` (indices of all commands in a row), `counts` [n, 2].
    """
    given = inputs()
    config = loads(given["config"])
    pause_in, pause_out = PAUSES[given["pause_in"]], PAUSES[given["pause_out"]]
    context = f"{config.name} {config.digest}, in {pause_in.name}, out {pause_out.name}"
    boards = {name: Scoreboard(name, context) for name in ("selected", "reused", "summary")}
    counts = [
        {"selected": int(selected), "reused": int(reused)} for selected, reused in given["counts"]
    ]
    boards["selected"].expect(given["selected"].tolist())
    boards["reused"].expect(given["reused"].tolist())
    boards["summary"].expect(counts)

    def summary(value: dict[str, int]) -> None:
        boards["summary"].got(value)
        for name in ("selected", "reused"):
            taken = sum(count[name] for count in counts[: boards["summary"].index])
            assert boards[name].index == taken, f"summary before the last index of {name}"

    await start(dut)
    index_bits = width(summary_layout(config)["selected"].shape) - 1
    commands = StreamSource(dut, "commands", command_layout(config), pause_in)
    pixels = StreamSource(dut, "pixels", pixels_layout(config), pause_in)
    for name in ("selected", "reused"):
        StreamSink(dut, name, index_bits, pause_out, callback=boards[name].got)
    summaries = StreamSink(dut, "summary", summary_layout(config), pause_out, callback=summary)

    fields = [key for key, _ in command_layout(config)]
    commands.send(dict(zip(fields, command, strict=True)) for command in given["commands"].tolist())
    values = ("z", "ref", "prev")
    pixels.send(
        [dict(zip(values, value, strict=True)) for value in word]
        for word in given["words"].tolist()
    )
    await summaries.take(len(counts))
    for board in boards.values():
        board.finish()
    await pixels.drained()
    outputs(
        start=np.array(commands.accepted),
        first=np.array(pixels.accepted[:1]),
        end=np.array(summaries.transfers),
    )
