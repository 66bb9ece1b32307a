"""Where the rows of a command lie."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, Module, Signal, Value, ValueLike
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from disc.program.fields import ADDRESS_BITS, STRIDE_BITS, TOKEN_BITS
from hw.memory.address import RowAddresses
from hw.memory.lists import ListReadPort

__all__ = ["RowPlace", "RowPlaces", "fork"]


class RowPlace(data.StructLayout):
    """A row's token, and how far it lies from that of token 0 in bytes."""

    def __init__(self):
        super().__init__({"offset": ADDRESS_BITS, "token": TOKEN_BITS})


class RowPlaces(wiring.Component):
    """Places of the rows of a list, one a cycle.

    All rows of a command's token lie at the same distance from their bases, so one multiplier and
    one port of the list buffers serve them all.

    Latency: a place is offered 4 cycles after its run was taken.

    Parameters
    ----------
    most_rows : int
        Of a run.

    Members
    -------
    run : In, stream of {rows, stride}
    list : Out, `ListReadPort`
        Without `list`, which is the command's.
    o : Out, stream of `RowPlace`
    """

    def __init__(self, most_rows: int):
        self.most_rows = most_rows
        port = ListReadPort(most_rows).members
        run = data.StructLayout({"rows": range(most_rows + 1), "stride": STRIDE_BITS})
        super().__init__(
            {
                "run": In(stream.Signature(run)),
                **{name: port[name] for name in ("entry", "en", "token")},
                "o": Out(stream.Signature(RowPlace())),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.addresses = addresses = RowAddresses(self.most_rows)
        run, o = addresses.run, self.o
        m.d.comb += [
            run.payload.rows.eq(self.run.payload.rows),
            run.payload.stride.eq(self.run.payload.stride),
            run.payload.gather.eq(1),
            run.valid.eq(self.run.valid),
            self.run.ready.eq(run.ready),
            self.entry.eq(addresses.entry),
            self.en.eq(addresses.en),
            addresses.token.eq(self.token),
            o.valid.eq(addresses.rows.valid),
            o.payload.offset.eq(addresses.rows.payload.address),
            addresses.rows.ready.eq(o.ready),
        ]
        # The token goes along with its product and with its address.
        multiplied = Signal(TOKEN_BITS, reset_less=True)
        with m.If(addresses.en):
            m.d.sync += [multiplied.eq(self.token), o.payload.token.eq(multiplied)]
        return m


def fork(
    m: Module,
    source: wiring.PureInterface,
    outputs: Sequence[tuple[Signal, Value, ValueLike]],
    *,
    name: str,
) -> None:
    """Give each item of a stream to all outputs that want it; they take it one by one.

    Parameters
    ----------
    outputs
        `valid` and `ready` of each, and whether it wants the item.
    """
    taken = Signal(len(outputs), name=f"{name}_taken")
    takes, wants = [], []
    for n, (valid, ready, wanted) in enumerate(outputs):
        m.d.comb += valid.eq(source.valid & wanted & ~taken[n])
        takes.append(valid & ready)
        wants.append(~Value.cast(wanted))
    served = taken | Cat(takes)
    m.d.comb += source.ready.eq(source.valid & (served | Cat(wants)).all())
    m.d.sync += taken.eq(0)
    with m.If(source.valid & ~source.ready):
        m.d.sync += taken.eq(served)
