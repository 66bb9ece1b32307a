"""Finished dot products of a projection on their way out of the engine."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from hw.adder_tree import adder_tree_latency
from hw.command import RowEntry

__all__ = ["DotGroup", "DotQueue", "dot_queue_depth"]


def dot_queue_depth(config: CoreConfig) -> int:
    """Groups on their way from issue to the output: enough that one may leave in every cycle."""
    return 11 + adder_tree_latency(config.array.lanes)


class DotGroup(data.StructLayout):
    """Dot products of one column of every bank, in bank order.

    Element b belongs to the column with local index `local[b]` of bank b, if `enable[b]`.  In a row
    that keeps all columns every local index equals `group`.
    """

    def __init__(self, config: CoreConfig):
        B = config.array.banks
        super().__init__(
            {
                "slot": range(config.memory.query_rows),
                "token": config.column_bits,
                "group": config.local_bits,
                "row_last": 1,
                "last": 1,  # of the command
                "enable": B,
                "local": data.ArrayLayout(config.local_bits, B),
                "data": data.ArrayLayout(signed(config.number.accumulator_bits), B),
            }
        )


class DotQueue(wiring.Component):
    """Queue of groups.

    The array never stalls, so a group may only be begun while there is `room`: `start` takes it,
    and it is given back when the group has been taken at `o`.

    Latency 2 cycles; a group a cycle.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    start : In
    row : In, `RowEntry`
        The row to which the next group belongs.
    i_valid, i, i_enable, i_local, i_last : In
        A group as the array emits it; `i_last` marks the row's last.
    room : Out
    row_done : Out
        The last group of a row came in: `row` must be the next row's from the next cycle on.
    o : Out, stream of `DotGroup`
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        group = DotGroup(config)
        super().__init__(
            {
                "start": In(1),
                "row": In(RowEntry(config)),
                "i_valid": In(1),
                "i": In(group["data"].shape),
                "i_enable": In(config.array.banks),
                "i_local": In(group["local"].shape),
                "i_last": In(1),
                "room": Out(1),
                "row_done": Out(1),
                "o": Out(stream.Signature(group)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        depth = dot_queue_depth(self.config)
        layout = DotGroup(self.config)
        group, position = Signal(layout), Signal(self.config.local_bits)
        m.d.comb += [
            group.slot.eq(self.row.slot),
            group.token.eq(self.row.token),
            group.group.eq(position),
            group.row_last.eq(self.i_last),
            group.last.eq(self.i_last & self.row.last),
            group.enable.eq(self.i_enable),
            group.local.eq(self.i_local),
            group.data.eq(self.i),
            self.row_done.eq(self.i_valid & self.i_last),
        ]
        with m.If(self.i_valid):
            m.d.sync += position.eq(Mux(self.i_last, 0, position + 1))

        m.submodules.groups = groups = SyncFIFOBuffered(width=layout.size, depth=depth)
        taken = self.o.valid & self.o.ready
        m.d.comb += [
            groups.w_data.eq(group),
            groups.w_en.eq(self.i_valid),
            groups.r_en.eq(taken),
            self.o.valid.eq(groups.r_rdy),
            Value.cast(self.o.payload).eq(groups.r_data),
        ]
        free = Signal(range(depth + 1), init=depth)
        m.d.sync += free.eq(free - self.start + taken)
        m.d.comb += self.room.eq(free != 0)
        return m
