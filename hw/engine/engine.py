"""The engine: its parts, and one command at a time."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.program import Function, MaskMode
from hw.adder_tree import adder_tree, adder_tree_latency, delay
from hw.array.column_constants import ColumnConstants, ConstantWord
from hw.array.distributor import BankDistributor, OperandWord
from hw.array.dot_queue import DotGroup, DotQueue
from hw.array.dpu_array import DpuArray
from hw.array.row_store import RowStore
from hw.command import FuseLayout, RowEntry
from hw.engine.activation import Activation
from hw.engine.control import CommandControl
from hw.engine.fetch import OperandFetch
from hw.engine.hot import HotColumns
from hw.engine.issue import Issuer
from hw.engine.kept import KeptColumns
from hw.engine.ports import EngineCounters, QueryWord
from hw.engine.rows import RowRing
from hw.engine.sums import RowSums
from hw.hash import matrix_layout
from hw.masks.controller import MaskController, MaskLine
from hw.masks.generator import MaskGenerator
from hw.softmax.normaliser import ResultWord
from hw.softmax.sum_stream import SumWord
from hw.sram import Sram
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
        GENERATE each row's mask is written to the mask memory.  With `share` each row's sums are
        followed by those over the columns that its mask keeps, which takes `kept columns of the
        fullest bank * beats` cycles more.  With `mark` numerators are relative to the row's
        `maximum` and the threshold to its `total`, as they came with it; only the sums over the
        kept columns leave, and the axpy over all columns takes one word's cycles instead of all.
    GELU
        Bias, requantisation and table; sums leave on `sums`.  With GENERATE columns in which any
        row's magnitude is above the threshold are written to mask slot `mask_slot` at the end,
        together with those that it has, unless `fresh`.
    PROJECT
        No axpy: dot products leave on `dots`, one of every bank at a time.

    Results leave in the order of the rows.  Operands, rows, masks, constants and table are loaded
    between commands, or at any time where no command in progress reads.

    A row that keeps no column gives zeros, a total of 0 and the lowest maximum there is.

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
    no_rows : In
        With the command: it has no rows, none is taken.  Only GELU with GENERATE has work to do
        then, if it is `fresh`: no column is hot.
    rows : In, stream of `RowEntry`
        The rows of the command; the last one carries `last`.
    o : Out, stream of `ResultWord`
    sums : Out, stream of `SumWord`
    dots : Out, stream of `DotGroup`
    mask_read : In, stream of line addresses
    mask_word : Out, stream of `MaskLine`
        Reads the mask memory, see `MaskController`.
    busy : Out
        A command is in progress.  When it falls masks are in the mask memory.
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
                "no_rows": In(1),
                "rows": In(stream.Signature(RowEntry(config))),
                "o": Out(stream.Signature(ResultWord(config))),
                "sums": Out(stream.Signature(SumWord(config))),
                "dots": Out(stream.Signature(DotGroup(config))),
                "mask_read": In(stream.Signature(MaskLine(config)["address"].shape)),
                "mask_word": Out(stream.Signature(MaskLine(config))),
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
        m.submodules.hot = self._hot = HotColumns(config)

        m.submodules.control = self._control = CommandControl(config)
        self._cmd = cmd = self._control.command
        self._generating = Signal()
        m.d.comb += self._generating.eq(
            (cmd.mode == MaskMode.GENERATE) & (cmd.function == Function.SOFTMAX)
        )
        self._connect_loads(m)
        self._connect_command(m)
        self._connect_listing(m)
        self._connect_issue(m)
        self._connect_array(m)
        self._connect_activation(m)
        self._connect_sums(m)
        self._connect_generator(m)
        self._connect_hot(m)
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

        # Lines made here take the mask memory's write port first: at the end of a row, or of a
        # command of another function.
        lines, generated, hot = self._mask.lines, self._generator.lines, self._hot
        made = generated.valid | hot.line_valid
        own = Mux(hot.line_valid, Value.cast(hot.line), Value.cast(generated.payload))
        m.d.comb += [
            generated.ready.eq(1),
            lines.payload.eq(Mux(made, own, Value.cast(self.masks.payload))),
            lines.valid.eq(made | self.masks.valid),
            self.masks.ready.eq(~made),
        ]
        wiring.connect(m, wiring.flipped(self.mask_read), self._mask.read)
        wiring.connect(m, self._mask.word, wiring.flipped(self.mask_word))

    def _connect_command(self, m):
        """Give the command to all parts, and tell when it is done."""
        control, array, ring = self._control, self._array, self._ring
        wiring.connect(m, wiring.flipped(self.command), control.i)
        for part in (ring, self._issuer, self._fetch, self._activation, self._sums, self._hot):
            m.d.comb += part.command.eq(self._cmd)
        for part in (ring, self._activation, self._hot):
            m.d.comb += part.restart.eq(control.restart)
        for part in (self._mask, self._generator):
            m.d.comb += [part.matrix.eq(self.matrix), part.columns.eq(self._cmd.columns)]
        m.d.comb += [
            self._issuer.groups.eq(control.groups),
            self._mask.masked.eq(self._cmd.mode == MaskMode.MASKED),
            self._generator.threshold.eq(self._cmd.threshold),
            self._generator.diagonal.eq(self._cmd.diagonal),
            self._generator.fill.eq(self._cmd.fill),
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
            control.no_rows.eq(self.no_rows),
            control.making_masks.eq(
                self._sums.mask_row.valid | self._generator.busy | self._hot.busy
            ),
            control.dot.eq(issuer.go & ~issuer.step.axpy),
            control.axpy.eq(issuer.go & issuer.step.axpy),
            control.no_room.eq(issuer.waiting),
            control.columns.eq(adder_tree(m, list(completed), name="columns")),
            control.step.eq(
                delay(m, array.dot_valid, adder_tree_latency(self.config.array.banks), name="step")
            ),
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
        generating = self._generating
        # With `share` and `mark` the kept columns' sums of a row come before the next row's.
        unshared = Signal()
        with m.If(issuer.start_axpy):
            m.d.sync += unshared.eq(cmd.share | cmd.mark)
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
            sums.begin_axpy.eq(issuer.begin_axpy),
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
        twice = self._cmd.share | self._cmd.mark
        wiring.connect(m, self._sums.mask_row, generator.row)
        m.d.comb += [
            generator.write_valid.eq(Mux(self._generating, fetch.numerator_valid, 0)),
            generator.write_position.eq(fetch.numerator_position),
            generator.write_half.eq(fetch.numerator_half),
            generator.numerator.eq(fetch.numerator),
            kept.write_valid.eq(Mux(twice, generator.kept_valid, 0)),
            kept.numerator.eq(generator.kept_numerator),
            kept.local.eq(generator.kept_local),
            kept.row_compared.eq(generator.row_compared & twice),
        ]

    def _connect_hot(self, m):
        activation, hot, mask = self._activation, self._hot, self._mask
        m.d.comb += [
            hot.drained.eq(self._control.drained),
            hot.enable.eq(activation.write_valid),
            hot.value.eq(activation.value),
            hot.position.eq(activation.write_position),
            hot.row_last.eq(activation.row_done),
            hot.in_bank.eq(mask.in_bank),
            mask.peek_en.eq(hot.peek_en),
            mask.peek_address.eq(hot.peek_address),
            hot.peek.eq(mask.peek),
        ]
