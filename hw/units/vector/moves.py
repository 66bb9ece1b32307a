"""Which words of the vector unit's readers go where."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring

from disc.config import CoreConfig
from disc.program import sizes
from disc.tables import DISTANCE_BITS
from hw.memory.reader import RowReader
from hw.memory.writer import RowWriter
from hw.units.vector.norm import NormRows
from hw.units.vector.side import SideReader
from hw.vector.forecast import Forecast, Record

__all__ = ["give_words", "take_words", "use_ages"]


def take_words(
    m: Module,
    config: CoreConfig,
    kinds: Mapping[str, Signal],
    hold: Value,
    readers: Mapping[str, RowReader],
    norm: NormRows,
    forecast: Forecast,
    record: Record,
) -> tuple[Value, Value]:
    """Take words of rows; return whether those that are needed are there, and if a row ends."""
    bits, lanes = config.number.residual_bits, config.vector.lanes
    o = {name: reader.o for name, reader in readers.items()}
    sinks: dict[str, list[tuple[Signal, Any]]] = {
        "x": [
            (kinds["norm"], norm.i),
            (kinds["forecast"] & ~hold, forecast.before),
            (kinds["record"], record.x),
        ],
        **{
            name: [
                (kinds["forecast"], getattr(forecast, name)),
                (kinds["record"], getattr(record, name)),
            ]
            for name in ("embedding", "last")
        },
    }
    for name, takers in sinks.items():
        raw, ready = o[name].payload.data.as_value(), []
        for wanted, i in takers:
            for lane in range(lanes):
                element = raw[8 * sizes.RESIDUAL_BYTES * lane :][:bits]
                m.d.comb += i.payload[lane].eq(element.as_signed())
            m.d.comb += i.valid.eq(o[name].valid & wanted)
            ready.append(i.ready & wanted)
        m.d.comb += o[name].ready.eq(Cat(ready).any())
    x, last = o["x"], o["last"]
    there = Mux(
        kinds["norm"],
        x.valid,
        (x.valid | (kinds["forecast"] & hold))
        & o["embedding"].valid
        & last.valid
        & ~(kinds["forecast"] & forecast.missing),
    )
    ends = [one.valid & one.ready & one.payload.last for one in (x, last)]
    return there, Mux(kinds["norm"], *ends)


def give_words(
    m: Module,
    lanes: int,
    is_forecast: Value,
    forecast: Forecast,
    record: Record,
    writer: RowWriter,
    before: RowWriter,
) -> None:
    """Pass words on to their writers, every element as an int16."""

    def connect(o: wiring.PureInterface, i: wiring.PureInterface) -> None:
        for lane in range(lanes):
            wide = Signal(signed(8 * sizes.RESIDUAL_BYTES), name=f"element_{lane}")
            m.d.comb += wide.eq(o.payload.data[lane])
            for byte in range(sizes.RESIDUAL_BYTES):
                place = lane * sizes.RESIDUAL_BYTES + byte
                m.d.comb += i.payload[place].eq(wide[8 * byte :][:8])
        m.d.comb += [i.valid.eq(o.valid), o.ready.eq(i.ready)]

    with m.If(is_forecast):
        connect(forecast.o, writer.i)
    with m.Else():
        connect(record.new_last, writer.i)
    connect(record.new_before, before.i)


def use_ages(
    m: Module, is_record: Value, side: SideReader, forecast: Forecast, writer: RowWriter
) -> Value:
    """Ages become distances, or new ages; return whether some are none that can be used."""
    ages, o = side.ages.payload, forecast.row
    since = Signal(signed(len(side.step) + 1))
    apart = Signal(signed(len(ages.last) + 1))
    once, bad = Signal(), Signal()
    m.d.comb += [
        since.eq(side.step - ages.last),
        apart.eq(ages.last - ages.before),
        once.eq(ages.before < 0),
        bad.eq(
            (ages.last < 0)
            | (since >> DISTANCE_BITS).any()
            | (~once & (apart >> DISTANCE_BITS).any())
        ),
        writer.i.payload.eq(Cat(side.step[: len(ages.last)], ages.last)),
        writer.i.valid.eq(side.ages.valid & is_record),
        side.ages.ready.eq(Mux(is_record, writer.i.ready, ~o.valid | o.ready)),
    ]
    taken = Signal()
    m.d.comb += taken.eq(side.ages.valid & side.ages.ready & ~is_record)
    with m.If(o.ready):
        m.d.sync += o.valid.eq(0)
    with m.If(taken):
        m.d.sync += [
            o.valid.eq(1),
            o.payload.since.eq(since),
            o.payload.apart.eq(Mux(once, 0, apart)),
        ]
    return taken & bad
