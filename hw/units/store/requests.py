"""Requests for a stretch of DRAM that is made of equal runs."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.program import sizes
from disc.program.fields import ADDRESS_BITS, TOKEN_BITS
from hw.memory.reader import LENGTH_BITS, RowRequest
from hw.units.store.selector import MAX_PATCH

__all__ = ["RUN_BITS", "Stretch", "StretchRequests", "chunk_bytes"]

RUN_BITS = (sizes.ENTRY_BYTES << TOKEN_BITS).bit_length()
"""Bits of the length of a run in bytes: those of the longest list are the most."""

_LARGEST_CHUNK = 1 << (LENGTH_BITS - 1)


def chunk_bytes(config: CoreConfig) -> int:
    """Return the most bytes of a request: whole words of the selector and whole list entries."""
    unit = sizes.ENTRY_BYTES * config.selector.pixels
    return _LARGEST_CHUNK // unit * unit


class Stretch(data.StructLayout):
    """`runs` runs of `length` bytes behind each other from `base` on, asked for `chunk` at most."""

    def __init__(self, config: CoreConfig):
        super().__init__(
            {
                "base": ADDRESS_BITS,
                "length": RUN_BITS,
                "chunk": LENGTH_BITS,
                "runs": range(MAX_PATCH * config.selector.max_width + 1),
            }
        )


class StretchRequests(wiring.Component):
    """Cuts a stretch into requests, one a cycle from the cycle after `begin`.

    No request crosses the end of a run, so words that a reader makes of them begin anew there.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    begin : In
        Take `stretch`; the one before must be complete.
    stretch : In, `Stretch`
    rows : Out, stream of `RowRequest`
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        super().__init__(
            {
                "begin": In(1),
                "stretch": In(Stretch(config)),
                "rows": Out(stream.Signature(RowRequest())),
            }
        )

    def elaborate(self, platform):
        m = Module()
        length, chunk = Signal(RUN_BITS), Signal(LENGTH_BITS)
        address, left = Signal(ADDRESS_BITS), Signal(RUN_BITS)
        runs = Signal(self.stretch.runs.shape())
        ends = Signal()
        m.d.comb += [
            ends.eq(left <= chunk),
            self.rows.valid.eq(runs != 0),
            self.rows.payload.address.eq(address),
            self.rows.payload.length.eq(Mux(ends, left, chunk)),
        ]
        with m.If(self.rows.valid & self.rows.ready):
            m.d.sync += [
                address.eq(address + self.rows.payload.length),
                left.eq(Mux(ends, length, left - chunk)),
                runs.eq(runs - ends),
            ]
        with m.If(self.begin):
            m.d.sync += [
                length.eq(self.stretch.length),
                left.eq(self.stretch.length),
                chunk.eq(self.stretch.chunk),
                address.eq(self.stretch.base),
                runs.eq(self.stretch.runs),
            ]
        return m
