"""Simulated DRAM behind read and write ports of the design."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import cocotb
from cocotb.triggers import RisingEdge

from disc.config import BusConfig
from disc.program.fields import ADDRESS_BITS
from hw_tests.lib import Pause, rng
from hw_tests.lib.clocking import now

__all__ = ["ReadMemory", "WriteMemory"]

Latency = tuple[int, int]
"""Least and most cycles from a request to its first word, or to its effect; drawn for each."""


class _Requests:
    """Takes requests and checks the rule of streams."""

    def __init__(self, dut: Any, prefix: str) -> None:
        self.prefix = prefix
        self.valid = getattr(dut, f"{prefix}__request__valid")
        self.ready = getattr(dut, f"{prefix}__request__ready")
        self.payload = getattr(dut, f"{prefix}__request__payload")
        self.ready.value = 0
        self._open = False
        self._stalled: int | None = None

    def sample(self) -> int | None:
        """Return the request that was transferred at this edge."""
        if not self.valid.value:
            assert self._stalled is None, f"{self.prefix}: valid fell before ready, cycle {now()}"
            return None
        raw = int(self.payload.value)
        assert self._stalled in (None, raw), f"{self.prefix}: request changed, cycle {now()}"
        self._stalled = None if self._open else raw
        return raw if self._open else None

    def open(self, ready: bool) -> None:
        self._open = ready
        self.ready.value = int(ready)


class ReadMemory:
    """Answers the `ReadPort` called `prefix` from an image that begins at address 0.

    Parameters
    ----------
    image : bytearray
        Read when a word is offered; whoever writes it meanwhile is seen.
    latency : callable
        Returns `Latency`; asked for every request.
    pause : Pause
        Of requests and of words, drawn apart.
    """

    def __init__(
        self,
        dut: Any,
        prefix: str,
        image: bytearray,
        bus: BusConfig,
        latency: Callable[[], Latency],
        pause: Pause,
    ) -> None:
        self.image, self.bus = image, bus
        self.cycles: list[int] = []
        """Of every word given."""
        self._latency = latency
        self._in = _Requests(dut, prefix)
        self._valid = getattr(dut, f"{prefix}__data__valid")
        self._ready = getattr(dut, f"{prefix}__data__ready")
        self._payload = getattr(dut, f"{prefix}__data__payload")
        self._edge = RisingEdge(dut.clk)
        self._random = rng(f"memory {prefix}")
        self._pauses = [pause.decisions(rng(f"memory {prefix} {i}")) for i in range(2)]
        self._valid.value = 0
        cocotb.start_soon(self._serve())

    def _places(self, raw: int) -> range:
        size = self.bus.word_bytes
        address, words = raw & ((1 << ADDRESS_BITS) - 1), raw >> ADDRESS_BITS
        where = f"{self._in.prefix}: {words} words from {address:#x}"
        assert address % size == 0, f"{where}: not aligned"
        assert 1 <= words <= self.bus.burst, f"{where}: not 1 to {self.bus.burst}"
        first = address // size
        assert first // self.bus.burst == (first + words - 1) // self.bus.burst, f"{where}: crosses"
        assert address + words * size <= len(self.image), f"{where}: outside of memory"
        return range(address, address + words * size, size)

    async def _serve(self) -> None:
        due_words: deque[tuple[int, int]] = deque()
        last, offering, size = 0, False, self.bus.word_bytes
        while True:
            await self._edge
            cycle = now()
            raw = self._in.sample()
            if raw is not None:
                last = max(last, cycle + self._random.randint(*self._latency()) - 1)
                due_words.extend((last, place) for place in self._places(raw))
            if offering and self._ready.value:
                offering = False
                self.cycles.append(cycle)
            if not offering:
                offering = bool(due_words) and due_words[0][0] <= cycle
                offering = offering and not next(self._pauses[1])
                self._valid.value = int(offering)
                place = due_words.popleft()[1] if offering else None
                self._payload.value = (
                    self._random.getrandbits(8 * size)
                    if place is None
                    else int.from_bytes(self.image[place : place + size], "little")
                )
            self._in.open(not next(self._pauses[0]))


class WriteMemory:
    """Takes the writes of the `WritePort` called `prefix`; parameters as for `ReadMemory`."""

    def __init__(
        self,
        dut: Any,
        prefix: str,
        image: bytearray,
        bus: BusConfig,
        latency: Callable[[], Latency],
        pause: Pause,
    ) -> None:
        self.image, self.bus = image, bus
        self.cycles: list[int] = []
        """Of every request."""
        self._latency = latency
        self._in = _Requests(dut, prefix)
        self._done = getattr(dut, f"{prefix}__done")
        self._edge = RisingEdge(dut.clk)
        self._random = rng(f"memory {prefix}")
        self._pauses = pause.decisions(rng(f"memory {prefix} 0"))
        self._done.value = 0
        cocotb.start_soon(self._serve())

    def _write(self, raw: int) -> None:
        size = self.bus.word_bytes
        address, raw = raw & ((1 << ADDRESS_BITS) - 1), raw >> ADDRESS_BITS
        word, enable = raw & ((1 << 8 * size) - 1), raw >> 8 * size
        where = f"{self._in.prefix}: write to {address:#x}"
        assert address % size == 0, f"{where}: not aligned"
        assert address + size <= len(self.image), f"{where}: outside of memory"
        assert enable, f"{where}: writes nothing"
        for i, byte in enumerate(word.to_bytes(size, "little")):
            if enable >> i & 1:
                self.image[address + i] = byte

    async def _serve(self) -> None:
        waiting: deque[tuple[int, int]] = deque()
        last = 0
        while True:
            await self._edge
            cycle = now()
            raw = self._in.sample()
            if raw is not None:
                self.cycles.append(cycle)
                last = max(last + 1, cycle + self._random.randint(*self._latency()) - 1)
                waiting.append((last, raw))
            done = bool(waiting) and waiting[0][0] <= cycle
            if done:
                self._write(waiting.popleft()[1])
            self._done.value = int(done)
            self._in.open(not next(self._pauses))
