"""Rows as words: shapes, positions, and the register at the end of every pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from amaranth.hdl import Cat, Module, Mux, Shape, ShapeLike, Signal, Value, ValueLike
from amaranth.lib import data, wiring

from disc.config import CoreConfig

__all__ = [
    "Position",
    "RowWord",
    "busy",
    "join",
    "masked",
    "offer",
    "row_left",
    "row_position",
    "total_bits",
    "words_of",
]


def total_bits(config: CoreConfig) -> int:
    """Unsigned bits of a row's sum of numerators over all key tiles: 65536 keys and fewer."""
    return config.number.numerator_bits + 16


def words_of(channels: int, lanes: int) -> int:
    """Words of a row."""
    return -(-channels // lanes)


class RowWord(data.StructLayout):
    """A word of a row on its way out; `last` marks the row's last."""

    def __init__(self, shape: ShapeLike, lanes: int):
        super().__init__({"data": data.ArrayLayout(shape, lanes), "last": 1})


class Position(NamedTuple):
    """Where in its row the word at the input stands."""

    word: Signal
    first: Value
    last: Value
    enable: Signal
    """[lanes]: the lane holds an element of the row."""


def row_position(
    m: Module, step: Value, channels: Value, lanes: int, most: int, *, name: str
) -> Position:
    """Count words of rows; `step` says that one is taken.

    No divider: elements are counted, `lanes` a word.

    Parameters
    ----------
    channels
        Elements of a row, 1 to `most`.
    """
    word = Signal(range(max(2, words_of(most, lanes))), name=f"{name}_word")
    element = Signal(range(most + 1), name=f"{name}_element")
    enable = Signal(lanes, name=f"{name}_enable")
    last = Signal(name=f"{name}_last")
    m.d.comb += [
        last.eq(element + lanes >= channels),
        enable.eq(Cat(element + lane < channels for lane in range(lanes))),
    ]
    with m.If(step):
        m.d.sync += [
            word.eq(Mux(last, 0, word + 1)),
            element.eq(Mux(last, 0, element + lanes)),
        ]
    return Position(word, word == 0, last, enable)


def masked(values: list[Value], enable: Value) -> list[Value]:
    """Return 0 in lanes that hold no element."""
    return [Mux(enable[lane], value, 0) for lane, value in enumerate(values)]


def join(
    m: Module, advance: Value, inputs: Sequence[tuple[wiring.PureInterface, ValueLike]]
) -> Signal:
    """Take one word of every stream that is wanted, together; return `accept`, when they are.

    Parameters
    ----------
    inputs
        Streams, and whether a word of it is wanted.
    """
    accept = Signal()
    m.d.comb += accept.eq(
        advance & Cat(i.valid | ~Value.cast(wanted) for i, wanted in inputs).all()
    )
    for i, wanted in inputs:
        m.d.comb += i.ready.eq(accept & wanted)
    return accept


def row_left(o: wiring.PureInterface) -> Value:
    """Return whether the last word of a row leaves at a stream of `RowWord`."""
    return o.valid & o.ready & o.payload.last


def offer(
    m: Module,
    outputs: Mapping[str, tuple[wiring.PureInterface, Value]],
    fields: Mapping[str, Mapping[str, list[Value] | Value]],
    go: ValueLike = 1,
) -> Signal:
    """Register the end of a pipeline into one or more streams; return `advance`.

    The pipeline moves in every cycle in which `advance` is high.  Outputs are taken one by one; the
    pipeline waits for all of them.

    Parameters
    ----------
    outputs
        By name: the stream, and whether the end of the pipeline has something for it.
    fields
        By name: values of the payload's fields; a list is one value a lane.
    go
        Low: the pipeline waits for something else.
    """
    advance = Signal()
    m.d.comb += advance.eq(go & ~Cat(o.valid & ~o.ready for o, _ in outputs.values()).any())
    for name, (o, valid) in outputs.items():
        with m.If(o.ready):
            m.d.sync += o.valid.eq(0)
        with m.If(advance):
            m.d.sync += o.valid.eq(valid)
            for field, value in fields[name].items():
                if isinstance(value, list):
                    m.d.sync += [o.payload[field][i].eq(v) for i, v in enumerate(value)]
                else:
                    m.d.sync += o.payload[field].eq(value)
    return advance


def busy(m: Module, begin: Value, end: Value, most: int) -> Value:
    """Return whether a row is inside, from the cycle after its first word was taken.

    Parameters
    ----------
    begin, end
        A row's first word is taken, its last word leaves.
    most
        Most rows inside.
    """
    rows = Signal(Shape.cast(range(most + 1)), name="rows_inside")
    m.d.sync += rows.eq(rows + begin - end)
    return rows != 0
