"""The array unit: executes the commands of the array queue."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.program import Attend, MaskMode, Mlp, Project, ProjectEpilogue, Queue, sizes
from hw.column_constants import ConstantWord
from hw.command import FuseLayout, RowEntry
from hw.control.layouts import QueueLayout, QueuePort
from hw.dot_queue import DotGroup
from hw.hash import matrix_layout
from hw.memory.bus import ReadPort, WritePort
from hw.memory.lists import ListReadPort
from hw.normaliser import ResultWord
from hw.sum_queue import sum_queue_depth
from hw.sum_stream import SumWord
from hw.units.array.attend import AttendPath
from hw.units.array.linear import LinearPath
from hw.units.array.moves import ReadMove, WriteMove
from hw.units.array.plan import MOVES, MovePlanner, move_sizes
from hw.units.array.reads import StateWords, StreamQueue, numbers
from hw.units.array.rows import RowFeeder
from hw.units.array.sums import SumTrimmer
from hw.units.array.translate import Translator
from hw.units.array.vectors import VectorLoader
from hw.vector.merge import TileRow
from hw.vector.words import total_bits

__all__ = ["ArrayUnit"]

_READS, _WRITES = MOVES[:3], MOVES[3:]
_LISTS = ("rows", "side", "result", "keep")
"""Who looks tokens up: the engine's rows, and moves that gather."""


