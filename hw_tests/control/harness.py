# amaranth: UnusedElaboratable=no
"""All blocks of control and data movement side by side, so that one build serves all benches."""

from __future__ import annotations

from functools import cache

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from disc.config import BusConfig, CoreConfig
from disc.verilog import to_verilog
from hw.control.sequencer import Sequencer
from hw.memory.address import RowAddresses
from hw.memory.arbiter import ReadArbiter, WriteArbiter
from hw.memory.bus import ReadPort, WritePort
from hw.memory.lists import ListBuffers, ListReadPort
from hw.memory.load import LoadUnit
from hw.memory.reader import RowReader
from hw.memory.writer import RowWriter
from hw_tests import sim
from hw_tests.blocks.harness import SideBySide

__all__ = ["BUSES", "DEPTHS", "Addressing", "Loading", "Sharing", "blocks", "simulator", "sizes_of"]

BUSES = {
    "tiny": BusConfig(word_bits=64),
    "odd": BusConfig(word_bits=32),
    "flat": BusConfig(word_bits=128, burst=4),
}
"""By configuration: narrow and wide, and bursts of no more than a command."""

DEPTHS = {"tiny": 4, "odd": 2, "flat": 3}
"""Commands that a queue holds."""


def sizes_of(bus: BusConfig) -> tuple[int, ...]:
    """Bytes of a word: less than, as many as, and more than a bus word has."""
    return 1, 3, bus.word_bytes, 2 * bus.word_bytes + 3


class Sharing(wiring.Component):
    """Three readers and two writers behind one port each."""

    READERS, WRITERS = 3, 2

    def __init__(self, bus: BusConfig):
        self.bus = bus
        self._readers = [RowReader(bus, (5 + 4 * n,)) for n in range(self.READERS)]
        self._writers = [RowWriter(bus, 7 - 2 * n) for n in range(self.WRITERS)]
        members = {"read": Out(ReadPort(bus)), "write": Out(WritePort(bus))}
        for n, reader in enumerate(self._readers):
            parts = reader.signature.members
            members |= {f"reader_{n}_rows": parts["rows"], f"reader_{n}_o": parts["o"]}
        for n, writer in enumerate(self._writers):
            parts = writer.signature.members
            members |= {f"writer_{n}_{part}": parts[part] for part in ("rows", "i", "idle")}
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        m.submodules.reads = reads = ReadArbiter(self.bus, self.READERS, depth=4)
        m.submodules.writes = writes = WriteArbiter(self.bus, self.WRITERS, depth=5)
        for n, reader in enumerate(self._readers):
            m.submodules[f"reader_{n}"] = reader
            wiring.connect(m, reader.read, reads.ports[n])
            wiring.connect(m, wiring.flipped(getattr(self, f"reader_{n}_rows")), reader.rows)
            wiring.connect(m, reader.o, wiring.flipped(getattr(self, f"reader_{n}_o")))
        for n, writer in enumerate(self._writers):
            m.submodules[f"writer_{n}"] = writer
            wiring.connect(m, writer.write, writes.ports[n])
            for part in ("rows", "i"):
                port = getattr(self, f"writer_{n}_{part}")
                wiring.connect(m, wiring.flipped(port), getattr(writer, part))
            m.d.comb += getattr(self, f"writer_{n}_idle").eq(writer.idle)
        wiring.connect(m, reads.memory, wiring.flipped(self.read))
        wiring.connect(m, writes.memory, wiring.flipped(self.write))
        return m


class Addressing(wiring.Component):
    """Row addresses by a list whose entry s is token `7 * s + 3`."""

    def __init__(self, most_rows: int = 60):
        self._unit = RowAddresses(most_rows)
        parts = self._unit.signature.members
        super().__init__({name: parts[name] for name in ("run", "rows")})

    def elaborate(self, platform):
        m = Module()
        m.submodules.unit = unit = self._unit
        wiring.connect(m, wiring.flipped(self.run), unit.run)
        wiring.connect(m, unit.rows, wiring.flipped(self.rows))
        with m.If(unit.en):
            m.d.sync += unit.token.eq(7 * unit.entry + 3)
        return m


class Loading(wiring.Component):
    """Load unit and list buffers, with a port to look into them."""

    def __init__(self, config: CoreConfig, bus: BusConfig):
        self.config = config
        self._unit = LoadUnit(config, bus)
        parts = dict(self._unit.signature.members)
        del parts["list"], parts["list_write"]
        self._parts = list(parts)
        super().__init__({**parts, "look": In(ListReadPort(config.memory.query_rows))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.unit = unit = self._unit
        m.submodules.lists = lists = ListBuffers(self.config, 2)
        for name in self._parts:
            inner, outer = getattr(unit, name), getattr(self, name)
            if name.startswith("waiting"):
                m.d.comb += outer.eq(inner)
                continue
            outer = wiring.flipped(outer)
            wiring.connect(m, *((outer, inner) if name == "queue" else (inner, outer)))
        wiring.connect(m, unit.list_write, lists.write)
        wiring.connect(m, unit.list, lists.read_0)
        wiring.connect(m, wiring.flipped(self.look), lists.read_1)
        return m


def blocks(config: CoreConfig) -> dict[str, wiring.Component]:
    """Return one of each block."""
    bus = BUSES[config.name]
    return {
        "sequencer": Sequencer(config, bus, DEPTHS[config.name]),
        "reader": RowReader(bus, sizes_of(bus)),
        **{f"writer_{n}": RowWriter(bus, size) for n, size in enumerate(sizes_of(bus))},
        "writer_any": RowWriter(bus, sizes_of(bus)),
        "addressing": Addressing(),
        "sharing": Sharing(bus),
        "loading": Loading(config, bus),
    }


@cache
def simulator(config: CoreConfig) -> sim.Built:
    """Return the simulator of all blocks, built if it is not yet."""
    top = f"control_{config.name}"
    header = {"configuration": config.digest}
    return sim.build(to_verilog(SideBySide(blocks(config)), top=top, header=header), top)
