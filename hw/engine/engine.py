"""The engine: its parts, and one command at a time."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.program import Function, MaskMode
from hw.adder_tree import adder_tree, delay
from hw.column_constants import ColumnConstants, ConstantWord
from hw.command import FuseLayout, RowEntry
from hw.distributor import BankDistributor, OperandWord
from hw.dot_queue import DotGroup, DotQueue
from hw.dpu_array import DpuArray
from hw.engine.activation import Activation
from hw.engine.control import CommandControl
from hw.engine.fetch import OperandFetch
from hw.engine.issue import Issuer
from hw.engine.kept import KeptColumns
from hw.engine.ports import EngineCounters, QueryWord
from hw.engine.rows import RowRing
from hw.engine.sums import RowSums
from hw.hash import matrix_layout
from hw.mask_controller import MaskController, MaskLine
from hw.mask_generator import MaskGenerator
from hw.normaliser import ResultWord
from hw.row_store import RowStore
from hw.sram import Sram
from hw.sum_stream import SumWord
from hw.vector.lookup import TableEntry

__all__ = ["AttentionEngine"]


class AttentionEngine(wiring.Component):
    """Sequences dot, function, axpy and what follows over a list of rows.

    Every row passes these stages: its kept columns are listed (mask controller), *dot* computes
    their products with the row, and *axpy* sums function of product times the column's second
    operand.  Both visit, in every bank, one kept column after the other, all banks in step.  So
    with k the kept columns of the row's fullest bank, the row occupies the array for `k * beats`
    cycles of dot and `k * axpy_beats` cycles of axpy, and rows follow each other without a gap as
    long as listing and what takes the results keep up.  Up to `array.rows_in_flight` rows are
    between listing and axpy at a time.

    SOFTMAX
        Sums are normalised and leave on `o`; with `raw` they leave on `sums` instead.  With
        GENERATE, mask lines leave on `masks_out` and are kept in the mask memory too.  With
        `share` each row's sums are followed by those over the columns that its mask keeps, which
        takes `kept columns of the fullest bank * beats` cycles more.
    GELU
        Bias, requantisation and table; sums leave on `sums`.
    PROJECT
        No axpy: dot products leave on `dots`, one of every bank at a time.

    Results leave in the order of the rows.  Operands, rows, masks, constants and table are loaded
    between commands, or at any time where no command in progress reads.

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
    constants : In, stream of `ConstantWord`
    table : In, stream of `TableEntry`
    command : In, stream of `FuseLayout`
        Accepted when the engine is idle.
    rows : In, stream of `RowEntry`
        The rows of the command; the last one carries `last`.
    o : Out, stream of `ResultWord`
    sums : Out, stream of `SumWord`
    dots : Out, stream of `DotGroup`
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
                "constants": In(stream.Signature(ConstantWord(config))),
                "table": In(stream.Signature(TableEntry(config))),
                "command": In(stream.Signature(FuseLayout(config))),
                "rows": In(stream.Signature(RowEntry(config))),
                "o": Out(stream.Signature(ResultWord(config))),
                "sums": Out(stream.Signature(SumWord(config))),
                "dots": Out(stream.Signature(DotGroup(config))),
                "masks_out": Out(stream.Signature(MaskLine(config))),
                "busy": Out(1),
                "counters": Out(EngineCounters()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        # Memories that are loaded from outside, by their names in the hierarchy.
        m.submodules.distributor = self._banks = BankDistributor(config)
        m.submodules.queries_buffer = self._words = Sram(
            QueryWord(config)["data"].shape, config.query_words
        )
        m.submodules.mask = self._mask = MaskController(config)
        m.submodules.column_constants = self._constants = ColumnConstants(config)
        # A row's way.
        m.submodules.ring = self._ring = RowRing(config)
        m.submodules.store = self._store = RowStore(config)
        m.submodules.issuer = self._issuer = Issuer(config)
        m.submodules.fetch = self._fetch = OperandFetch(config)
        m.submodules.array = self._array = DpuArray(config)
        m.submodules.activation = self._activation = Activation(config)
        m.submodules.row_sums = self._sums = RowSums(config)
        m.submodules.dot_queue = self._dots = DotQueue(config)
        m.submodules.generator = self._generator = MaskGenerator(config)
        m.submodules.kept = self._kept = KeptColumns(config)

        m.submodules.control = self._control = CommandControl(config)
        self._cmd = self._control.command
        self._connect_loads(m)
        self._connect_command(m)
        self._connect_listing(m)
        self._connect_issue(m)
        self._connect_array(m)
        self._connect_activation(m)
        self._connect_sums(m)
        self._connect_generator(m)
        return m

    def _connect_loads(self, m):
        words = self._words
        m.d.comb += [
            words.write_address.eq(self.queries.payload.address),
            words.write_data.eq(self.queries.payload.data),
            words.write_en.eq(self.queries.valid),
            self.queries.ready.eq(1),
            self._banks.matrix.eq(self.matrix),
            self._constants.matrix.eq(self.matrix),
        ]
        wiring.connect(m, wiring.flipped(self.operands), self._banks.i)
        wiring.connect(m, wiring.flipped(self.constants), self._constants.i)
        wiring.connect(m, wiring.flipped(self.table), self._activation.table)

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
        """Give the command to all parts, and tell when it is done."""
        control, array, ring = self._control, self._array, self._ring
        wiring.connect(m, wiring.flipped(self.command), control.i)
        for part in (ring, self._issuer, self._fetch, self._activation, self._sums):
            m.d.comb += part.command.eq(self._cmd)
        for part in (ring, self._activation):
            m.d.comb += part.restart.eq(control.restart)
        for part in (self._mask, self._generator):
            m.d.comb += [part.matrix.eq(self.matrix), part.columns.eq(self._cmd.columns)]
        m.d.comb += [
            self._issuer.groups.eq(control.groups),
            self._mask.masked.eq(self._cmd.mode == MaskMode.MASKED),
            self._generator.threshold.eq(self._cmd.threshold),
            self._generator.diagonal.eq(self._cmd.diagonal),
        ]

        issuer, dots = self._issuer, self.dots
        completed = Mux(array.dot_valid, array.dot_enable, 0)
        m.d.comb += [
            ring.running.eq(control.running),
            control.row_accepted.eq(self.rows.valid & self.rows.ready),
            control.row_last.eq(self.rows.payload.last),
            control.row_delivered.eq(
                self._sums.row_delivered | (dots.valid & dots.ready & dots.payload.row_last)
            ),
            control.making_masks.eq(self._sums.mask_row.valid | self._generator.busy),
            control.dot.eq(issuer.go & ~issuer.step.axpy),
            control.axpy.eq(issuer.go & issuer.step.axpy),
            control.columns.eq(adder_tree(m, list(completed), name="columns")),
            self.busy.eq(control.busy),
            self.counters.eq(control.counters),
        ]

    def _connect_listing(self, m):
        ring, mask, store = self._ring, self._mask, self._store
        wiring.connect(m, wiring.flipped(self.rows), ring.rows)
        wiring.connect(m, ring.mask_row, mask.row)
        m.d.comb += [
            mask.done.ready.eq(1),
            ring.listed.eq(mask.done.valid),
            ring.kept_valid.eq(mask.kept_valid),
            store.list_valid.eq(mask.kept_valid),
            store.list_slot.eq(ring.list_slot),
            store.list_position.eq(ring.list_position),
            store.list_local.eq(mask.kept),
        ]

    def _connect_issue(self, m):
        cmd, ring, issuer, kept = self._cmd, self._ring, self._issuer, self._kept
        generating = cmd.mode == MaskMode.GENERATE
        # With `share` the kept columns' sums of a row come before the next row's.
        unshared = Signal()
        with m.If(issuer.start_axpy):
            m.d.sync += unshared.eq(cmd.share)
        with m.Elif(issuer.start_kept):
            m.d.sync += unshared.eq(0)
        mask_room = ~generating | self._generator.half_free.bit_select(issuer.half, 1)
        m.d.comb += [
            issuer.dot_ready.eq(ring.dot_ready),
            issuer.dot_steps.eq(ring.dot_steps),
            issuer.axpy_ready.eq(ring.axpy_ready & mask_room & ~unshared),
            issuer.axpy_steps.eq(ring.axpy_steps),
            issuer.kept_ready.eq(kept.ready),
            issuer.kept_steps.eq(kept.steps),
            issuer.sums_room.eq(self._sums.room),
            issuer.dots_room.eq(self._dots.room),
            ring.start_dot.eq(issuer.start_dot),
            ring.start_axpy.eq(issuer.start_axpy),
            ring.release.eq(issuer.end_axpy | self._dots.row_done),
            self._generator.claim.eq((issuer.start_axpy & generating) << issuer.half),
            kept.start.eq(issuer.start_kept),
            kept.end.eq(issuer.end_kept),
        ]

    def _connect_array(self, m):
        issuer, fetch, array = self._issuer, self._fetch, self._array
        store, kept, banks, words = self._store, self._kept, self._banks, self._words
        m.d.comb += [
            store.en.eq(issuer.go),
            store.slot.eq(self._ring.current_slot),
            store.position.eq(issuer.step.position),
            kept.en.eq(issuer.go),
            kept.position.eq(issuer.step.position),
            fetch.go.eq(issuer.go),
            fetch.step.eq(issuer.step),
            fetch.row.eq(self._ring.current),
            fetch.local.eq(store.local),
            fetch.value.eq(store.score),
            fetch.kept_counts.eq(kept.counts),
            fetch.kept_local.eq(kept.read_local),
            fetch.kept_numerator.eq(kept.read_numerator),
            banks.en.eq(fetch.bank_en),
            banks.address.eq(fetch.bank_address),
            words.read_en.eq(fetch.word_en),
            words.read_address.eq(fetch.word_address),
            array.step_valid.eq(fetch.array_valid),
            array.step.eq(fetch.array_step),
            array.enable.eq(fetch.array_enable),
            array.scalar.eq(fetch.array_scalar),
            array.word.eq(banks.word),
            array.query.eq(words.read_data),
        ]

    def _connect_activation(self, m):
        config, B = self.config, self.config.array.banks
        array, activation, dots, ring = self._array, self._activation, self._dots, self._ring
        store, constants = self._store, self._constants

        # Constants are read so that the bias is there when the array starts a sum.
        local = delay(m, Value.cast(self._fetch.array_local), array.dot_latency - 2, name="local")
        m.d.comb += constants.en.eq(1)
        for b in range(B):
            own = local.word_select(b, config.local_bits)
            m.d.comb += constants.address[b].eq(self._cmd.constant_base + own)
            m.d.sync += activation.constants[b].eq(constants.constants[b])
            m.d.comb += array.bias[b].eq(
                Mux(self._cmd.function == Function.GELU, constants.constants[b].bias, 0)
            )

        emitted = [
            ("valid", array.dot_valid),
            ("enable", array.dot_enable),
            ("last", array.dot_last),
        ]
        for name, value in emitted:
            m.d.comb += getattr(activation, f"dot_{name}").eq(value)
        m.d.comb += [
            activation.dot.eq(array.dot),
            store.score_valid.eq(activation.write_valid),
            store.score_slot.eq(activation.write_slot),
            store.score_position.eq(activation.write_position),
            store.score_in.eq(activation.value),
            ring.maximum_valid.eq(activation.row_done),
            ring.maximum.eq(activation.maximum),
        ]
        projecting = self._cmd.function == Function.PROJECT
        m.d.comb += [
            dots.start.eq(self._issuer.begin_dots),
            dots.row.eq(ring.dots_row),
            dots.i_valid.eq(array.dot_valid & projecting),
            dots.i.eq(array.dot),
            dots.i_enable.eq(array.dot_enable),
            Value.cast(dots.i_local).eq(delay(m, local, 2, name="dot_local")),
            dots.i_last.eq(array.dot_last),
            ring.dots_done.eq(dots.row_done),
        ]
        wiring.connect(m, dots.o, wiring.flipped(self.dots))

    def _connect_sums(self, m):
        issuer, fetch, array, sums = self._issuer, self._fetch, self._array, self._sums
        m.d.comb += [
            sums.row.eq(self._ring.current),
            sums.begin.eq(issuer.begin_sum),
            sums.step.eq(issuer.step),
            sums.sum_valid.eq(array.sum_valid),
            sums.sum.eq(array.sum),
            sums.total_valid.eq(fetch.total_valid),
            sums.total.eq(fetch.total),
            sums.total_half.eq(fetch.total_half),
            sums.total_kept.eq(fetch.total_kept),
        ]
        wiring.connect(m, sums.o, wiring.flipped(self.o))
        wiring.connect(m, sums.sums, wiring.flipped(self.sums))

    def _connect_generator(self, m):
        fetch, generator, kept = self._fetch, self._generator, self._kept
        generating = self._cmd.mode == MaskMode.GENERATE
        wiring.connect(m, self._sums.mask_row, generator.row)
        m.d.comb += [
            generator.write_valid.eq(Mux(generating, fetch.numerator_valid, 0)),
            generator.write_position.eq(fetch.numerator_position),
            generator.write_half.eq(fetch.numerator_half),
            generator.numerator.eq(fetch.numerator),
            kept.write_valid.eq(Mux(self._cmd.share, generator.kept_valid, 0)),
            kept.numerator.eq(generator.kept_numerator),
            kept.local.eq(generator.kept_local),
            kept.row_compared.eq(generator.row_compared & self._cmd.share),
        ]
