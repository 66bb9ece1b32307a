"""The port to DRAM: requests and data as streams; what is outside is wrapped around it."""

from __future__ import annotations

from dataclasses import dataclass

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from disc.program.encoding import WORD_BITS
from disc.program.fields import ADDRESS_BITS

__all__ = ["Bus", "ReadPort", "ReadRequest", "WritePort", "WriteRequest"]


@dataclass(frozen=True)
class Bus:
    """Sizes of a port.

    Parameters
    ----------
    word_bits : int
        Bits of a bus word, a power of two from 32 to 512.
    burst : int
        Most words of a read request, a power of two.  A command must fit into one request.

    Raises
    ------
    ValueError
        A size is out of range.
    """

    word_bits: int = 64
    burst: int = 16

    def __post_init__(self) -> None:
        if self.word_bits not in (32, 64, 128, 256, WORD_BITS):
            raise ValueError(
                f"word_bits: must be a power of two in [32, {WORD_BITS}], got {self.word_bits}"
            )
        low = WORD_BITS // self.word_bits
        if self.burst & (self.burst - 1) or not low <= self.burst <= 256:
            raise ValueError(f"burst: must be a power of two in [{low}, 256], got {self.burst}")

    @property
    def word_bytes(self) -> int:
        """Bytes of a bus word."""
        return self.word_bits // 8

    @property
    def offset_bits(self) -> int:
        """Bits of a byte's position in its bus word."""
        return self.word_bytes.bit_length() - 1


class ReadRequest(data.StructLayout):
    """Wants `words` bus words, 1 to `burst`, from byte `address` on, a multiple of the word.

    A request never crosses a multiple of `burst` words, hence no page of 4 KiB.
    """

    def __init__(self, bus: Bus):
        super().__init__({"address": ADDRESS_BITS, "words": range(bus.burst + 1)})


class WriteRequest(data.StructLayout):
    """Writes the bytes of one bus word that are enabled; `address` as in `ReadRequest`."""

    def __init__(self, bus: Bus):
        super().__init__({"address": ADDRESS_BITS, "data": bus.word_bits, "enable": bus.word_bytes})


class ReadPort(wiring.Signature):
    """Reads, seen from the core.  Words come in the order of the requests, at any distance."""

    def __init__(self, bus: Bus):
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

    def __init__(self, bus: Bus):
        super().__init__({"request": Out(stream.Signature(WriteRequest(bus))), "done": In(1)})
