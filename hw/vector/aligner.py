"""The data aligner: collects groups of B results into words of another width."""

from __future__ import annotations

from math import gcd

from amaranth.hdl import Const, Module, Mux, ShapeLike, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hw.vector.words import RowWord

__all__ = ["Aligner", "Group", "exchange"]


class Group(data.StructLayout):
    """`count` elements of a row, the others 0; all groups but a row's last are full."""

    def __init__(self, shape: ShapeLike, size: int):
        super().__init__(
            {"data": data.ArrayLayout(shape, size), "count": range(size + 1), "last": 1}
        )


def exchange(m: Module, values: list[Value], offset: Value, *, name: str) -> list[Value]:
    """Return the list whose entry i is `values[i XOR offset]`: log2(B) rows of exchanges."""
    for bit in range(len(offset)):
        swapped = []
        for i, value in enumerate(values):
            one = Signal(value.shape(), name=f"{name}_{bit}_{i}")
            m.d.comb += one.eq(Mux(offset[bit], values[i ^ 1 << bit], value))
            swapped.append(one)
        values = swapped
    return values


class Aligner(wiring.Component):
    """Rows in groups of `size` elements to rows in words of `lanes` elements.

    Every row starts a word; the padding of its last word is 0.

    Throughput: a row of G groups and W words takes max(G, W) cycles, without a gap between rows.
    Latency: a word is offered in the cycle after the group that completes it was taken.

    Parameters
    ----------
    shape
        Shape of an element.
    size, lanes : int
        Elements of a group and of a word.

    Members
    -------
    i : In, stream of `Group`
    o : Out, stream of `RowWord`

    Raises
    ------
    ValueError
        `size` or `lanes` is less than 1.
    """

    def __init__(self, shape: ShapeLike, size: int, lanes: int):
        for name, value in (("size", size), ("lanes", lanes)):
            if value < 1:
                raise ValueError(f"{name}: must be at least 1, got {value}")
        self.shape, self.size, self.lanes = shape, size, lanes
        super().__init__(
            {
                "i": In(stream.Signature(Group(shape, size))),
                "o": Out(stream.Signature(RowWord(shape, lanes))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        size, lanes = self.size, self.lanes
        # A group is taken while at most one word waits.
        words = -(-(lanes + size) // lanes)
        held = Signal(data.ArrayLayout(self.shape, words * lanes), reset_less=False)
        count = Signal(range(words * lanes + 1))  # a row's end rounds it up to whole words
        last = Signal(words)

        emit, accept = Signal(), Signal()
        base = Signal(count.shape())
        element_bits = held.shape().size // (words * lanes)
        rest = Signal(held.shape().size)
        rest_last = Signal(words)
        raw = Value.cast(held)
        m.d.comb += [
            self.o.valid.eq(count >= lanes),
            self.o.payload.data.eq(raw[: lanes * element_bits]),
            self.o.payload.last.eq(last[0]),
            emit.eq(self.o.valid & self.o.ready),
            base.eq(Mux(emit, count - lanes, count)),
            rest.eq(Mux(emit, raw.shift_right(lanes * element_bits), raw)),
            rest_last.eq(Mux(emit, last >> 1, last)),
            self.i.ready.eq(base <= lanes),
            accept.eq(self.i.valid & self.i.ready),
        ]

        group = Signal(held.shape().size)
        for offset in range(0, lanes + 1, gcd(size, lanes)):
            with m.If(base == offset):
                m.d.comb += group.eq(
                    Value.cast(self.i.payload.data).shift_left(offset * element_bits)
                )
        filled = Signal(count.shape())
        rounded = Signal(count.shape())
        ends = Signal(words)  # the word in which the row ends
        m.d.comb += filled.eq(base + self.i.payload.count)
        for n in range(words):
            with m.If(filled > n * lanes):
                m.d.comb += [rounded.eq((n + 1) * lanes), ends.eq(Const(1 << n, words))]

        m.d.sync += [count.eq(base), raw.eq(rest), last.eq(rest_last)]
        with m.If(accept):
            m.d.sync += [
                count.eq(Mux(self.i.payload.last, rounded, filled)),
                raw.eq(rest | group),
                last.eq(rest_last | Mux(self.i.payload.last, ends, 0)),
            ]
        return m
