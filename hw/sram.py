"""The only place where memory is inferred: one read port, one write port, one clock."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from disc.config import MAX_MEMORY_WORDS

__all__ = ["Sram"]


class Sram(wiring.Component):
    """Synchronous memory with one read and one write port.

    Read data follows the address by one cycle and holds while `read_en` is low.  Reading a word in
    the cycle in which it is written returns the old word.  Contents and read data are undefined
    after reset.

    Parameters
    ----------
    shape
        Shape of a word.
    depth : int
        Words, 1 to `disc.config.MAX_MEMORY_WORDS`.

    Members
    -------
    read_address, read_en : In
    read_data : Out
    write_address, write_data, write_en : In

    Raises
    ------
    ValueError
        `depth` is out of range.
    """

    def __init__(self, shape, depth: int):
        if not 1 <= depth <= MAX_MEMORY_WORDS:
            raise ValueError(f"depth: must be in [1, {MAX_MEMORY_WORDS}], got {depth}")
        self.shape, self.depth = shape, depth
        address_bits = max(1, (depth - 1).bit_length())
        super().__init__(
            {
                "read_address": In(address_bits),
                "read_en": In(1),
                "read_data": Out(shape),
                "write_address": In(address_bits),
                "write_data": In(shape),
                "write_en": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.words = words = Memory(shape=self.shape, depth=self.depth, init=[])
        read, write = words.read_port(), words.write_port()
        m.d.comb += [
            read.addr.eq(self.read_address),
            read.en.eq(self.read_en),
            self.read_data.eq(read.data),
            write.addr.eq(self.write_address),
            write.data.eq(self.write_data),
            write.en.eq(self.write_en),
        ]
        return m
