"""What the array does in every cycle."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.program import Function
from hw.command import FuseLayout
from hw.softmax.sum_queue import beat_bits

__all__ = ["Issuer", "Step"]


class Step(data.StructLayout):
    """A cycle's work: one word of one column of every bank."""

    def __init__(self, config: CoreConfig):
        super().__init__(
            {
                "axpy": 1,
                "kept": 1,  # axpy over the columns of the mask just made
                "half": 1,  # axpy rows, kept ones aside, have 0 and 1 in turn
                "position": config.local_bits,  # in each bank's list of kept columns
                "beat": beat_bits(config),
                "offset": (config.memory.bank_words - 1).bit_length(),  # bank word of local index 0
                "first": 1,  # dot: first beat of a column; axpy: first column of a word
                "last": 1,
                "last_column": 1,
                "last_beat": 1,
            }
        )


class Issuer(wiring.Component):
    """Walks the array through rows: *dot* column by column, *axpy* word by word.

    Dot visits all beats of a column before the next column, axpy all columns of a beat before the
    next beat.  Either takes `steps * beats` cycles, and phases follow each other without a bubble.
    Whenever one ends, the next is the kept columns' axpy of the last row, else the axpy of the
    oldest scored row, else the dot of the next listed one.

    A word of sums, or with PROJECT a group of dot products, is begun only while there is room for
    it; the array waits meanwhile.

    With `mark` only the numerators of an axpy over all columns are wanted: it has one word, which
    leaves nothing behind and takes no room.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    command, groups : In
        Quasi-static; columns that a bank holds.
    dot_ready, dot_steps, axpy_ready, axpy_steps, kept_ready, kept_steps : In
        What could be started, and columns of its fullest bank.
    start_dot, start_axpy, start_kept : Out
    sums_room, dots_room : In
    begin_sum, begin_dots : Out
        Room for one is taken.
    begin_axpy : Out
        First step of a word of an axpy over all columns.
    waiting : Out
        The next word or group waits for room.
    go, step : Out, `Step`
    end_dot, end_axpy, end_kept : Out
        This was the last step of the row's.
    half : Out
        That of the next axpy.
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        steps = config.local_bits + 1
        members = {
            "command": In(FuseLayout(config)),
            "groups": In(config.local_bits + 1),
            "sums_room": In(1),
            "dots_room": In(1),
            "begin_sum": Out(1),
            "begin_dots": Out(1),
            "begin_axpy": Out(1),
            "waiting": Out(1),
            "go": Out(1),
            "step": Out(Step(config)),
            "half": Out(1),
        }
        for phase in ("dot", "axpy", "kept"):
            members |= {
                f"{phase}_ready": In(1),
                f"{phase}_steps": In(steps),
                f"start_{phase}": Out(1),
                f"end_{phase}": Out(1),
            }
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        cmd, step = self.command, self.step
        valid, steps = Signal(), Signal(self.dot_steps.shape())
        beats = Signal(cmd.beats.shape())
        axpy_beats = Mux(cmd.axpy_beats == 0, cmd.beats, cmd.axpy_beats)

        silent = cmd.mark & ~step.kept
        room = Mux(
            step.axpy,
            self.sums_room | silent,
            self.dots_room | (cmd.function != Function.PROJECT),
        )
        finishing = self.go & step.last_beat & step.last_column
        m.d.comb += [
            step.last_beat.eq(step.beat + 1 == beats),
            step.last_column.eq(step.position + 1 == steps),
            step.first.eq(Mux(step.axpy, step.position == 0, step.beat == 0)),
            step.last.eq(Mux(step.axpy, step.last_column, step.last_beat)),
            self.go.eq(valid & (room | ~step.first)),
            self.waiting.eq(valid & ~self.go),
            self.begin_sum.eq(self.go & step.first & step.axpy & ~silent),
            self.begin_axpy.eq(self.go & step.first & step.axpy & ~step.kept),
            self.begin_dots.eq(
                self.go & step.first & ~step.axpy & (cmd.function == Function.PROJECT)
            ),
            self.end_dot.eq(finishing & ~step.axpy),
            self.end_axpy.eq(finishing & step.axpy & ~step.kept),
            self.end_kept.eq(finishing & step.kept),
        ]

        base = Mux(step.axpy, cmd.axpy_base, cmd.dot_base)
        with m.If(self.go):
            with m.If(step.last):
                m.d.sync += [
                    step.position.eq(Mux(step.axpy, 0, step.position + 1)),
                    step.beat.eq(Mux(step.axpy, step.beat + 1, 0)),
                    step.offset.eq(Mux(step.axpy, step.offset + self.groups, base)),
                ]
            with m.Elif(step.axpy):
                m.d.sync += step.position.eq(step.position + 1)
            with m.Else():
                m.d.sync += [
                    step.beat.eq(step.beat + 1),
                    step.offset.eq(step.offset + self.groups),
                ]

        idle = ~valid | finishing
        m.d.comb += [
            self.start_kept.eq(idle & self.kept_ready),
            self.start_axpy.eq(idle & ~self.kept_ready & self.axpy_ready),
            self.start_dot.eq(idle & ~self.kept_ready & ~self.axpy_ready & self.dot_ready),
        ]
        with m.If(idle):
            m.d.sync += [
                valid.eq(self.start_kept | self.start_axpy | self.start_dot),
                step.axpy.eq(~self.start_dot),
                step.kept.eq(self.start_kept),
                step.position.eq(0),
                step.beat.eq(0),
            ]
            with m.If(self.start_dot):
                m.d.sync += [
                    steps.eq(self.dot_steps),
                    beats.eq(cmd.beats),
                    step.offset.eq(cmd.dot_base),
                ]
            with m.Else():
                m.d.sync += [
                    steps.eq(Mux(self.start_kept, self.kept_steps, self.axpy_steps)),
                    beats.eq(Mux(cmd.mark & ~self.start_kept, 1, axpy_beats)),
                    step.offset.eq(cmd.axpy_base),
                ]
        with m.If(self.start_axpy):
            m.d.sync += [step.half.eq(self.half), self.half.eq(~self.half)]
        return m
