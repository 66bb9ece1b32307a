"""The array unit: executes the commands of the array queue."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.program import Attend, Mlp, Project, ProjectEpilogue, Queue, sizes
from hw.array.column_constants import ConstantWord
from hw.array.dot_queue import DotGroup
from hw.command import FuseLayout, RowEntry
from hw.control.layouts import QueuePort
from hw.hash import matrix_layout
from hw.memory.bus import ReadPort, WritePort
from hw.memory.lists import ListReadPort
from hw.softmax.normaliser import ResultWord
from hw.softmax.sum_stream import SumWord
from hw.units.array.attend import AttendPath
from hw.units.array.control import ArrayControl
from hw.units.array.linear import LinearPath
from hw.units.array.moves import ReadMove, WriteMove
from hw.units.array.plan import MOVES, MovePlanner, move_sizes
from hw.units.array.reads import StateWords, numbers
from hw.units.array.results import ResultKind, ResultWords, give
from hw.units.array.rows import RowFeeder
from hw.units.array.sums import SumTrimmer
from hw.units.array.vectors import VectorLoader

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
        No write waits for memory, and what the engine offers is not taken, because vectors,
        states or rows that belong to it are not there.
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
        m.submodules.control = self._control = ArrayControl(config)
        m.submodules.planner = self._planner = MovePlanner(config)
        m.submodules.feeder = self._feeder = RowFeeder(config)
        m.submodules.trimmer = self._trimmer = SumTrimmer(config)
        m.submodules.linear_path = self._linear = LinearPath(config)
        m.submodules.attend_path = self._attend = AttendPath(config)
        m.submodules.vector_loader = self._vectors = VectorLoader(config)
        m.submodules.state_words = self._state_words = StateWords(config)
        self._moves = {}
        for name, word_sizes in move_sizes(config).items():
            kind = ReadMove if name in _READS else WriteMove
            m.submodules[f"{name}_move"] = self._moves[name] = move = kind(config, word_sizes)
            port = "read" if name in _READS else "write"
            outer = wiring.flipped(getattr(self, f"{port}_{name}"))
            wiring.connect(m, getattr(move, port), outer)

        self._cmd = self._control.command
        self._is = {kind: Signal(name=f"is_{kind.NAME}") for kind in (Project, Mlp, Attend)}
        opcode = self._cmd.header.opcode
        m.d.comb += [one.eq(opcode == kind.OPCODE) for kind, one in self._is.items()]
        self._begin(m)
        self._connect_rows(m)
        self._connect_moves(m)
        self._connect_sums(m)
        self._connect_results(m)
        return m

    def _begin(self, m):
        """Start a command, and say what it waits for."""
        control, planner, feeder = self._control, self._planner, self._feeder
        writers = [self._moves[name] for name in _WRITES]
        wiring.connect(m, wiring.flipped(self.queue), control.queue)
        wiring.connect(m, control.fuse, wiring.flipped(self.command))
        m.d.comb += [
            control.listed.eq(self.list_rows.count),
            control.engine_busy.eq(self.engine_busy),
            control.written.eq(writers[0].idle & writers[1].idle),
            self.no_rows.eq(control.no_rows),
            planner.command.eq(self._cmd),
            planner.count.eq(control.count),
            planner.attend.eq(self._attend.plan),
            planner.direct.eq(control.direct),
            feeder.count.eq(control.count),
            feeder.begin.eq(control.begin),
        ]
        for name, move in self._moves.items():
            plan = getattr(planner, name)
            m.d.comb += [
                move.run.payload.eq(plan.run),
                move.run.valid.eq(control.begin & plan.wanted),
                move.size.eq(plan.size),
                move.headed.eq(plan.headed),
            ]
        vectors, ahead = self._vectors, self._moves["ahead"]
        m.d.comb += vectors.begin.eq(control.begin & planner.vectors & ~control.no_rows)
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
        stuck = [one.valid & ~one.ready for one in (self.o, self.sums, self.dots)]
        missing = [
            getattr(planner, name).wanted & ~self._moves[name].o.valid for name in ("state", "side")
        ]
        missing.append(planner.vectors & ~vectors.there)
        m.d.comb += [
            self.waiting_space.eq(blocked[0] | blocked[1]),
            self.waiting_data.eq(Cat(stuck).any() & Cat(missing).any() & ~self.waiting_space),
        ]

    def _connect_rows(self, m):
        """Rows into the engine; with `mark` each has a header."""
        feeder, ahead, vectors = self._feeder, self._moves["ahead"], self._vectors
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
        wiring.connect(m, feeder.rows, wiring.flipped(self.rows))
        wiring.connect(m, feeder.total, self._attend.whole_total)
        raw, marked = ahead.o.payload.data.as_value(), feeder.mark
        m.d.comb += [
            feeder.first_column.eq(attend.first_column),
            feeder.columns.eq(attend.columns),
            feeder.mark.eq(self._is[Attend] & attend.mark),
            feeder.again.eq(self._is[Attend] & self._attend.plan.whole),
            feeder.header.payload.maximum.eq(raw[:32]),
            feeder.header.payload.total.eq(raw[32:64]),
            feeder.header.valid.eq(ahead.o.valid & marked),
            Value.cast(vectors.i.payload.data).eq(raw),
            vectors.i.payload.last.eq(ahead.o.payload.last),
            vectors.i.valid.eq(ahead.o.valid & ~marked),
            ahead.o.ready.eq(Mux(marked, feeder.header.ready, 1)),
        ]

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
            linear.there.eq(vectors.there),
            vectors.taken.eq(linear.taken),
            linear.shift.eq(vectors.shift),
            linear.sums.payload.eq(trimmer.o.payload),
            linear.sums.valid.eq(trimmer.o.valid & is_mlp),
            attend.command.eq(cmd.attend),
            attend.active.eq(is_attend & ~self._control.direct),
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
        linear, attend = self._linear, self._attend
        project, mlp = self._cmd.project, self._cmd.mlp
        is_project, is_mlp, _ = self._is.values()
        m.submodules.results = results = ResultWords(self.config)
        wiring.connect(m, linear.requantised, results.requantised)
        wiring.connect(m, linear.gated, results.gated)
        wiring.connect(m, linear.partial, results.partial)
        wiring.connect(m, wiring.flipped(self.o), results.direct)
        wiring.connect(m, attend.o, results.ended)
        wiring.connect(m, attend.state, results.state)
        wiring.connect(m, results.o, self._moves["result"].i)
        give(m, self._moves["keep"].i, attend.r, sizes.sharing_bytes(self.config))
        kind = results.kind
        with m.If(is_project):
            m.d.comb += kind.eq(ResultKind.GATED)
            with m.If(project.epilogue == ProjectEpilogue.OPERAND):
                m.d.comb += kind.eq(ResultKind.OPERAND)
            with m.Elif(project.epilogue == ProjectEpilogue.WIDE):
                m.d.comb += kind.eq(ResultKind.WIDE)
        with m.Elif(is_mlp):
            m.d.comb += kind.eq(Mux(mlp.last, ResultKind.GATED, ResultKind.PARTIAL))
        with m.Elif(self._control.direct):
            m.d.comb += kind.eq(ResultKind.DIRECT)
        with m.Else():
            m.d.comb += kind.eq(Mux(attend.plan.leave, ResultKind.STATE, ResultKind.ENDED))
