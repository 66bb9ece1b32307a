"""Several requesters behind one port to DRAM."""

from __future__ import annotations

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from disc.config import BusConfig
from hw.memory.bus import ReadPort, WritePort

__all__ = ["ReadArbiter", "WriteArbiter"]


def _round_robin(m: Module, wants: list, take) -> Signal:
    """Return whose turn it is: the one after the last that took, then those that want.

    Whose offer stands keeps its turn.
    """
    count = len(wants)
    last, chosen = Signal(range(count), init=count - 1), Signal(range(count))
    kept, keep = Signal(range(count)), Signal()
    picked = Signal(range(count))
    with m.Switch(last):
        for n in range(count):
            with m.Case(n):
                order = [(n + 1 + i) % count for i in range(count)]
                for one in reversed(order):
                    with m.If(wants[one]):
                        m.d.comb += picked.eq(one)
    m.d.comb += chosen.eq(Mux(keep, kept, picked))
    offered = Signal()
    m.d.comb += offered.eq(Array(wants)[chosen])
    m.d.sync += [keep.eq(offered & ~take), kept.eq(chosen)]
    with m.If(take):
        m.d.sync += last.eq(chosen)
    return chosen


class _Arbiter(wiring.Component):
    def __init__(self, bus: BusConfig, count: int, depth: int, port: type):
        for name, value in (("count", count), ("depth", depth)):
            if value < 1:
                raise ValueError(f"{name}: must be at least 1, got {value}")
        self.bus, self.count, self.depth = bus, count, depth
        super().__init__(
            {**{f"port_{n}": In(port(bus)) for n in range(count)}, "memory": Out(port(bus))}
        )

    @property
    def ports(self) -> list:
        """Those of the requesters."""
        return [getattr(self, f"port_{n}") for n in range(self.count)]

    def _merge(self, m: Module, owners, owner) -> None:
        """Pass requests on, and note whose they are."""
        request = self.memory.request
        take = request.valid & request.ready
        chosen = _round_robin(m, [port.request.valid for port in self.ports], take)
        m.d.comb += [owners.w_en.eq(take), owner.eq(chosen)]
        with m.Switch(chosen):
            for n, port in enumerate(self.ports):
                with m.Case(n):
                    m.d.comb += [
                        request.payload.eq(port.request.payload),
                        request.valid.eq(port.request.valid & owners.w_rdy),
                        port.request.ready.eq(request.ready & owners.w_rdy),
                    ]


class ReadArbiter(_Arbiter):
    """Reads of several requesters, request by request in turn; adds no cycle.

    Parameters
    ----------
    bus : BusConfig
    count : int
        Requesters.
    depth : int
        Requests that may be on their way.

    Members
    -------
    port_<n> : In, `ReadPort`
    memory : Out, `ReadPort`
    """

    def __init__(self, bus: BusConfig, count: int, depth: int = 16):
        super().__init__(bus, count, depth, ReadPort)

    def elaborate(self, platform):
        m = Module()
        entry = data.StructLayout(
            {"owner": range(max(2, self.count)), "words": range(self.bus.burst + 1)}
        )
        m.submodules.owners = owners = SyncFIFO(width=entry.size, depth=self.depth)
        new, here = Signal(entry), data.View(entry, owners.r_data)
        m.d.comb += [
            new.words.eq(self.memory.request.payload.words),
            owners.w_data.eq(new),
        ]
        self._merge(m, owners, new.owner)
        given = Signal(range(self.bus.burst + 1))
        arrived = self.memory.data
        take = arrived.valid & arrived.ready
        last = given + 1 == here.words
        m.d.comb += owners.r_en.eq(take & last)
        with m.If(take):
            m.d.sync += given.eq(Mux(last, 0, given + 1))
        for n, port in enumerate(self.ports):
            m.d.comb += port.data.payload.eq(arrived.payload)
            with m.If(owners.r_rdy & (here.owner == n)):
                m.d.comb += [
                    port.data.valid.eq(arrived.valid),
                    arrived.ready.eq(port.data.ready),
                ]
        return m


class WriteArbiter(_Arbiter):
    """Writes of several requesters, word by word in turn; adds no cycle.

    Parameters and members as for `ReadArbiter`, with `WritePort`.
    """

    def __init__(self, bus: BusConfig, count: int, depth: int = 64):
        super().__init__(bus, count, depth, WritePort)

    def elaborate(self, platform):
        m = Module()
        width = max(1, (self.count - 1).bit_length())
        m.submodules.owners = owners = SyncFIFO(width=width, depth=self.depth)
        self._merge(m, owners, owners.w_data)
        m.d.comb += owners.r_en.eq(self.memory.done)
        for n, port in enumerate(self.ports):
            m.d.comb += port.done.eq(self.memory.done & (owners.r_data == n))
        return m
