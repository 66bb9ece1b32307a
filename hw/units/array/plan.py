"""Which rows of DRAM a command of the array queue reads and writes."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.program import Attend, AttendEpilogue, Mlp, Project, ProjectEpilogue, Queue, sizes
from hw.control.layouts import QueueLayout
from hw.memory.address import RowRun
from hw.units.array.attend import AttendPlan

__all__ = ["MOVES", "MovePlan", "MovePlanner", "move_sizes"]

MOVES = ("ahead", "state", "side", "result", "keep")
"""Three readers and two writers."""

_AHEAD_VECTOR, _AHEAD_HEADER = range(2)
_SIDE_STREAM, _SIDE_RESIDUAL, _SIDE_SUMS = range(3)
_RESULT_BYTE, _RESULT_WIDE, _RESULT_SUMS, _RESULT_DIRECT = range(4)


def move_sizes(config: CoreConfig) -> dict[str, tuple[int, ...]]:
    """Return the bytes of the words that are read or written."""
    lanes, shared = config.vector.lanes, sizes.sharing_bytes(config)
    sums = sizes.accumulator_bytes(config) * lanes
    return {
        "ahead": (sizes.VECTOR_BYTES * lanes, sizes.STATE_HEADER_BYTES),
        "state": (sums,),
        "side": (sizes.RESIDUAL_BYTES * lanes, shared * lanes, sums),
        "result": (lanes, sizes.RESIDUAL_BYTES * lanes, sums, config.array.lanes),
        "keep": (shared * lanes,),
    }


class MovePlan(data.StructLayout):
    """A run, if there is one, and the sizes of its words."""

    def __init__(self, most_rows: int):
        super().__init__({"wanted": 1, "run": RowRun(most_rows), "size": range(4), "headed": 1})


class MovePlanner(wiring.Component):
    """A command's runs; combinational.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    command : In, `QueueLayout`
    count : In
        Rows.
    attend : In, `AttendPlan`
    direct : In
        As `Translator` says.
    vectors : Out
        The gate's vector is needed; it is not one of the runs.
    <name> : Out, `MovePlan`
        Of each of `MOVES`.
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        most = config.memory.query_rows
        super().__init__(
            {
                "command": In(QueueLayout(Queue.ARRAY, config)),
                "count": In(range(most + 1)),
                "attend": In(AttendPlan()),
                "direct": In(1),
                "vectors": Out(1),
                **{name: Out(MovePlan(most)) for name in MOVES},
            }
        )

    def elaborate(self, platform):
        m = Module()
        for name in MOVES:
            m.d.comb += getattr(self, name).run.rows.eq(self.count)
        with m.Switch(self.command.header.opcode):
            for kind, plan in (
                (Project, self._project),
                (Mlp, self._mlp),
                (Attend, self._attend),
            ):
                with m.Case(kind.OPCODE):
                    plan(m, self.command[kind.NAME])
        return m

    def _put(self, m: Module, name: str, wanted=1, *, size=0, headed=0, **run) -> None:
        plan = getattr(self, name)
        m.d.comb += [plan.wanted.eq(wanted), plan.size.eq(size), plan.headed.eq(headed)]
        m.d.comb += [plan.run[field].eq(value) for field, value in run.items()]

    def _project(self, m: Module, c) -> None:
        gate, byte = Signal(), Signal()
        start, length = Signal(c.dram.shape()), Signal(range(2 << len(c.columns)))
        m.d.comb += [
            gate.eq(c.epilogue == ProjectEpilogue.GATE),
            byte.eq(c.epilogue == ProjectEpilogue.OPERAND),
            start.eq(c.dram + Mux(byte, c.first_column, c.first_column << 1)),
            length.eq(Mux(byte, c.columns, c.columns << 1)),
            self.vectors.eq(gate),
        ]
        run = {"base": start, "stride": c.stride, "length": length, "gather": 1}
        self._put(m, "side", gate, size=_SIDE_STREAM, **run)
        self._put(m, "result", size=Mux(byte, _RESULT_BYTE, _RESULT_WIDE), **run)

    def _mlp(self, m: Module, c) -> None:
        length = c.out_width * sizes.accumulator_bytes(self.config)
        sums = {"base": c.partial, "stride": length, "length": length}
        stream = {
            "base": c.dram,
            "stride": c.stride,
            "length": c.out_width * sizes.RESIDUAL_BYTES,
            "gather": 1,
        }
        m.d.comb += self.vectors.eq(c.last)
        self._put(m, "state", ~c.first, **sums)
        self._put(m, "side", c.last, size=_SIDE_STREAM, **stream)
        with m.If(c.last):
            self._put(m, "result", size=_RESULT_WIDE, **stream)
        with m.Else():
            self._put(m, "result", size=_RESULT_SUMS, **sums)

    def _attend(self, m: Module, c) -> None:
        plan = self.attend
        sums = c.width * sizes.accumulator_bytes(self.config)
        state = sums + sizes.STATE_HEADER_BYTES
        running = {"base": Mux(c.mark, c.kept, c.partial), "stride": state, "length": state}
        residual = {
            "base": c.residual,
            "stride": c.residual_stride,
            "length": c.width * sizes.sharing_bytes(self.config),
            "gather": 1,
        }
        header = {"base": c.partial, "stride": state, "length": sizes.STATE_HEADER_BYTES}
        self._put(m, "ahead", c.mark, size=_AHEAD_HEADER, **header)
        self._put(m, "state", plan.merge, headed=1, **running)
        add, keep = (c.epilogue == e for e in (AttendEpilogue.ADD, AttendEpilogue.KEEP))
        self._put(m, "keep", c.last & keep, **residual)
        with m.If(plan.whole):
            whole = {"base": c.partial + sizes.STATE_HEADER_BYTES, "stride": state, "length": sums}
            self._put(m, "side", size=_SIDE_SUMS, **whole)
        with m.Else():
            self._put(m, "side", c.last & add, size=_SIDE_RESIDUAL, **residual)
        with m.If(plan.leave):
            self._put(m, "result", size=_RESULT_SUMS, headed=1, **running)
        with m.Else():
            size = Mux(self.direct, _RESULT_DIRECT, _RESULT_BYTE)
            result = {"base": c.dram, "stride": c.stride, "length": c.width, "gather": 1}
            self._put(m, "result", size=size, **result)
