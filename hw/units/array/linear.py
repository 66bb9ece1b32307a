"""What becomes of dot products and of the MLP's sums."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.program import Mlp, Project, ProjectEpilogue
from hw.array.column_constants import ConstantWord
from hw.array.dot_queue import DotGroup
from hw.control.layouts import CommandLayout
from hw.hash import matrix_layout
from hw.units.array.sums import RowSums
from hw.vector.gate import GateResidual
from hw.vector.requantise import ColumnRequantiser, ColumnResult

__all__ = ["LinearPath"]


class LinearPath(wiring.Component):
    """Projections: requantised, or gated into the residual stream.  MLP: partial sums, or gated.

    Throughput: a word a cycle, or a group of columns, whichever is more.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    matrix : In
        Quasi-static.
    project, mlp : In
        Quasi-static: the command, by `is_project` and `is_mlp`.
    there, taken : In, Out
        As of `VectorLoader`.
    shift : In
    multipliers, biases : In, streams
        As of `GateResidual`.
    constants : In, stream of `ConstantWord`
    dots : In, stream of `DotGroup`
    sums : In, stream of `RowSums`
    earlier : In, stream of [lanes] signed `accumulator_bits`
    x : In, stream of [lanes] signed `residual_bits`
    requantised : Out, stream of `RowWord` of signed `accumulator_bits`
    gated : Out, stream of `RowWord` of signed `residual_bits`
    partial : Out, stream of `RowWord` of signed `accumulator_bits`
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        self._requantiser, self._gate = ColumnRequantiser(config), GateResidual(config)
        gate = self._gate.signature.members
        super().__init__(
            {
                "matrix": In(matrix_layout(config)),
                "project": In(CommandLayout(Project, config)),
                "mlp": In(CommandLayout(Mlp, config)),
                "is_project": In(1),
                "is_mlp": In(1),
                "there": In(1),
                "taken": Out(1),
                "shift": gate["shift"],
                "multipliers": gate["multipliers"],
                "biases": gate["biases"],
                "constants": In(stream.Signature(ConstantWord(config))),
                "dots": In(stream.Signature(DotGroup(config))),
                "sums": In(stream.Signature(RowSums(config))),
                "earlier": gate["earlier"],
                "x": gate["x"],
                "requantised": self._requantiser.signature.members["o"],
                "gated": gate["o"],
                "partial": gate["sums"],
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.requantiser = requantiser = self._requantiser
        m.submodules.gate = gate = self._gate
        project, mlp = self.project, self.mlp
        gates = project.epilogue == ProjectEpilogue.GATE

        constants, load = self.constants, requantiser.load
        m.d.comb += [
            load.valid.eq(constants.valid),
            constants.ready.eq(load.ready),
            load.payload.column.eq(constants.payload.column),
            load.payload.base.eq(constants.payload.offset),
            load.payload.constants.eq(constants.payload.constants),
            requantiser.matrix.eq(self.matrix),
            requantiser.columns.eq(project.columns),
            requantiser.base.eq(project.constants),
            requantiser.i.payload.eq(self.dots.payload.data),
            requantiser.i.valid.eq(self.dots.valid),
            self.dots.ready.eq(requantiser.i.ready),
        ]
        with m.Switch(project.epilogue):
            with m.Case(ProjectEpilogue.OPERAND):
                m.d.comb += requantiser.result.eq(ColumnResult.OPERAND)
            with m.Case(ProjectEpilogue.WIDE):
                m.d.comb += requantiser.result.eq(ColumnResult.WIDE)
            with m.Default():
                m.d.comb += requantiser.result.eq(ColumnResult.SUM)

        for inner, outer in (
            (gate.multipliers, self.multipliers),
            (gate.biases, self.biases),
            (gate.earlier, self.earlier),
            (gate.x, self.x),
        ):
            wiring.connect(m, wiring.flipped(outer), inner)
        wiring.connect(m, gate.o, wiring.flipped(self.gated))
        wiring.connect(m, gate.sums, wiring.flipped(self.partial))
        m.d.comb += [
            gate.shift.eq(self.shift),
            self.taken.eq(gate.acc.valid & gate.acc.ready),
        ]
        with m.If(self.is_project):
            m.d.comb += [gate.channels.eq(project.columns), gate.gate.eq(1)]
            with m.If(gates):
                m.d.comb += [
                    gate.acc.payload.eq(requantiser.o.payload.data),
                    gate.acc.valid.eq(requantiser.o.valid & self.there),
                    requantiser.o.ready.eq(gate.acc.ready & self.there),
                ]
            with m.Else():
                m.d.comb += [
                    self.requantised.payload.eq(requantiser.o.payload),
                    self.requantised.valid.eq(requantiser.o.valid),
                    requantiser.o.ready.eq(self.requantised.ready),
                ]
        with m.Else():
            m.d.comb += [
                gate.channels.eq(mlp.out_width),
                gate.add_earlier.eq(~mlp.first),
                gate.add_bias.eq(mlp.last),
                gate.gate.eq(mlp.last),
                gate.acc.payload.eq(self.sums.payload.data),
                gate.acc.valid.eq(self.sums.valid & self.is_mlp & self.there),
                self.sums.ready.eq(gate.acc.ready & self.is_mlp & self.there),
            ]
        return m
