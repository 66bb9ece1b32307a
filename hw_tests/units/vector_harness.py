# amaranth: UnusedElaboratable=no
"""The vector unit with list buffers, behind one port to DRAM."""

from __future__ import annotations

from functools import cache

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.verilog import to_verilog
from hw.memory.arbiter import ReadArbiter, WriteArbiter
from hw.memory.bus import ReadPort, WritePort
from hw.memory.lists import ListBuffers, ListWritePort
from hw.units.vector import VectorUnit
from hw_tests import sim

__all__ = ["Vectoring", "simulator"]


class Vectoring(wiring.Component):
    """Vector unit, list buffers and arbiters."""

    def __init__(self, config: CoreConfig):
        self.config = config
        self._unit = VectorUnit(config)
        parts = dict(self._unit.signature.members)
        self._reads = [name for name in parts if name.startswith("read_")]
        self._writes = [name for name in parts if name.startswith("write_")]
        passed = ("queue", "rows", "waiting_data", "waiting_space")
        super().__init__(
            {
                **{name: parts[name] for name in passed},
                "read": Out(ReadPort(config.bus)),
                "write": Out(WritePort(config.bus)),
                "lists": In(ListWritePort(config.memory.query_rows)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bus = self.config.bus
        m.submodules.unit = unit = self._unit
        m.submodules.buffers = buffers = ListBuffers(self.config, 1)
        m.submodules.reads = reads = ReadArbiter(bus, len(self._reads))
        m.submodules.writes = writes = WriteArbiter(bus, len(self._writes))
        for arbiter, names in ((reads, self._reads), (writes, self._writes)):
            for port, name in zip(arbiter.ports, names, strict=True):
                wiring.connect(m, getattr(unit, name), port)
        wiring.connect(m, reads.memory, wiring.flipped(self.read))
        wiring.connect(m, writes.memory, wiring.flipped(self.write))
        wiring.connect(m, wiring.flipped(self.queue), unit.queue)
        wiring.connect(m, unit.rows, wiring.flipped(self.rows))
        wiring.connect(m, unit.list_rows, buffers.read_0)
        wiring.connect(m, wiring.flipped(self.lists), buffers.write)
        m.d.comb += [
            self.waiting_data.eq(unit.waiting_data),
            self.waiting_space.eq(unit.waiting_space),
        ]
        return m


@cache
def simulator(config: CoreConfig) -> sim.Built:
    """Return the simulator, built if it is not yet."""
    top = f"vector_unit_{config.name}"
    header = {"configuration": config.digest}
    return sim.build(to_verilog(Vectoring(config), top=top, header=header), top)
