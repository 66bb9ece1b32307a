"""The attention engine: one head over a list of query rows."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.program import MaskMode
from hw.adder_tree import adder_tree, adder_tree_latency, delay
from hw.command import FuseLayout, RowEntry
from hw.distributor import BankDistributor, OperandWord
from hw.dpu_array import ArrayStep, DpuArray
from hw.hash import matrix_layout
from hw.mask_controller import MaskController, MaskLine
from hw.mask_generator import MaskGenerator, MaskRow, total_bits
from hw.normaliser import FinishedRow, Normaliser, ResultWord
from hw.numerator import NumeratorUnit
from hw.row_store import RowStore
from hw.score import ScoreUnit, maximum_bits
from hw.sram import Sram

__all__ = ["AttentionEngine", "EngineCounters", "QueryWord"]


class QueryWord(data.StructLayout):
    """A word of the query buffer: beat n of slot s has the address `s * config.max_beats + n`."""

    def __init__(self, config: CoreConfig):
        super().__init__(
            {
                "address": range(max(2, config.query_words)),
                "data": data.ArrayLayout(signed(config.number.operand_bits), config.array.lanes),
            }
        )


class EngineCounters(data.StructLayout):
    """Counts since the command was accepted; they hold their values until the next one."""

    def __init__(self):
        super().__init__(
            {
                "cycles": 32,  # from acceptance to the last result taken
                "dot": 32,  # cycles in which the array worked on dot
                "axpy": 32,  # cycles in which the array worked on axpy
                "kept": 32,  # kept columns, summed over rows
                "rows": 32,
            }
        )


class AttentionEngine(wiring.Component):
    """Sequences dot, softmax, axpy and normalisation for one head over a list of query rows.

    Every row passes four stages: its kept columns are listed (mask controller), *dot* computes
    their scores, *axpy* sums numerator times V, and the sum is normalised.  Up to
    `array.rows_in_flight` rows are between listing and axpy at a time.  Dot and axpy share the
    array; both visit, in every bank, one kept column after the other, all banks in step.  So with
    k the kept columns of the row's fullest bank, the row occupies the array for `2 * k * beats`
    cycles, and rows follow each other without a gap as long as listing and normalising keep up.

    Results leave in the order of the rows.  With GENERATE, mask lines leave on `masks_out` and are
    kept in the mask memory too.  Operands, queries and masks are loaded between commands (a
    matrix or a slot that no command in progress reads may be loaded at any time).

    A row that keeps no column gives zeros.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    matrix : In, rows of H
        Quasi-static.
    operands : In, stream of `OperandWord`
    queries : In, stream of `QueryWord`
    masks : In, stream of `MaskLine`
    command : In, stream of `FuseLayout`
        Accepted when the engine is idle.
    rows : In, stream of `RowEntry`
        The rows of the command; the last one carries `last`.
    o : Out, stream of `ResultWord`
    masks_out : Out, stream of `MaskLine`
    busy : Out
        A command is in progress.
    counters : Out, `EngineCounters`
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        super().__init__(
            {
                "matrix": In(matrix_layout(config)),
                "operands": In(stream.Signature(OperandWord(config))),
                "queries": In(stream.Signature(QueryWord(config))),
                "masks": In(stream.Signature(MaskLine(config))),
                "command": In(stream.Signature(FuseLayout(config))),
                "rows": In(stream.Signature(RowEntry(config))),
                "o": Out(stream.Signature(ResultWord(config))),
                "masks_out": Out(stream.Signature(MaskLine(config))),
                "busy": Out(1),
                "counters": Out(EngineCounters()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config

        m.submodules.distributor = self._distributor = BankDistributor(config)
        m.submodules.mask = self._mask = MaskController(config)
        m.submodules.store = self._store = RowStore(config)
        m.submodules.array = self._array = DpuArray(config)
        m.submodules.score = self._score = ScoreUnit(config)
        m.submodules.generator = self._generator = MaskGenerator(config)
        m.submodules.normaliser = self._normaliser = Normaliser(config)

        self._cmd = Signal(FuseLayout(config))
        self._running = Signal()
        self._generating = self._cmd.mode == MaskMode.GENERATE
        self._connect_loads(m)
        self._connect_command(m)
        ring = self._list_rows(m)
        issue = self._issue(m, ring)
        self._fetch(m, ring, issue)
        self._collect_scores(m, ring)
        self._finish_rows(m, issue)
        return m

    def _connect_loads(self, m):
        m.submodules.queries_buffer = queries = Sram(
            QueryWord(self.config)["data"].shape, self.config.query_words
        )
        self._queries = queries
        m.d.comb += [
            queries.write_address.eq(self.queries.payload.address),
            queries.write_data.eq(self.queries.payload.data),
            queries.write_en.eq(self.queries.valid),
            self.queries.ready.eq(1),
            self._distributor.matrix.eq(self.matrix),
        ]
        wiring.connect(m, wiring.flipped(self.operands), self._distributor.i)

        # Generated lines take the mask memory's write port first.
        lines, generated = self._mask.lines, self._generator.lines
        taken = generated.valid & generated.ready
        m.d.comb += [
            self.masks_out.payload.eq(generated.payload),
            self.masks_out.valid.eq(generated.valid),
            generated.ready.eq(self.masks_out.ready),
            lines.payload.eq(
                Mux(taken, Value.cast(generated.payload), Value.cast(self.masks.payload))
            ),
            lines.valid.eq(taken | self.masks.valid),
            self.masks.ready.eq(~taken),
        ]

    def _connect_command(self, m):
        cmd = self._cmd
        for unit in (self._mask, self._generator):
            m.d.comb += [unit.matrix.eq(self.matrix), unit.columns.eq(cmd.columns)]
        m.d.comb += [
            self._mask.masked.eq(cmd.mode == MaskMode.MASKED),
            self._score.multiplier.eq(cmd.score_multiplier),
            self._score.shift.eq(cmd.score_shift),
            self._generator.threshold.eq(cmd.threshold),
            self._generator.diagonal.eq(cmd.diagonal),
            self._normaliser.multiplier.eq(cmd.output_multiplier),
            self._normaliser.shift.eq(cmd.output_shift),
            self._normaliser.beats.eq(cmd.beats),
        ]

        # Rows accepted and not yet completely delivered.
        self._last_accepted = Signal()
        outstanding = Signal(range(4 * self.config.array.rows_in_flight))
        delivered = self.o.valid & self.o.ready & (self.o.payload.beat + 1 == cmd.beats)
        row_accepted = self.rows.valid & self.rows.ready
        m.d.sync += outstanding.eq(outstanding + row_accepted - delivered)
        with m.If(row_accepted):
            m.d.sync += self._last_accepted.eq(self.rows.payload.last)

        self._generator_pending = Signal()
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.command.ready.eq(1)
                with m.If(self.command.valid):
                    m.d.sync += [cmd.eq(self.command.payload), self._last_accepted.eq(0)]
                    m.d.sync += self.counters.eq(0)
                    m.next = "SETTLE"
            with m.State("SETTLE"):
                # Sizes derived from the command are registered once.
                m.d.comb += self.busy.eq(1)
                m.next = "RUN"
            with m.State("RUN"):
                m.d.comb += [self.busy.eq(1), self._running.eq(~self._last_accepted)]
                with m.If(self._last_accepted & (outstanding == 0) & ~self._generator_pending):
                    m.next = "IDLE"
        with m.If(self.busy):
            m.d.sync += self.counters.cycles.eq(self.counters.cycles + 1)
            m.d.sync += self.counters.rows.eq(self.counters.rows + row_accepted)

    def _list_rows(self, m):
        """Accept rows into a ring of slots and list their kept columns there."""
        config, B, S = self.config, self.config.array.banks, self.config.array.rows_in_flight
        mask, store = self._mask, self._store
        entry = data.StructLayout(
            {
                "row": RowEntry(config),
                "counts": data.ArrayLayout(config.local_bits + 1, B),
                "steps": config.local_bits + 1,
                "maximum": signed(maximum_bits(config)),
            }
        )
        ring = _Ring(
            slots=Array(Signal(entry, name=f"slot_{s}") for s in range(S)),
            free=Signal(range(S + 1), init=S),
            listed=Signal(range(S + 1)),
            scored=Signal(range(S + 1)),
        )
        list_slot = Signal(range(S))
        m.d.comb += [
            mask.row.payload.eq(self.rows.payload.slot),
            mask.row.valid.eq(self.rows.valid & self._running & (ring.free != 0)),
            self.rows.ready.eq(mask.row.ready & self._running & (ring.free != 0)),
            mask.done.ready.eq(1),
        ]
        with m.If(mask.row.valid & mask.row.ready):
            m.d.comb += ring.accept.eq(1)
            m.d.sync += ring.slots[list_slot].row.eq(self.rows.payload)

        counts = [Signal(config.local_bits + 1, name=f"count_{b}") for b in range(B)]
        for b in range(B):
            with m.If(mask.done.valid):
                m.d.sync += counts[b].eq(0)
            with m.Elif(mask.kept_valid[b]):
                m.d.sync += counts[b].eq(counts[b] + 1)
            m.d.comb += [
                store.list_valid[b].eq(mask.kept_valid[b]),
                store.list_position[b].eq(counts[b]),
                store.list_local[b].eq(mask.kept[b]),
            ]
        m.d.comb += store.list_slot.eq(list_slot)

        most = counts
        while len(most) > 1:
            most = [Mux(a > b, a, b) for a, b in zip(most[::2], most[1::2], strict=True)]
        with m.If(mask.done.valid):
            m.d.comb += ring.list_done.eq(1)
            m.d.sync += list_slot.eq(_next(list_slot, S))
            slot = ring.slots[list_slot]
            m.d.sync += slot.counts.eq(Cat(counts))
            # An empty row takes one step in which no bank takes part.
            m.d.sync += slot.steps.eq(Mux(most[0] == 0, 1, most[0]))
        ring.count(m)
        return ring

    def _issue(self, m, ring):
        """Decide what the array does: axpy of the oldest scored row, else dot of the next."""
        config, S = self.config, self.config.array.rows_in_flight
        cmd = self._cmd
        step = ArrayStep(config)
        issue = _Issue(
            valid=Signal(),
            step=Signal(step),
            slot=Signal(range(S)),
            position=Signal(config.local_bits),
            offset=Signal((config.memory.bank_words - 1).bit_length()),
            half=Signal(),
            half_busy=Signal(2),
            start_axpy=Signal(),
        )
        position, beat = issue.position, issue.step.beat
        steps = Signal(config.local_bits + 1)
        groups = Signal(config.local_bits + 1)
        m.d.sync += groups.eq((cmd.columns + (config.array.banks - 1)) >> config.bank_bits)

        last_beat = issue.step.last_beat
        last_step = issue.step.last_step
        m.d.comb += [
            last_beat.eq(beat + 1 == cmd.beats),
            last_step.eq(position + 1 == steps),
            issue.step.first.eq(Mux(issue.step.axpy, position == 0, beat == 0)),
            issue.step.last.eq(Mux(issue.step.axpy, last_step, last_beat)),
        ]

        dot_slot, axpy_slot = Signal(range(S)), Signal(range(S))
        next_half = Signal()
        half_free = ~issue.half_busy.bit_select(next_half, 1) & (
            ~self._generating | self._generator.half_free.bit_select(next_half, 1)
        )
        finishing = issue.valid & last_beat & last_step
        idle = ~issue.valid | finishing
        start_axpy = idle & (ring.scored != 0) & half_free
        start_dot = idle & ~start_axpy & (ring.listed != 0)
        m.d.comb += [
            issue.start_axpy.eq(start_axpy),
            ring.start_axpy.eq(start_axpy),
            ring.start_dot.eq(start_dot),
            ring.release.eq(finishing & issue.step.axpy),
            self._generator.claim.eq((start_axpy & self._generating) << next_half),
        ]

        with m.If(issue.valid):
            m.d.sync += beat.eq(Mux(last_beat, 0, beat + 1))
            m.d.sync += issue.offset.eq(issue.offset + groups)
            with m.If(last_beat):
                m.d.sync += position.eq(position + 1)
                m.d.sync += issue.offset.eq(Mux(issue.step.axpy, cmd.axpy_base, cmd.dot_base))
        with m.If(finishing):
            m.d.sync += issue.valid.eq(0)
        with m.If(start_axpy | start_dot):
            m.d.sync += [issue.valid.eq(1), position.eq(0), beat.eq(0)]
        with m.If(start_axpy):
            m.d.sync += [
                issue.step.axpy.eq(1),
                issue.step.half.eq(next_half),
                issue.slot.eq(axpy_slot),
                steps.eq(ring.slots[axpy_slot].steps),
                issue.offset.eq(cmd.axpy_base),
                axpy_slot.eq(_next(axpy_slot, S)),
                next_half.eq(~next_half),
            ]
        with m.If(start_dot):
            m.d.sync += [
                issue.step.axpy.eq(0),
                issue.slot.eq(dot_slot),
                steps.eq(ring.slots[dot_slot].steps),
                issue.offset.eq(cmd.dot_base),
                dot_slot.eq(_next(dot_slot, S)),
            ]
        for half in range(2):
            with m.If(start_axpy & (next_half == half)):
                m.d.sync += issue.half_busy[half].eq(1)
            with m.Elif(self._normaliser.half_read[half]):
                m.d.sync += issue.half_busy[half].eq(0)
        m.d.comb += issue.half.eq(next_half)
        issue.row = ring.slots[axpy_slot].row

        with m.If(issue.valid):
            with m.If(issue.step.axpy):
                m.d.sync += self.counters.axpy.eq(self.counters.axpy + 1)
            with m.Else():
                m.d.sync += self.counters.dot.eq(self.counters.dot + 1)
        return issue

    def _fetch(self, m, ring, issue):
        """Read list entries, then operands, then hand both to the array."""
        config, B = self.config, self.config.array.banks
        store, array, distributor = self._store, self._array, self._distributor

        # Cycle 0: list entry and score.
        slot = ring.slots[issue.slot]
        enable_0 = Signal(B)
        m.d.comb += [
            store.en.eq(issue.valid),
            store.slot.eq(issue.slot),
            store.position.eq(issue.position),
            enable_0.eq(Cat(issue.position < slot.counts[b] for b in range(B))),
        ]
        query_0 = slot.row.slot * config.max_beats + issue.step.beat

        # Cycle 1: operand words; distance to the row's maximum.
        valid_1 = delay(m, issue.valid, 1, name="fetch_valid", reset_less=False)
        step_1 = delay(m, Value.cast(issue.step), 1, name="fetch_step")
        offset_1 = delay(m, issue.offset, 1, name="fetch_offset")
        enable_1 = delay(m, enable_0, 1, name="fetch_enable")
        query_1 = Signal(self._queries.read_address.shape(), reset_less=True)
        maximum_1 = Signal(signed(maximum_bits(config)), reset_less=True)
        m.d.sync += [query_1.eq(query_0), maximum_1.eq(slot.maximum)]
        m.d.comb += [
            distributor.en.eq(valid_1),
            self._queries.read_address.eq(query_1),
            self._queries.read_en.eq(valid_1),
        ]
        numerators = []
        for b in range(B):
            m.submodules[f"numerator_{b}"] = unit = NumeratorUnit(config)
            m.d.comb += [
                distributor.address[b].eq(store.local[b] + offset_1),
                unit.score.eq(store.score[b]),
                unit.maximum.eq(maximum_1),
            ]
            numerators.append(unit.numerator)

        # Cycle 2: the array's operand registers take everything.
        valid_2 = delay(m, valid_1, 1, name="array_valid", reset_less=False)
        step_2 = data.View(ArrayStep(config), delay(m, step_1, 1, name="array_step"))
        enable_2 = delay(m, enable_1, 1, name="array_enable")
        m.d.comb += [
            array.step_valid.eq(valid_2),
            array.step.eq(step_2),
            array.enable.eq(enable_2),
            array.word.eq(distributor.word),
            array.query.eq(self._queries.read_data),
        ]
        for b in range(B):
            m.d.comb += array.scalar[b].eq(numerators[b])

        # Cycle 3: a column's numerator counts once, on its first beat.
        counted = valid_2 & step_2.axpy & (step_2.beat == 0)
        kept = Signal(B)
        masked = [
            Signal(config.number.numerator_bits, name=f"kept_numerator_{b}") for b in range(B)
        ]
        position_3 = delay(m, issue.position, 3, name="numerator_position")
        m.d.sync += kept.eq(Mux(counted, enable_2, 0))
        for b in range(B):
            m.d.sync += masked[b].eq(Mux(counted & enable_2[b], numerators[b], 0))
            m.d.comb += self._generator.numerator[b].eq(masked[b])
        m.d.comb += [
            self._generator.write_valid.eq(Mux(self._generating, kept, 0)),
            self._generator.write_position.eq(position_3),
            self._generator.write_half.eq(delay(m, step_2.half, 1, name="numerator_half")),
        ]
        kept_count = adder_tree(m, list(kept), name="kept_count")
        with m.If(self.busy):
            m.d.sync += self.counters.kept.eq(self.counters.kept + kept_count)

        # The row's total, one cycle ahead of the array's sums and held for as long.
        cycles = 1 + adder_tree_latency(B)
        step = data.View(ArrayStep(config), delay(m, Value.cast(step_2), cycles, name="total_step"))
        counted = delay(m, counted, cycles, name="total_counted", reset_less=False)
        total = Signal(total_bits(config))
        self._row_total = Signal.like(total)
        added = Mux(step.first, 0, total) + adder_tree(m, masked, name="total")
        with m.If(counted):
            m.d.sync += total.eq(added)
        total_done = Signal()
        m.d.sync += total_done.eq(counted & step.last)
        with m.If(total_done):
            m.d.sync += self._row_total.eq(total)

    def _collect_scores(self, m, ring):
        """Store scores beside their list entries; keep each row's maximum."""
        S = self.config.array.rows_in_flight
        array, score, store = self._array, self._score, self._store
        m.d.comb += [
            score.i_valid.eq(array.dot_valid),
            score.i.eq(array.dot),
            score.i_enable.eq(array.dot_enable),
            score.i_last.eq(array.dot_last),
        ]
        slot, position = Signal(range(S)), Signal(self.config.local_bits)
        m.d.comb += [
            store.score_slot.eq(slot),
            store.score_position.eq(position),
            store.score_in.eq(score.score),
            store.score_valid.eq(Mux(score.score_valid, score.score_enable, 0)),
        ]
        with m.If(score.score_valid):
            m.d.sync += position.eq(Mux(score.score_last, 0, position + 1))
            with m.If(score.score_last):
                m.d.sync += slot.eq(_next(slot, S))

        maximum_slot = Signal(range(S))
        with m.If(score.maximum_valid):
            m.d.comb += ring.score_done.eq(1)
            m.d.sync += [
                ring.slots[maximum_slot].maximum.eq(score.maximum),
                maximum_slot.eq(_next(maximum_slot, S)),
            ]

    def _finish_rows(self, m, issue):
        """Queue finished rows for the normaliser and, with GENERATE, for the mask generator."""
        config = self.config
        # Rows being summed, by accumulator half.
        rows = Array(Signal(RowEntry(config), name=f"summing_{half}") for half in range(2))
        with m.If(issue.start_axpy):
            m.d.sync += rows[issue.half].eq(issue.row)

        half = self._array.axpy_half
        row = rows[half]
        finished, generated = Signal(FinishedRow(config)), Signal(MaskRow(config))
        m.d.comb += [
            finished.half.eq(half),
            finished.slot.eq(row.slot),
            finished.token.eq(row.token),
            finished.last.eq(row.last),
            finished.total.eq(self._row_total),
            generated.half.eq(half),
            generated.slot.eq(row.slot),
            generated.token.eq(row.token),
            generated.total.eq(self._row_total),
        ]
        done = self._array.axpy_valid
        m.d.comb += [self._normaliser.row_valid.eq(done), self._normaliser.row.eq(finished)]

        # As many rows may wait for the mask generator as there are halves.
        m.submodules.generator_rows = queue = SyncFIFO(width=MaskRow(config).size, depth=2)
        m.d.comb += [
            queue.w_en.eq(done & self._generating),
            queue.w_data.eq(generated),
            self._generator.row.payload.eq(queue.r_data),
            self._generator.row.valid.eq(queue.r_rdy),
            queue.r_en.eq(self._generator.row.ready),
            self._generator_pending.eq(queue.r_rdy | self._generator.busy),
        ]
        wiring.connect(m, self._normaliser.o, wiring.flipped(self.o))
        m.d.comb += self._normaliser.accumulators.eq(self._array.accumulators)


def _next(pointer: Signal, size: int) -> Value:
    return Mux(pointer == size - 1, 0, pointer + 1)


class _Ring:
    """Rows in flight: their slots and how many slots are in each state."""

    def __init__(self, *, slots, free, listed, scored):
        self.slots, self.free, self.listed, self.scored = slots, free, listed, scored
        self.accept = Signal()
        self.list_done = Signal()
        self.start_dot = Signal()
        self.score_done = Signal()
        self.start_axpy = Signal()
        self.release = Signal()

    def count(self, m):
        m.d.sync += [
            self.free.eq(self.free - self.accept + self.release),
            self.listed.eq(self.listed + self.list_done - self.start_dot),
            self.scored.eq(self.scored + self.score_done - self.start_axpy),
        ]


class _Issue:
    """What the array has been told to do in this cycle."""

    def __init__(self, **signals):
        self.__dict__.update(signals)
