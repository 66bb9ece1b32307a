"""Source, sink and monitor for ports with `amaranth.lib.stream.Signature`.

Every cycle: await the edge, sample, decide, write.  cocotb returns from `RisingEdge(dut.clk)`
before the flip-flops change, so what is sampled is what the hardware sees at this edge, and what
is written takes effect after it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import cocotb
from cocotb.triggers import Event, RisingEdge

from hw_tests.lib.clocking import now
from hw_tests.lib.codec import decode, encode, width
from hw_tests.lib.pauses import PAUSES, Pause, rng

__all__ = ["StreamMonitor", "StreamSink", "StreamSource"]


class _Port:
    """Handles of the stream port `prefix` of a design."""

    def __init__(self, dut: Any, prefix: str, shape: Any):
        self.prefix, self.shape = prefix, shape
        self.valid = getattr(dut, f"{prefix}__valid")
        self.ready = getattr(dut, f"{prefix}__ready")
        # A stream without payload has no such port.
        self.payload = getattr(dut, f"{prefix}__payload") if width(shape) else None
        self.edge = RisingEdge(dut.clk)


class StreamSource:
    """Drives a stream input of the design from a queue.

    While valid is low the payload is random, so that a design which looks at it fails.

    Parameters
    ----------
    dut : cocotb handle
    prefix : str
        Name of the port, for example `i`.
    shape
        The payload shape that the component was built with.
    pause : Pause
    """

    def __init__(self, dut: Any, prefix: str, shape: Any, pause: Pause = PAUSES["never"]):
        self._port, self._pause = _Port(dut, prefix, shape), pause
        self._bits = width(shape)
        self._queue: deque[int] = deque()
        self._idle = Event()
        self._idle.set()
        self.accepted: list[int] = []
        """Cycle of every transfer."""
        self._port.valid.value = 0
        cocotb.start_soon(self._drive())

    def send(self, values: Iterable[Any]) -> None:
        """Queue values, encoded by the shape."""
        self.send_raw(encode(self._port.shape, value) for value in values)

    def send_raw(self, words: Iterable[int]) -> None:
        """Queue port values as they are."""
        self._queue.extend(words)
        if self._queue:
            self._idle.clear()

    async def drained(self) -> None:
        """Wait until everything queued has been accepted."""
        if self._queue or not self._idle.is_set():
            await self._idle.wait()

    async def _drive(self) -> None:
        port, random = self._port, rng(f"source {self._port.prefix}")
        pauses = self._pause.decisions(random)
        waiting = False
        while True:
            await port.edge
            if waiting and port.ready.value:
                waiting = False
                self.accepted.append(now())
                if not self._queue:
                    self._idle.set()
            if not waiting:
                waiting = bool(self._queue) and not next(pauses)
                port.valid.value = int(waiting)
                if port.payload is not None:
                    idle = random.getrandbits(self._bits)
                    port.payload.value = self._queue.popleft() if waiting else idle


class StreamMonitor:
    """Watches a stream and checks the stream rule.

    Once valid is high it must stay high, with the same payload, until the transfer.

    Parameters
    ----------
    dut, prefix, shape
        As for `StreamSource`.
    callback : callable, optional
        Called with every decoded value, for example `Scoreboard.got`.
    """

    def __init__(
        self,
        dut: Any,
        prefix: str,
        shape: Any,
        *,
        callback: Callable[[Any], None] | None = None,
    ):
        self._port, self._callback = _Port(dut, prefix, shape), callback
        self._arrival = Event()
        self._taken = 0
        self.received: list[Any] = []
        """Every value so far."""
        self.transfers: list[int] = []
        """Cycle of every transfer."""
        cocotb.start_soon(self._watch())

    async def take(self, count: int) -> list[Any]:
        """Wait for the next `count` values and return them."""
        while len(self.received) < self._taken + count:
            self._arrival.clear()
            await self._arrival.wait()
        self._taken += count
        return self.received[self._taken - count : self._taken]

    def _drive_ready(self) -> None:
        """Decide on ready for the next cycle; a sink does."""

    async def _watch(self) -> None:
        port = self._port
        stalled: int | None = None
        while True:
            await port.edge
            valid = bool(port.valid.value)
            # Unlike a value, a payload while valid is low means nothing: do not read it.
            raw = int(port.payload.value) if valid and port.payload is not None else 0
            if stalled is not None:
                assert valid, f"{port.prefix}: valid fell before ready, at cycle {now()}"
                assert raw == stalled, (
                    f"{port.prefix}: payload changed from {stalled:#x} to {raw:#x} while stalled, "
                    f"at cycle {now()}"
                )
            transfer = valid and bool(port.ready.value)
            stalled = raw if valid and not transfer else None
            if transfer:
                value = decode(port.shape, raw)
                self.received.append(value)
                self.transfers.append(now())
                if self._callback is not None:
                    self._callback(value)
                self._arrival.set()
            self._drive_ready()


class StreamSink(StreamMonitor):
    """Drives ready of a stream output of the design, and monitors it.

    Parameters
    ----------
    dut, prefix, shape, callback
        As for `StreamMonitor`.
    pause : Pause
    """

    def __init__(
        self,
        dut: Any,
        prefix: str,
        shape: Any,
        pause: Pause = PAUSES["never"],
        *,
        callback: Callable[[Any], None] | None = None,
    ):
        super().__init__(dut, prefix, shape, callback=callback)
        self._pauses = pause.decisions(rng(f"sink {prefix}"))
        self._drive_ready()

    def _drive_ready(self) -> None:
        self._port.ready.value = int(not next(self._pauses))
