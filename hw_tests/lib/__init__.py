"""Drivers, monitors and scoreboards for cocotb tests.  They run inside the simulator."""

from hw_tests.lib.clocking import CLOCK_NS, cycles, start
from hw_tests.lib.codec import decode, encode
from hw_tests.lib.pauses import PAUSES, Pause, rng
from hw_tests.lib.scoreboard import Scoreboard
from hw_tests.lib.streams import StreamMonitor, StreamSink, StreamSource

__all__ = [
    "CLOCK_NS",
    "PAUSES",
    "Pause",
    "Scoreboard",
    "StreamMonitor",
    "StreamSink",
    "StreamSource",
    "cycles",
    "decode",
    "encode",
    "rng",
    "start",
]
