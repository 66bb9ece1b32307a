"""The port to DRAM: requests and data as streams; what is outside is wrapped around it."""

from __future__ import annotations

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import BusConfig
from disc.program.fields import ADDRESS_BITS

__all__ = ["ReadPort", "ReadRequest", "WritePort", "WriteRequest"]


class ReadRequest(data.StructLayout):
    """Wants `words` bus words, 1 to `burst`, from byte `address` on, a multiple of the word.

    A request never crosses a multiple of `burst` words, hence no page of 4 KiB.
    """

    def __init__(self, bus: BusConfig):
        super().__init__({"address": ADDRESS_BITS, "words": range(bus.burst + 1)})


class WriteRequest(data.StructLayout):
    """Writes the bytes of one bus word that are enabled; `address` as in `ReadRequest`."""

    def __init__(self, bus: BusConfig):
        super().__init__({"address": ADDRESS_BITS, "data": bus.word_bits, "enable": bus.word_bytes})


class ReadPort(wiring.Signature):
    """Reads, seen from the core.  Words come in the order of the requests, at any distance."""

    def __init__(self, bus: BusConfig):
        super().__init__(
            {
                "request": Out(stream.Signature(ReadRequest(bus))),
                "data": In(stream.Signature(bus.word_bits)),
            }
        )


class WritePort(wiring.Signature):
    """Writes, seen from the core.

    `done` is high for one cycle for every request, in their order, when it has taken effect: a read
    that is requested later sees it.
    """

    def __init__(self, bus: BusConfig):
        super().__init__({"request": Out(stream.Signature(WriteRequest(bus))), "done": In(1)})