class ArrayUnit(wiring.Component):
    r"""Gives a command to the engine, feeds it with rows, and makes results of what comes out.

    Three readers work ahead of the engine, each on one kind of rows:

    ===== ============================= ========================== ==============================
    \     project                       mlp                        attend
    ===== ============================= ========================== ==============================
    ahead gate's vector                 gate's vector, bias        headers of whole rows (mark)
    state                               sums of earlier tiles      state of earlier tiles
    side  residual stream (GATE)        residual stream (last)     residual (ADD), whole sums
    ===== ============================= ========================== ==============================

    Throughput: that of the engine, unless a row's states or the like take longer on the bus.  Two
    cycles pass from `queue.command` to the engine's command, and `done` comes in the cycle after
    the last write has taken effect and the engine is at rest.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    matrix : In
        Quasi-static: rows of H.
    queue : In, `QueuePort`
    list_<name> : Out, `ListReadPort`
    read_<name> : Out, `ReadPort`
    write_<name> : Out, `WritePort`
    constants : In, stream of `ConstantWord`
        A copy of what the engine gets; always taken.
    command, rows : Out, streams of `FuseLayout`, `RowEntry`
    no_rows : Out
        With `command`: no rows follow.
    o, sums, dots : In, streams of `ResultWord`, `SumWord`, `DotGroup`
    engine_busy : In
    waiting_data : Out
        A command is in progress, no write waits for memory, and no word is there to be written.
    waiting_space : Out
        A write is offered to memory, which does not take it.
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        entries, bus = config.memory.query_rows, config.bus
        super().__init__(
            {
                "matrix": In(matrix_layout(config)),
                "queue": In(QueuePort(Queue.ARRAY, config)),
                **{f"list_{name}": Out(ListReadPort(entries)) for name in _LISTS},
                **{f"read_{name}": Out(ReadPort(bus)) for name in _READS},
                **{f"write_{name}": Out(WritePort(bus)) for name in _WRITES},
                "constants": In(stream.Signature(ConstantWord(config))),
                "command": Out(stream.Signature(FuseLayout(config))),
                "no_rows": Out(1),
                "rows": Out(stream.Signature(RowEntry(config))),
                "o": In(stream.Signature(ResultWord(config))),
                "sums": In(stream.Signature(SumWord(config))),
                "dots": In(stream.Signature(DotGroup(config))),
                "engine_busy": In(1),
                "waiting_data": Out(1),
                "waiting_space": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.translator = self._translator = Translator(config)
        m.submodules.planner = self._planner = MovePlanner(config)
        m.submodules.feeder = self._feeder = RowFeeder(config)
        m.submodules.trimmer = self._trimmer = SumTrimmer(config)
        m.submodules.linear = self._linear = LinearPath(config)
        m.submodules.attend = self._attend = AttendPath(config)
        m.submodules.vectors = self._vectors = VectorLoader(config)
        m.submodules.state_words = self._state_words = StateWords(config)
        self._moves = {}
        for name, word_sizes in move_sizes(config).items():
            kind = ReadMove if name in _READS else WriteMove
            m.submodules[name] = self._moves[name] = move = kind(config, word_sizes)
            port = "read" if name in _READS else "write"
            outer = wiring.flipped(getattr(self, f"{port}_{name}"))
            wiring.connect(m, getattr(move, port), outer)

        self._cmd = Signal(QueueLayout(Queue.ARRAY, config))
        self._is = {kind: Signal(name=f"is_{kind.NAME}") for kind in (Project, Mlp, Attend)}
        opcode = self._cmd.header.opcode
        m.d.comb += [one.eq(opcode == kind.OPCODE) for kind, one in self._is.items()]
        self._sums_wanted = self._is[Attend] & ~self._translator.direct
        self._control(m)
        self._connect_rows(m)
        self._connect_moves(m)
        self._connect_sums(m)
        self._connect_results(m)
        return m

    def _control(self, m):
        """One command at a time."""
        cmd, translator, planner = self._cmd, self._translator, self._planner
        begin, finished, running, clears = Signal(), Signal(), Signal(), Signal()
        count = Signal(range(self.config.memory.query_rows + 1))
        # All commands have list and rows in the same place.
        listed, wanted = self.list_rows.count, cmd.project.rows
        writers = [self._moves[name] for name in _WRITES]
        m.d.comb += [
            count.eq(Mux(wanted < listed, wanted, listed)),
            translator.command.eq(cmd),
            planner.command.eq(cmd),
            planner.count.eq(count),
            planner.attend.eq(self._attend.plan),
            planner.direct.eq(translator.direct),
            self._feeder.count.eq(count),
            self._feeder.begin.eq(begin),
            self.command.payload.eq(translator.fuse),
            self.no_rows.eq(count == 0),
            # Without rows no column is hot, and that is what the mask must say.
            clears.eq(translator.fuse.fresh),
            finished.eq(~self.engine_busy & writers[0].idle & writers[1].idle),
        ]
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.queue.command.ready.eq(1)
                m.d.sync += cmd.eq(self.queue.command.payload)
                with m.If(self.queue.command.valid):
                    m.next = "BEGIN"
            with m.State("BEGIN"):
                # The engine is at rest, and so are all moves.
                m.d.comb += [running.eq(1), self.command.valid.eq((count != 0) | clears)]
                with m.If((count == 0) & ~clears):
                    m.d.comb += self.queue.done.eq(1)
                    m.next = "IDLE"
                with m.Elif(self.command.ready):
                    m.d.comb += begin.eq(1)
                    m.next = "RUN"
            with m.State("RUN"):
                # Rows that are not written yet hold it here until the engine is busy.
                m.d.comb += [running.eq(1), self.queue.done.eq(finished)]
                with m.If(finished):
                    m.next = "IDLE"
        for name, move in self._moves.items():
            plan = getattr(planner, name)
            m.d.comb += [
                move.run.payload.eq(plan.run),
                move.run.valid.eq(begin & plan.wanted),
                move.size.eq(plan.size),
                move.headed.eq(plan.headed),
            ]
        vectors, ahead = self._vectors, self._moves["ahead"]
        m.d.comb += vectors.begin.eq(begin & planner.vectors & (count != 0))
        with m.If(vectors.runs.valid):
            m.d.comb += [
                ahead.run.payload.eq(vectors.runs.payload),
                ahead.run.valid.eq(1),
                vectors.runs.ready.eq(ahead.run.ready),
            ]

        blocked = [
            port.request.valid & ~port.request.ready
            for port in (self.write_result, self.write_keep)
        ]
        offered = [writer.i.valid for writer in writers]
        m.d.comb += [
            self.waiting_space.eq(blocked[0] | blocked[1]),
            self.waiting_data.eq(running & ~self.waiting_space & ~(offered[0] | offered[1])),
        ]

    def _connect_rows(self, m):
        """Rows into the engine; with `mark` each has a header, whose total is needed again."""
        config, feeder, ahead = self.config, self._feeder, self._moves["ahead"]
        attend = self._cmd.attend
        for name in _LISTS:
            port = getattr(self, f"list_{name}")
            reader = feeder if name == "rows" else self._moves[name]
            m.d.comb += [
                port.list.eq(self._cmd.project.list),
                port.entry.eq(reader.entry),
                port.en.eq(reader.en),
                reader.token.eq(port.token),
            ]
        m.submodules.headers = headers = StreamQueue(TileRow(config), 4)
        # Rows that are in the engine, or on their way from it to the epilogue.
        depth = config.array.rows_in_flight + sum_queue_depth(config) + 16
        m.submodules.totals = totals = StreamQueue(total_bits(config), depth)
        wiring.connect(m, headers.o, feeder.header)
        marked = self._is[Attend] & attend.mark
        again = self._is[Attend] & self._attend.plan.whole
        raw = ahead.o.payload.data.as_value()
        m.d.comb += [
            feeder.first_column.eq(attend.first_column),
            feeder.columns.eq(attend.columns),
            feeder.mark.eq(marked),
            headers.i.payload.maximum.eq(raw[:32]),
            headers.i.payload.total.eq(raw[32:64]),
            headers.i.valid.eq(ahead.o.valid & marked),
            Value.cast(self._vectors.i.payload.data).eq(raw),
            self._vectors.i.payload.last.eq(ahead.o.payload.last),
            self._vectors.i.valid.eq(ahead.o.valid & ~marked),
            ahead.o.ready.eq(Mux(marked, headers.i.ready, 1)),
            self.rows.payload.eq(feeder.rows.payload),
            self.rows.valid.eq(feeder.rows.valid & (~again | totals.i.ready)),
            feeder.rows.ready.eq(self.rows.ready & (~again | totals.i.ready)),
            totals.i.payload.eq(feeder.rows.payload.total),
            totals.i.valid.eq(self.rows.valid & self.rows.ready & again),
        ]
        wiring.connect(m, totals.o, self._attend.whole_total)

    def _connect_moves(self, m):
        """Words that are read."""
        config, lanes = self.config, self.config.vector.lanes
        number, linear, attend = config.number, self._linear, self._attend
        state, side, words = self._moves["state"], self._moves["side"], self._state_words
        is_attend = self._is[Attend]
        wiring.connect(m, state.o, words.i)
        wiring.connect(m, words.row, attend.state_row)
        m.d.comb += [
            words.headed.eq(self._planner.state.headed),
            attend.state_words.payload.eq(words.words.payload),
            attend.state_words.valid.eq(words.words.valid & is_attend),
            linear.earlier.payload.eq(words.words.payload),
            linear.earlier.valid.eq(words.words.valid & ~is_attend),
            words.words.ready.eq(Mux(is_attend, attend.state_words.ready, linear.earlier.ready)),
        ]
        whole = attend.plan.whole
        acc = sizes.accumulator_bytes(config), number.accumulator_bits
        raw = side.o.payload.data.as_value()
        for stream_, wanted, (size, bits) in (
            (linear.x, ~is_attend, (sizes.RESIDUAL_BYTES, number.residual_bits)),
            (
                attend.residual,
                is_attend & ~whole,
                (sizes.sharing_bytes(config), number.sharing_bits),
            ),
            (attend.whole_words, is_attend & whole, acc),
        ):
            m.d.comb += stream_.valid.eq(side.o.valid & wanted)
            with m.If(wanted):
                m.d.comb += side.o.ready.eq(stream_.ready)
            for n, value in enumerate(numbers(raw, lanes, size, bits)):
                m.d.comb += stream_.payload[n].eq(value)

    def _connect_sums(self, m):
        """What the engine delivers, besides `o`."""
        cmd, linear, attend = self._cmd, self._linear, self._attend
        vectors, trimmer = self._vectors, self._trimmer
        is_project, is_mlp, is_attend = self._is.values()
        wiring.connect(m, wiring.flipped(self.sums), trimmer.i)
        wiring.connect(m, wiring.flipped(self.dots), linear.dots)
        wiring.connect(m, wiring.flipped(self.constants), linear.constants)
        for name in ("multipliers", "biases"):
            wiring.connect(m, getattr(vectors, name), getattr(linear, name))
        m.d.comb += [
            trimmer.channels.eq(Mux(is_mlp, cmd.mlp.out_width, cmd.attend.width)),
            linear.matrix.eq(self.matrix),
            linear.project.eq(cmd.project),
            linear.mlp.eq(cmd.mlp),
            linear.is_project.eq(is_project),
            linear.is_mlp.eq(is_mlp),
            linear.loaded.eq(vectors.loaded),
            linear.shift.eq(vectors.shift),
            linear.sums.payload.eq(trimmer.o.payload),
            linear.sums.valid.eq(trimmer.o.valid & is_mlp),
            attend.command.eq(cmd.attend),
            attend.active.eq(self._sums_wanted),
            attend.sums.payload.eq(trimmer.o.payload),
            attend.sums.valid.eq(trimmer.o.valid & is_attend),
            trimmer.o.ready.eq(Mux(is_mlp, linear.sums.ready, attend.sums.ready)),
            vectors.gate.eq(Mux(is_mlp, cmd.mlp.gate, cmd.project.gate)),
            vectors.offset.eq(Mux(is_mlp, 0, cmd.project.first_column)),
            vectors.channels.eq(Mux(is_mlp, cmd.mlp.out_width, cmd.project.columns)),
            vectors.add_bias.eq(is_mlp),
            vectors.bias.eq(cmd.mlp.bias),
        ]

    def _connect_results(self, m):
        """Words that are written."""
        cmd, linear, attend, config = self._cmd, self._linear, self._attend, self.config
        is_project, is_mlp, is_attend = self._is.values()
        result, keep = self._moves["result"].i, self._moves["keep"].i
        acc, shared = sizes.accumulator_bytes(config), sizes.sharing_bytes(config)
        epilogue = cmd.project.epilogue
        gated = Mux(is_project, epilogue == ProjectEpilogue.GATE, is_mlp & cmd.mlp.last)
        byte = is_project & (epilogue == ProjectEpilogue.OPERAND)
        wide = is_project & (epilogue == ProjectEpilogue.WIDE)
        direct, leave = self._translator.direct, attend.plan.leave

        def elements(o, i, size: int):
            """Give words of numbers, `size` bytes each, to a writer."""
            out = Value.cast(o.payload)
            for n, value in enumerate(i.payload.data):
                wider = Signal(Value.cast(out[: 8 * size]).as_signed().shape())
                m.d.comb += [wider.eq(value), out.word_select(n, 8 * size).eq(wider)]
            m.d.comb += [o.valid.eq(i.valid), i.ready.eq(o.ready)]

        for wanted, source, size in (
            (byte, linear.requantised, 1),
            (wide, linear.requantised, sizes.RESIDUAL_BYTES),
            (gated, linear.gated, sizes.RESIDUAL_BYTES),
            (is_mlp & ~cmd.mlp.last, linear.partial, acc),
            (is_attend & direct, self.o, 1),
            (is_attend & ~direct & ~leave, attend.o, 1),
        ):
            with m.If(wanted):
                elements(result, source, size)
        with m.If(is_attend & leave):
            m.d.comb += [
                Value.cast(result.payload).eq(Value.cast(attend.state.payload)),
                result.valid.eq(attend.state.valid),
                attend.state.ready.eq(result.ready),
            ]
        elements(keep, attend.r, shared)
