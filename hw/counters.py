"""What a core counts while it executes a program."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from disc.program import Queue
from hw.engine import EngineCounters

__all__ = ["COUNTER_BITS", "CoreCounters", "ProgramCounters", "QueueCounters", "QueueState"]

COUNTER_BITS = 40
"""Of every counter: 18 minutes at 1 GHz."""


class QueueState(data.StructLayout):
    """What a queue and its unit do in a cycle."""

    def __init__(self):
        super().__init__(
            {
                "started": 1,
                "busy": 1,  # a command is in progress
                "waiting_data": 1,  # as the unit says
                "waiting_space": 1,
                "blocked": 1,  # no command in progress, and the next one waits for a token
            }
        )


class QueueCounters(data.StructLayout):
    """Cycles of a queue, and its commands."""

    def __init__(self):
        names = ("commands", "busy", "waiting_data", "waiting_space", "blocked")
        super().__init__(dict.fromkeys(names, COUNTER_BITS))


class CoreCounters(data.StructLayout):
    """Since the program's start.

    `engine` adds up what the engine counts in its commands.  `read_words` and `write_words` are
    words of the bus.
    """

    def __init__(self):
        queues = {queue.name.lower(): QueueCounters() for queue in Queue}
        engine = data.StructLayout(dict.fromkeys(dict(EngineCounters()), COUNTER_BITS))
        super().__init__(
            {
                "cycles": COUNTER_BITS,
                **queues,
                "engine": engine,
                "read_words": COUNTER_BITS,
                "write_words": COUNTER_BITS,
            }
        )


class ProgramCounters(wiring.Component):
    """Counts events; nothing of it is in anybody's way.

    Members
    -------
    clear : In
        A program starts.
    running : In
    <queue>_state : In, `QueueState`
    engine_busy, engine_counters : In
        `EngineCounters` of the command that ends when `engine_busy` falls.
    read_word, write_word : In
        A word is transferred.
    counters : Out, `CoreCounters`
        They hold when the program is complete.
    """

    def __init__(self):
        super().__init__(
            {
                "clear": In(1),
                "running": In(1),
                **{f"{queue.name.lower()}_state": In(QueueState()) for queue in Queue},
                "engine_busy": In(1),
                "engine_counters": In(EngineCounters()),
                "read_word": In(1),
                "write_word": In(1),
                "counters": Out(CoreCounters()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        counters = self.counters
        was_busy = Signal()
        m.d.sync += was_busy.eq(self.engine_busy)
        with m.If(self.running):
            m.d.sync += [
                counters.cycles.eq(counters.cycles + 1),
                counters.read_words.eq(counters.read_words + self.read_word),
                counters.write_words.eq(counters.write_words + self.write_word),
            ]
            for queue in Queue:
                name = queue.name.lower()
                state, own = getattr(self, f"{name}_state"), counters[name]
                m.d.sync += own.commands.eq(own.commands + state.started)
                for name in ("busy", "waiting_data", "waiting_space", "blocked"):
                    m.d.sync += own[name].eq(own[name] + state[name])
        with m.If(was_busy & ~self.engine_busy):
            for name in dict(EngineCounters()):
                own = counters.engine[name]
                m.d.sync += own.eq(own + self.engine_counters[name])
        with m.If(self.clear):
            m.d.sync += counters.eq(0)
        return m
