"""Clock and reset."""

from __future__ import annotations

from typing import Any

from cocotb.clock import Clock
from cocotb.triggers import RisingEdge, Timer
from cocotb.utils import get_sim_time

__all__ = ["CLOCK_NS", "cycles", "now", "start"]

CLOCK_NS = 10
"""Clock period."""


async def start(dut: Any, *, reset_cycles: int = 2) -> None:
    """Start the clock, reset the design, return right after the edge that ends the reset.

    Create drivers directly after it, before the next edge: inputs are random until driven.
    """
    dut.rst.value = 1
    Clock(dut.clk, CLOCK_NS, unit="ns").start()
    edge = RisingEdge(dut.clk)
    for _ in range(reset_cycles):
        await edge
    dut.rst.value = 0


async def cycles(count: int) -> None:
    """Let `count` cycles pass; costs no Python per cycle."""
    await Timer(count * CLOCK_NS, unit="ns")


def now() -> int:
    """Return the number of the current clock cycle."""
    return int(get_sim_time("ns")) // CLOCK_NS
