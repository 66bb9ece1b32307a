"""Constants of a command, by word or by column, in two halves: one in use, one being loaded."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, ShapeLike, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.sram import Sram

__all__ = ["HalvesMemory", "LoadWord"]


class LoadWord(data.StructLayout):
    """A word for address `address` of half `half`."""

    def __init__(self, shape: ShapeLike, depth: int):
        super().__init__({"half": 1, "address": range(max(2, depth)), "data": shape})


class HalvesMemory(wiring.Component):
    """Two memories behind one read port, so that constants are loaded while others are in use.

    Reading takes one cycle and holds while `read_en` is low.  Loading never stalls; a word can be
    read from the cycle after it was taken.

    Parameters
    ----------
    shape
        Shape of a word.
    depth : int
        Words of a half, as for `Sram`.

    Members
    -------
    load : In, stream of `LoadWord`
    half : In
        Half that is read.
    read_address, read_en : In
    read_data : Out
    """

    def __init__(self, shape: ShapeLike, depth: int):
        self.shape, self.depth = shape, depth
        super().__init__(
            {
                "load": In(stream.Signature(LoadWord(shape, depth))),
                "half": In(1),
                "read_address": In(range(max(2, depth))),
                "read_en": In(1),
                "read_data": Out(shape),
            }
        )

    def elaborate(self, platform):
        m = Module()
        load = self.load.payload
        m.d.comb += self.load.ready.eq(1)
        halves = []
        for half in range(2):
            m.submodules[f"half_{half}"] = memory = Sram(self.shape, self.depth)
            m.d.comb += [
                memory.write_address.eq(load.address),
                memory.write_data.eq(load.data),
                memory.write_en.eq(self.load.valid & (load.half == half)),
                memory.read_address.eq(self.read_address),
                memory.read_en.eq(self.read_en & (self.half == half)),
            ]
            halves.append(memory.read_data)
        selected = Signal()
        with m.If(self.read_en):
            m.d.sync += selected.eq(self.half)
        m.d.comb += self.read_data.eq(Mux(selected, halves[1], halves[0]))
        return m
