"""Normalised rows on their way into the row buffer."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from hw.engine import QueryWord
from hw.vector.aligner import Aligner
from hw.vector.layernorm import LayerNorm

__all__ = ["NormRows"]


class NormRows(wiring.Component):
    """`LayerNorm`, whose words of V elements are collected into words of L.

    Throughput: V elements a cycle.  Latency: a word is offered in the cycle after LayerNorm gave
    its last element.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    channels, epsilon, shift, multipliers, biases, i : In
        As for `LayerNorm`.
    begin : In
        New vectors will come, and the next word goes to address `base`.
    base : In
    rows : Out, stream of `QueryWord`
        At addresses that follow each other; the last word of a row is filled up with zeros.
    row_done : Out
        The last word of a row is taken.
    missing : Out
        As for `LayerNorm`.
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        self._norm = LayerNorm(config)
        members = self._norm.signature.members
        word = QueryWord(config)
        passed = ("channels", "epsilon", "shift", "multipliers", "biases", "i", "missing")
        super().__init__(
            {
                **{name: members[name] for name in passed},
                "begin": In(1),
                "base": In(word["address"].shape),
                "rows": Out(stream.Signature(word)),
                "row_done": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        operand, lanes = signed(self.config.number.operand_bits), self.config.vector.lanes
        m.submodules.norm = norm = self._norm
        m.submodules.aligner = aligner = Aligner(operand, lanes, self.config.array.lanes)
        for name in ("multipliers", "biases", "i"):
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(norm, name))
        address = Signal(self.base.shape())
        m.d.comb += [
            *(getattr(norm, name).eq(getattr(self, name)) for name in ("channels", "epsilon")),
            norm.shift.eq(self.shift),
            norm.clear.eq(self.begin),
            self.missing.eq(norm.missing),
            # V divides L, so words need not be cut: what is behind a row's end is 0.
            aligner.i.payload.data.eq(norm.o.payload.data),
            aligner.i.payload.count.eq(lanes),
            aligner.i.payload.last.eq(norm.o.payload.last),
            aligner.i.valid.eq(norm.o.valid),
            norm.o.ready.eq(aligner.i.ready),
            self.rows.payload.address.eq(address),
            self.rows.payload.data.eq(aligner.o.payload.data),
            self.rows.valid.eq(aligner.o.valid),
            aligner.o.ready.eq(self.rows.ready),
            self.row_done.eq(self.rows.valid & self.rows.ready & aligner.o.payload.last),
        ]
        with m.If(self.begin):
            m.d.sync += address.eq(self.base)
        with m.Elif(self.rows.valid & self.rows.ready):
            m.d.sync += address.eq(address + 1)
        return m
