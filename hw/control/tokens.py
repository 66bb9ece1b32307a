"""Tokens: one counter for every ordered pair of queues."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from disc.program import Queue
from disc.program.tokens import MAX_TOKENS

__all__ = ["TokenCounters"]

_QUEUES = len(Queue)


class TokenCounters(wiring.Component):
    """Twelve counters of 8 bits.  What is given in a cycle can be taken from the next one on.

    Members
    -------
    clear : In
    wait : In, [queues] masks
        From whom each queue's next command takes.
    granted : Out, [queues] bits
        All that it takes is there.
    take : In, [queues] bits
        It takes; only while granted.
    signal : In, [queues] masks
        To whom each queue's command that is in progress gives.
    give : In, [queues] bits
    overflow : Out, [queues] bits
        What the queue gives does not fit any more; the counter stays as it is.
    """

    def __init__(self):
        masks = data.ArrayLayout(_QUEUES, _QUEUES)
        super().__init__(
            {
                "clear": In(1),
                "wait": In(masks),
                "granted": Out(_QUEUES),
                "take": In(_QUEUES),
                "signal": In(masks),
                "give": In(_QUEUES),
                "overflow": Out(_QUEUES),
            }
        )

    def elaborate(self, platform):
        m = Module()
        missing: dict[int, list] = {queue: [] for queue in Queue}
        full: dict[int, list] = {queue: [] for queue in Queue}
        for giver in Queue:
            for taker in Queue:
                if giver is taker:
                    continue
                name = f"{giver.name}_to_{taker.name}".lower()
                count = Signal(range(MAX_TOKENS + 1), name=name)
                more, less = Signal(name=f"{name}_more"), Signal(name=f"{name}_less")
                over = Signal(name=f"{name}_over")
                m.d.comb += [
                    more.eq(self.give[giver] & self.signal[giver][taker]),
                    less.eq(self.take[taker] & self.wait[taker][giver]),
                    over.eq(more & ~less & (count == MAX_TOKENS)),
                ]
                with m.If(self.clear):
                    m.d.sync += count.eq(0)
                with m.Elif(~over):
                    m.d.sync += count.eq(count + more - less)
                missing[taker].append(self.wait[taker][giver] & (count == 0))
                full[giver].append(over)
        for queue in Queue:
            m.d.comb += [
                self.granted[queue].eq(~Cat(missing[queue]).any()),
                self.overflow[queue].eq(Cat(full[queue]).any()),
            ]
        return m
