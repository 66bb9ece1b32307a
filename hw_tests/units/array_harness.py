# amaranth: UnusedElaboratable=no
"""Sequencer, load unit, array unit and engine: enough for programs of loads and array commands."""

from __future__ import annotations

from functools import cache

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.program.fields import ADDRESS_BITS
from disc.verilog import to_verilog
from hw.control.fetch import COUNT_BITS
from hw.control.layouts import ProgramError
from hw.control.sequencer import Sequencer
from hw.engine import AttentionEngine
from hw.hash import matrix_layout
from hw.memory.arbiter import ReadArbiter, WriteArbiter
from hw.memory.bus import ReadPort, WritePort
from hw.memory.lists import ListBuffers, ListReadPort
from hw.memory.load import LoadUnit
from hw.units.array import ArrayUnit
from hw_tests import sim
from hw_tests.core.configs import small

__all__ = ["CONFIGS", "Computing", "simulator"]


CONFIGS: dict[str, CoreConfig] = {
    # V = 2 in words of 4; residuals of a byte.
    "plain": small(
        "plain",
        (64, 16),
        array={"banks": 4, "lanes": 4},
        memory={"bank_words": 128, "query_rows": 12, "columns": 64, "head_dim": 12},
        vector={"lanes": 2, "max_channels": 48},
    ),
    # A number at a time in words of 6 on a narrow bus; a header takes two words.
    "serial": small(
        "serial",
        (32, 16),
        array={"banks": 2, "lanes": 6, "rows_in_flight": 2},
        memory={"bank_words": 32, "query_rows": 9, "columns": 16, "head_dim": 10},
        vector={"lanes": 1, "max_channels": 40},
    ),
    # Whole words of 5 at a time; sums of 8 bytes, residuals of 2, a wide bus with short bursts.
    "broad": small(
        "broad",
        (256, 2),
        array={"banks": 8, "lanes": 5},
        memory={
            "bank_words": 40,
            "query_rows": 10,
            "columns": 80,
            "head_dim": 20,
            "mask_word_bits": 8,
        },
        number={
            "accumulator_bits": 40,
            "score_bits": 18,
            "score_fraction_bits": 7,
            "residual_bits": 16,
            "sharing_bits": 16,
            "sharing_guard_bits": 4,
        },
        vector={"lanes": 5, "max_channels": 60},
    ),
}


class Computing(wiring.Component):
    """As a core without vector unit and store unit."""

    def __init__(self, config: CoreConfig):
        self.config = config
        super().__init__(
            {
                "matrix": In(matrix_layout(config)),
                "start": In(1),
                "address": In(ADDRESS_BITS),
                "count": In(COUNT_BITS),
                "done": Out(1),
                "error": Out(ProgramError),
                "error_index": Out(COUNT_BITS),
                "read": Out(ReadPort(config.bus)),
                "write": Out(WritePort(config.bus)),
                "begun": Out(1),
                "complete": Out(1),
                "engine_busy": Out(1),
                "waiting_data": Out(1),
                "waiting_space": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.sequencer = sequencer = Sequencer(config, config.bus)
        m.submodules.load = load = LoadUnit(config, config.bus)
        m.submodules.array = array = ArrayUnit(config)
        m.submodules.engine = engine = AttentionEngine(config)
        for name in ("start", "address", "count"):
            m.d.comb += getattr(sequencer, name).eq(getattr(self, name))
        for name in ("done", "error", "error_index"):
            m.d.comb += getattr(self, name).eq(getattr(sequencer, name))
        wiring.connect(m, sequencer.load, load.queue)
        wiring.connect(m, sequencer.array, array.queue)

        for name, stream in (
            ("operands",) * 2,
            ("table",) * 2,
            ("masks",) * 2,
            ("rows", "queries"),
        ):
            wiring.connect(m, getattr(load, name), getattr(engine, stream))
        for name in ("command", "rows"):
            wiring.connect(m, getattr(array, name), getattr(engine, name))
        for name in ("o", "sums", "dots"):
            wiring.connect(m, getattr(engine, name), getattr(array, name))
        wiring.connect(m, load.constants, engine.constants)
        m.d.comb += [
            array.constants.payload.eq(load.constants.payload),
            array.constants.valid.eq(load.constants.valid),
            engine.matrix.eq(self.matrix),
            array.matrix.eq(self.matrix),
            array.engine_busy.eq(engine.busy),
            engine.no_rows.eq(array.no_rows),
            self.begun.eq(array.queue.command.valid & array.queue.command.ready),
            self.complete.eq(array.queue.done),
            self.engine_busy.eq(engine.busy),
            self.waiting_data.eq(array.waiting_data),
            self.waiting_space.eq(array.waiting_space),
        ]

        units = (sequencer, load, array)
        lists_ports = _ports(units, ListReadPort)
        m.submodules.lists = lists = ListBuffers(config, len(lists_ports))
        wiring.connect(m, load.list_write, lists.write)
        for n, port in enumerate(lists_ports):
            wiring.connect(m, port, getattr(lists, f"read_{n}"))
        for name, kind, arbiter in (
            ("read", ReadPort, ReadArbiter),
            ("write", WritePort, WriteArbiter),
        ):
            ports = _ports(units, kind)
            m.submodules[f"{name}s"] = merged = arbiter(config.bus, len(ports))
            for port, own in zip(ports, merged.ports, strict=True):
                wiring.connect(m, port, own)
            wiring.connect(m, merged.memory, wiring.flipped(getattr(self, name)))
        return m


def _ports(units, kind: type[wiring.Signature]) -> list[wiring.PureInterface]:
    """Return the units' ports of one kind."""
    return [
        getattr(unit, name)
        for unit in units
        for name, member in unit.signature.members.items()
        if member.is_signature and isinstance(member.signature, kind)
    ]


@cache
def simulator(config: CoreConfig) -> sim.Built:
    """Return the simulator, built if it is not yet."""
    top = f"array_{config.name}"
    header = {"configuration": config.digest}
    return sim.build(to_verilog(Computing(config), top=top, header=header), top)
