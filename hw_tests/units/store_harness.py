# amaranth: UnusedElaboratable=no
"""The store unit with list buffers, in configurations that are ordinary, odd and extreme."""

from __future__ import annotations

from functools import cache
from typing import Any

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from disc.config import CoreConfig, build
from disc.verilog import to_verilog
from hw.memory.lists import ListBuffers, ListWritePort
from hw.units.store import StoreUnit
from hw_tests import sim

__all__ = ["CONFIGS", "Storing", "simulator"]


def _config(
    name: str, memory: dict[str, int], banks: int, selector: tuple[int, ...], bus: tuple[int, int]
) -> CoreConfig:
    return build(
        {
            "name": name,
            "cores": 1,
            "clock_mhz": 100.0,
            "array": {"banks": banks, "lanes": 4},
            "memory": {"bank_words": 512, "head_dim": 8, **memory},
            "vector": {"lanes": 2, "max_channels": 8},
            "selector": dict(zip(("pixels", "latent_bits", "max_width"), selector, strict=True)),
            "bus": dict(zip(("word_bits", "burst"), bus, strict=True)),
            "dram": {"kind": "LPDDR5-6400", "channels": 1},
        }
    )


def _masks(query_rows: int, columns: int, mask_word_bits: int) -> dict[str, int]:
    return {"query_rows": query_rows, "columns": columns, "mask_word_bits": mask_word_bits}


CONFIGS: dict[str, CoreConfig] = {
    # A mask line is a bus word.
    "plain": _config("plain", _masks(8, 640, 32), 4, (2, 16, 256), (128, 16)),
    # The narrowest of everything: lines of a byte, a list entry a bus word, a value a cycle.
    "narrow": _config("narrow", _masks(7, 36, 4), 2, (1, 16, 8), (32, 16)),
    # Three values a cycle divide few pieces; lines of two bus words; values of less than 16 bits.
    "odd": _config("odd", _masks(11, 640, 32), 16, (3, 12, 11), (256, 2)),
    # Eight lines to the widest bus word; images of a thousand patches a row.
    "wide": _config("wide", _masks(16, 640, 8), 8, (16, 16, 1024), (512, 4)),
}


class Storing(wiring.Component):
    """Store unit and list buffers."""

    def __init__(self, config: CoreConfig):
        self.config = config
        self._unit = StoreUnit(config)
        parts: dict[str, Any] = dict(self._unit.signature.members)
        del parts["list_masks"]
        self._parts = list(parts)
        super().__init__({**parts, "lists": In(ListWritePort(config.memory.query_rows))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.unit = unit = self._unit
        m.submodules.buffers = buffers = ListBuffers(self.config, 1)
        for name in self._parts:
            inner, outer = getattr(unit, name), getattr(self, name)
            if name.startswith("waiting"):
                m.d.comb += outer.eq(inner)
            elif name in ("queue", "mask_word"):
                wiring.connect(m, wiring.flipped(outer), inner)
            else:
                wiring.connect(m, inner, wiring.flipped(outer))
        wiring.connect(m, unit.list_masks, buffers.read_0)
        wiring.connect(m, wiring.flipped(self.lists), buffers.write)
        return m


@cache
def simulator(config: CoreConfig) -> sim.Built:
    """Return the simulator, built if it is not yet."""
    top = f"store_{config.name}"
    header = {"configuration": config.digest}
    return sim.build(to_verilog(Storing(config), top=top, header=header), top)
