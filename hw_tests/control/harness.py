# amaranth: UnusedElaboratable=no
"""All blocks of control and data movement side by side, so that one build serves all benches."""

from __future__ import annotations

from functools import cache

from amaranth.lib import wiring

from disc.config import CoreConfig
from disc.verilog import to_verilog
from hw.control.sequencer import Sequencer
from hw.memory.bus import Bus
from hw_tests import sim
from hw_tests.blocks.harness import SideBySide

__all__ = ["BUSES", "DEPTHS", "blocks", "simulator"]

BUSES = {"tiny": Bus(), "odd": Bus(32, 16), "flat": Bus(128, 4)}
"""By configuration: narrow and wide, and bursts of no more than a command."""

DEPTHS = {"tiny": 4, "odd": 1, "flat": 2}
"""Commands that a queue holds."""


def blocks(config: CoreConfig) -> dict[str, wiring.Component]:
    """Return one of each block."""
    bus = BUSES[config.name]
    return {"sequencer": Sequencer(config, bus, DEPTHS[config.name])}


@cache
def simulator(config: CoreConfig) -> sim.Built:
    """Return the simulator of all blocks, built if it is not yet."""
    top = f"control_{config.name}"
    header = {"configuration": config.digest}
    return sim.build(to_verilog(SideBySide(blocks(config)), top=top, header=header), top)
