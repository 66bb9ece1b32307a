# amaranth: UnusedElaboratable=no
"""A core with simulated DRAM behind it."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect

from disc.config import CoreConfig
from hw.core import Core
from hw_tests.core.dram import SimulatedDram

__all__ = ["CoreSystem"]

_HOST = ("matrix", "start", "address", "count")
_STATE = ("busy", "running", "done", "error", "error_index", "counters")
_MEMORY = ("traffic", "load", "save", "index", "last")


class CoreSystem(wiring.Component):
    """Ports of the host, and of the simulated memory as of `SimulatedDram`.

    Parameters
    ----------
    config : CoreConfig
    depth : int
        Words of the bus that DRAM has.
    """

    def __init__(self, config: CoreConfig, depth: int):
        self._core = Core(config)
        self._dram = SimulatedDram(config.bus, depth)
        core, dram = self._core.signature.members, self._dram.signature.members
        super().__init__(
            {
                **{name: In(core[name].shape) for name in _HOST},
                **{name: Out(core[name].shape) for name in _STATE},
                **{name: In(dram[name].shape) for name in _MEMORY},
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.core, m.submodules.dram = core, dram = self._core, self._dram
        connect(m, core.read, dram.read)
        connect(m, core.write, dram.write)
        m.d.comb += [getattr(core, name).eq(getattr(self, name)) for name in _HOST]
        m.d.comb += [getattr(self, name).eq(getattr(core, name)) for name in _STATE]
        m.d.comb += [getattr(dram, name).eq(getattr(self, name)) for name in _MEMORY]
        return m
