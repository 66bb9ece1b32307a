"""Fetches the words of a program."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import BusConfig
from disc.program.encoding import WORD_BITS, WORD_BYTES
from disc.program.fields import ADDRESS_BITS
from hw.memory.bus import ReadPort

__all__ = ["COUNT_BITS", "CommandFetch"]

COUNT_BITS = 32
"""Bits of the number of commands, and of a command's index."""

_AHEAD = 2
"""Commands that are held or on their way."""


class CommandFetch(wiring.Component):
    """Reads commands ahead, one request each, and puts their bus words together.

    Throughput: a command in as many cycles as it has bus words, as long as memory answers within
    that time; else two commands in each round trip.

    Members
    -------
    begin, address, count : In
        Begin to fetch `count` commands; only while `idle`.  What is left of earlier ones is lost.
    stop : In
        Ask for no more.
    idle : Out
        Nothing is on its way, and nothing will be.
    read : Out, `ReadPort`
    o : Out, stream of command words
    """

    def __init__(self, bus: BusConfig):
        self.bus = bus
        super().__init__(
            {
                "begin": In(1),
                "address": In(ADDRESS_BITS),
                "count": In(COUNT_BITS),
                "stop": In(1),
                "idle": Out(1),
                "read": Out(ReadPort(bus)),
                "o": Out(stream.Signature(WORD_BITS)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        words = WORD_BITS // self.bus.word_bits
        request, arrived = self.read.request, self.read.data
        left = Signal(COUNT_BITS)
        room = Signal(range(_AHEAD + 1))
        coming = Signal(range(_AHEAD + 1))

        asked, complete, taken = Signal(), Signal(), Signal()
        m.d.comb += [
            request.payload.words.eq(words),
            asked.eq(request.valid & request.ready),
            taken.eq(self.o.valid & self.o.ready),
            self.idle.eq(~request.valid & (coming == 0) & ((left == 0) | self.stop)),
            arrived.ready.eq(1),
        ]
        m.d.sync += [room.eq(room - asked + taken), coming.eq(coming + asked - complete)]
        with m.If(asked):
            m.d.sync += request.payload.address.eq(request.payload.address + WORD_BYTES)
        # A request that is offered stays, even when the program is stopped.
        with m.If(~request.valid | request.ready):
            more = (left != 0) & (room > asked) & ~self.stop
            m.d.sync += [request.valid.eq(more), left.eq(left - more)]

        filled = Signal(range(words + 1))
        gathered = Signal(WORD_BITS, reset_less=True)
        move = Signal()
        m.d.comb += [
            move.eq((filled == words) & (~self.o.valid | self.o.ready)),
            complete.eq(arrived.valid & (Mux(move, 0, filled) == words - 1)),
        ]
        m.d.sync += filled.eq(Mux(move, 0, filled) + arrived.valid)
        with m.If(arrived.valid):
            m.d.sync += gathered.eq(Cat(gathered, arrived.payload)[self.bus.word_bits :])
        with m.If(move):
            m.d.sync += [self.o.valid.eq(1), self.o.payload.eq(gathered)]
        with m.Elif(self.o.ready):
            m.d.sync += self.o.valid.eq(0)

        with m.If(self.begin):
            m.d.sync += [
                request.payload.address.eq(self.address),
                left.eq(self.count),
                room.eq(_AHEAD),
                filled.eq(0),
                self.o.valid.eq(0),
            ]
        return m
