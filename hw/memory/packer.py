"""Packs bytes that come in groups of any length into words."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["ByteGroup", "BytePacker", "ByteWord", "shifted_in", "shifted_out"]


class ByteGroup(data.StructLayout):
    """The first `count` of `size` bytes, at least 1; the others are 0.  `last` ends a row."""

    def __init__(self, size: int):
        super().__init__({"data": data.ArrayLayout(8, size), "count": range(size + 1), "last": 1})


class ByteWord(data.StructLayout):
    """A word of a row: its first and its last are marked, bytes behind the row's end are 0."""

    def __init__(self, size: int):
        super().__init__({"data": data.ArrayLayout(8, size), "first": 1, "last": 1})


def shifted_in(m: Module, value: Value, units: Value, unit_bits: int, width: int) -> Value:
    """Return `value << units * unit_bits` in `width` bits: a row of multiplexers for each bit."""
    for bit in range(len(units)):
        shifted = Signal(width, name=f"shifted_{bit}")
        m.d.comb += shifted.eq(Mux(units[bit], value.shift_left(unit_bits << bit), value))
        value = shifted
    return value


def shifted_out(m: Module, value: Value, units: Value, unit_bits: int) -> Value:
    """Return `value >> units * unit_bits`, likewise."""
    for bit in range(len(units)):
        shifted = Signal(len(value), name=f"shifted_{bit}")
        m.d.comb += shifted.eq(Mux(units[bit], value.shift_right(unit_bits << bit), value))
        value = shifted
    return value


class BytePacker(wiring.Component):
    """Rows in groups of up to `group` bytes to rows in words of one of several sizes.

    Every row starts a word, and its last word is filled up with zeros.  `hw.vector.aligner` does
    the same for groups that are all full.

    Throughput: a row of G groups and W words takes max(G, W) cycles, without a gap between rows,
    if all groups but its first and last are full and words are no smaller than groups; else a word
    leaves in every cycle.  Latency: a word is offered in the cycle after the group that completes
    it was taken.

    Parameters
    ----------
    group : int
        Most bytes of a group.
    sizes : sequence of int
        Bytes of a word.

    Members
    -------
    size : In
        Index into `sizes`; quasi-static, it changes only while no row is inside.
    i : In, stream of `ByteGroup`
    o : Out, stream of `ByteWord` of the largest size
    """

    def __init__(self, group: int, sizes: Sequence[int]):
        if group < 1 or not sizes or min(sizes) < 1:
            raise ValueError(f"group, sizes: must be at least 1, got {group}, {list(sizes)}")
        self.group, self.sizes = group, tuple(sizes)
        super().__init__(
            {
                "size": In(range(max(2, len(self.sizes)))),
                "i": In(stream.Signature(ByteGroup(group))),
                "o": Out(stream.Signature(ByteWord(max(self.sizes)))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        most = max(self.sizes)
        # A group is taken while at most one complete word waits.
        words = {size: -(-(size + self.group) // size) for size in self.sizes}
        room = max(size * count for size, count in words.items())
        held = Signal(8 * room)
        count = Signal(range(room + 1))  # a row's end rounds it up to whole words
        last = Signal(max(words.values()))  # by word: its row ends
        first = Signal(init=1)

        size, chosen = Signal(range(most + 1)), self.size
        with m.Switch(chosen):
            for n, one in enumerate(self.sizes):
                with m.Case(n):
                    m.d.comb += size.eq(one)

        emit, accept = Signal(), Signal()
        base = Signal(range(most + 1))  # used only if it is that small
        rest, word = Signal(8 * room), Signal(8 * most)
        rest_last = Signal.like(last)
        left = Signal(count.shape())
        with m.Switch(chosen):
            for n, one in enumerate(self.sizes):
                with m.Case(n):
                    m.d.comb += [
                        word.eq(held[: 8 * one]),
                        rest.eq(Mux(emit, held.shift_right(8 * one), held)),
                        left.eq(Mux(emit, count - one, count)),
                    ]
        m.d.comb += [
            self.o.valid.eq((count >= size) & (size != 0)),
            self.o.payload.data.eq(word),
            self.o.payload.first.eq(first),
            self.o.payload.last.eq(last[0]),
            emit.eq(self.o.valid & self.o.ready),
            rest_last.eq(Mux(emit, last >> 1, last)),
            base.eq(left),
            self.i.ready.eq(left <= size),
            accept.eq(self.i.valid & self.i.ready),
        ]
        with m.If(emit):
            m.d.sync += first.eq(last[0])

        group = shifted_in(m, Value.cast(self.i.payload.data), base, 8, 8 * room)
        filled, rounded = Signal(count.shape()), Signal(count.shape())
        ends = Signal.like(last)
        m.d.comb += filled.eq(base + self.i.payload.count)
        with m.Switch(chosen):
            for n, one in enumerate(self.sizes):
                with m.Case(n):
                    for i in range(words[one]):
                        with m.If(filled > i * one):
                            m.d.comb += [rounded.eq((i + 1) * one), ends.eq(1 << i)]

        m.d.sync += [count.eq(left), held.eq(rest), last.eq(rest_last)]
        with m.If(accept):
            m.d.sync += [
                count.eq(Mux(self.i.payload.last, rounded, filled)),
                held.eq(rest | group),
                last.eq(rest_last | Mux(self.i.payload.last, ends, 0)),
            ]
        return m
