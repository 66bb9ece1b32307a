"""Rows in flight: accepted, listed, scored, summed."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.program import Function
from hw.command import FuseLayout, RowEntry
from hw.reduce import largest
from hw.softmax.score import maximum_bits

__all__ = ["RowRing", "RowSlot"]


class RowSlot(data.StructLayout):
    """A row in flight."""

    def __init__(self, config: CoreConfig):
        super().__init__(
            {
                "row": RowEntry(config),
                "word": range(max(2, config.query_words)),  # where it starts in the row buffer
                "counts": data.ArrayLayout(config.local_bits + 1, config.array.banks),
                "steps": config.local_bits + 1,  # of the fullest bank, at least 1
                "maximum": signed(maximum_bits(config)),
            }
        )


class RowRing(wiring.Component):
    """Takes rows into a ring of `array.rows_in_flight` slots and follows them through it.

    A row's kept columns are listed; then *dot* makes scores of them; then *axpy* sums.  The ring
    counts the rows that wait for each, in order.  A slot is free again when its row needs its
    list no longer.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    command : In, `FuseLayout`
        Quasi-static while a command runs.
    restart : In
        Begin with the first slot; only while no row is in flight.
    running : In
        Rows may be taken.
    rows : In, stream of `RowEntry`
    mask_row : Out, stream of slots of the mask memory
        To the mask controller: list this row.
    kept_valid : In, [B]
    listed : In
        From the mask controller: these banks yield a column; the row has been listed.
    list_slot : Out
    list_position : Out, [B]
        Where the columns go in the `RowStore`.
    dot_ready, dot_steps, axpy_ready, axpy_steps : Out
        There is a row to be started, and how many columns its fullest bank has.
    start_dot, start_axpy : In
    current, current_slot : Out
        The row started last.
    release : In
        The slot of the oldest row is free.
    dots_row : Out, `RowEntry`
    dots_done : In
        The row whose dot products leave the array, and that these were the last.
    maximum_valid, maximum : In
        The next row has been scored.
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        B, slot = config.array.banks, range(config.array.rows_in_flight)
        steps = config.local_bits + 1
        super().__init__(
            {
                "command": In(FuseLayout(config)),
                "restart": In(1),
                "running": In(1),
                "rows": In(stream.Signature(RowEntry(config))),
                "mask_row": Out(stream.Signature(range(config.memory.query_rows))),
                "kept_valid": In(B),
                "listed": In(1),
                "list_slot": Out(slot),
                "list_position": Out(data.ArrayLayout(config.local_bits, B)),
                "dot_ready": Out(1),
                "dot_steps": Out(steps),
                "axpy_ready": Out(1),
                "axpy_steps": Out(steps),
                "start_dot": In(1),
                "start_axpy": In(1),
                "current": Out(RowSlot(config)),
                "current_slot": Out(slot),
                "release": In(1),
                "dots_row": Out(RowEntry(config)),
                "dots_done": In(1),
                "maximum_valid": In(1),
                "maximum": In(signed(maximum_bits(config))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, S = self.config, self.config.array.rows_in_flight
        slots = Array(Signal(RowSlot(config), name=f"slot_{s}") for s in range(S))

        def pointer(name: str, step: Value) -> Signal:
            signal = Signal(range(S), name=name)
            with m.If(step):
                m.d.sync += signal.eq(Mux(signal == S - 1, 0, signal + 1))
            with m.If(self.restart):
                m.d.sync += signal.eq(0)
            return signal

        def count(name: str, more: Value, less: Value, *, init: int = 0) -> Signal:
            signal = Signal(range(S + 1), name=name, init=init)
            m.d.sync += signal.eq(signal + more - less)
            return signal

        list_slot = pointer("list_slot", self.listed)
        dot_slot = pointer("dot_slot", self.start_dot)
        axpy_slot = pointer("axpy_slot", self.start_axpy)
        dots_slot = pointer("dots_slot", self.dots_done)
        maximum_slot = pointer("maximum_slot", self.maximum_valid)
        accept = self.rows.valid & self.rows.ready
        free = count("free", self.release, accept, init=S)
        waiting = count("waiting", self.listed, self.start_dot)
        scored = count("scored", self.maximum_valid, self.start_axpy)
        m.d.comb += [
            self.list_slot.eq(list_slot),
            self.dot_ready.eq(waiting != 0),
            self.dot_steps.eq(slots[dot_slot].steps),
            self.axpy_ready.eq((scored != 0) & (self.command.function != Function.PROJECT)),
            self.axpy_steps.eq(slots[axpy_slot].steps),
            self.dots_row.eq(slots[dots_slot].row),
            self.current.eq(slots[self.current_slot]),
        ]
        with m.If(self.start_dot):
            m.d.sync += self.current_slot.eq(dot_slot)
        with m.If(self.start_axpy):
            m.d.sync += self.current_slot.eq(axpy_slot)
        with m.If(self.maximum_valid):
            # With `mark` that of the whole row came with it.
            given = slots[maximum_slot].row.maximum
            m.d.sync += slots[maximum_slot].maximum.eq(Mux(self.command.mark, given, self.maximum))

        # One row at a time is listed; the mask controller takes it and the slot together.
        cmd, row = self.command, self.rows.payload
        room = self.running & (free != 0)
        m.d.comb += [
            self.mask_row.payload.eq(cmd.mask_slot + Mux(cmd.shared_mask, 0, row.slot)),
            self.mask_row.valid.eq(self.rows.valid & room),
            self.rows.ready.eq(self.mask_row.ready & room),
        ]
        stride = Mux(cmd.row_stride == 0, config.max_beats, cmd.row_stride)
        with m.If(accept):
            m.d.sync += [
                slots[list_slot].row.eq(row),
                slots[list_slot].word.eq(cmd.row_base + row.slot * stride),
            ]

        counts = []
        for b in range(config.array.banks):
            counted = Signal(config.local_bits + 1, name=f"count_{b}")
            with m.If(self.listed):
                m.d.sync += counted.eq(0)
            with m.Elif(self.kept_valid[b]):
                m.d.sync += counted.eq(counted + 1)
            m.d.comb += self.list_position[b].eq(counted)
            counts.append(counted)
        with m.If(self.listed):
            most = largest(counts)
            m.d.sync += [
                slots[list_slot].counts.eq(Cat(counts)),
                # An empty row takes one step in which no bank takes part.
                slots[list_slot].steps.eq(Mux(most == 0, 1, most)),
            ]
        return m
