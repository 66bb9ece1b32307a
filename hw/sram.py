"""The only place where memory is inferred: one read port, one write port, one clock."""

from __future__ import annotations

from pathlib import Path

from amaranth.hdl import ClockSignal, Instance, Shape, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from disc.config import MAX_MEMORY_WORDS

__all__ = ["Sram"]


class Sram(wiring.Component):
    """Synchronous memory with one read and one write port.

    Read data follows the address by one cycle and holds while `read_en` is low.  Reading a word in
    the cycle in which it is written returns the old word.  Contents and read data are undefined
    after reset.

    It is an instance of the Verilog module `disc_sram`, whose text `verilog.py` of `disc` adds to
    what it writes, so that a user can put a macro in its place; see `docs/architecture.md`.

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

    MODULE = "disc_sram"
    VERILOG = Path(__file__).with_name(f"{MODULE}.v")

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
        return Instance(
            self.MODULE,
            p_WIDTH=Shape.cast(self.shape).width,
            p_DEPTH=self.depth,
            p_ADDRESS_BITS=len(self.read_address),
            i_clk=ClockSignal(),
            i_read_address=self.read_address,
            i_read_en=self.read_en,
            o_read_data=Value.cast(self.read_data),
            i_write_address=self.write_address,
            i_write_data=Value.cast(self.write_data),
            i_write_en=self.write_en,
        )
