"""Runs of rows between DRAM and the array unit."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.program.fields import TOKEN_BITS
from hw.memory.address import RowAddresses, RowRun
from hw.memory.bus import ReadPort, WritePort
from hw.memory.packer import ByteWord
from hw.memory.reader import RowReader
from hw.memory.writer import RowWriter
from hw.units.array.reads import HeadedRows

__all__ = ["ReadMove", "WriteMove"]


def _run_members(config: CoreConfig, sizes: Sequence[int]) -> dict:
    most = config.memory.query_rows
    return {
        "run": In(stream.Signature(RowRun(most))),
        "headed": In(1),
        "size": In(range(max(2, len(sizes)))),
        "entry": Out(range(most + 1)),
        "en": Out(1),
        "token": In(TOKEN_BITS),
    }


def _addresses(m: Module, move: wiring.Component) -> HeadedRows:
    """Rows of the run, header and sums apart if they have one."""
    m.submodules.addresses = addresses = RowAddresses(move.config.memory.query_rows)
    m.submodules.headed = headed = HeadedRows()
    wiring.connect(m, wiring.flipped(move.run), addresses.run)
    wiring.connect(m, addresses.rows, headed.i)
    m.d.comb += [
        headed.headed.eq(move.headed),
        move.entry.eq(addresses.entry),
        move.en.eq(addresses.en),
        addresses.token.eq(move.token),
    ]
    return headed


class ReadMove(wiring.Component):
    """Reads runs of rows as words of one of several sizes.

    Parameters
    ----------
    config : CoreConfig
    sizes : sequence of int
        Bytes of a word.

    Members
    -------
    run : In, stream of `RowRun`
    headed, size : In
        Quasi-static: as in `HeadedRows`, and an index into `sizes`.
    entry, en : Out
    token : In
        Of the list, as in `ListReadPort`.
    read : Out, `ReadPort`
    o : Out, stream of `ByteWord` of the largest size
    """

    def __init__(self, config: CoreConfig, sizes: Sequence[int]):
        self.config, self.sizes = config, tuple(sizes)
        super().__init__(
            {
                **_run_members(config, sizes),
                "read": Out(ReadPort(config.bus)),
                "o": Out(stream.Signature(ByteWord(max(sizes)))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        headed = _addresses(m, self)
        m.submodules.reader = reader = RowReader(self.config.bus, self.sizes)
        wiring.connect(m, headed.o, reader.rows)
        wiring.connect(m, reader.read, wiring.flipped(self.read))
        wiring.connect(m, reader.o, wiring.flipped(self.o))
        m.d.comb += reader.size.eq(self.size)
        return m


class WriteMove(wiring.Component):
    """Writes runs of rows from words of one of several sizes.

    Parameters and members as of `ReadMove`, but:

    Members
    -------
    i : In, stream of bytes
    write : Out, `WritePort`
    idle : Out
        All rows of the run have been written.
    """

    def __init__(self, config: CoreConfig, sizes: Sequence[int]):
        self.config, self.sizes = config, tuple(sizes)
        self._writer = RowWriter(config.bus, self.sizes)
        super().__init__(
            {
                **_run_members(config, sizes),
                "i": self._writer.signature.members["i"],
                "write": Out(WritePort(config.bus)),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        headed = _addresses(m, self)
        m.submodules.writer = writer = self._writer
        wiring.connect(m, headed.o, writer.rows)
        wiring.connect(m, writer.write, wiring.flipped(self.write))
        wiring.connect(m, wiring.flipped(self.i), writer.i)
        if len(self.sizes) > 1:
            m.d.comb += writer.size.eq(self.size)
        left = Signal(self.run.payload.rows.shape())
        m.d.comb += self.idle.eq((left == 0) & writer.idle)
        with m.If(self.run.valid & self.run.ready):
            m.d.sync += left.eq(self.run.payload.rows)
        with m.Elif(headed.i.valid & headed.i.ready):
            m.d.sync += left.eq(left - 1)
        return m
