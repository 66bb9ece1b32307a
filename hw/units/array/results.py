"""Words on their way to DRAM."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, Value, signed
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.program import sizes
from hw.softmax.normaliser import ResultWord
from hw.units.array.plan import move_sizes
from hw.vector.words import RowWord

__all__ = ["ResultKind", "ResultWords", "give"]


class ResultKind(enum.Enum, shape=3):
    """What becomes the command's result."""

    OPERAND = 0
    """Requantised columns, a byte each."""
    WIDE = 1
    """Requantised columns, two bytes each."""
    GATED = 2
    """The residual stream."""
    PARTIAL = 3
    """Sums of the MLP."""
    DIRECT = 4
    """What the engine has normalised."""
    ENDED = 5
    """What the epilogue of attention makes."""
    STATE = 6
    """Header and sums of attention."""


def give(m: Module, o: wiring.PureInterface, i: wiring.PureInterface, size: int) -> None:
    """Give words of numbers to a stream of bytes, `size` bytes each, sign-extended."""
    out = Value.cast(o.payload)
    for n, value in enumerate(i.payload.data):
        wider = Signal(signed(8 * size))
        m.d.comb += [wider.eq(value), out.word_select(n, 8 * size).eq(wider)]
    m.d.comb += [o.valid.eq(i.valid), i.ready.eq(o.ready)]


class ResultWords(wiring.Component):
    """Chooses whose words are written; combinational.

    Members
    -------
    kind : In, `ResultKind`
        Quasi-static.
    requantised, partial : In, streams of `RowWord` of signed `accumulator_bits`
    gated : In, stream of `RowWord` of signed `residual_bits`
    direct : In, stream of `ResultWord`
    ended : In, stream of `RowWord` of signed `operand_bits`
    state : In, stream of bytes
    o : Out, stream of bytes
    """

    def __init__(self, config: CoreConfig):
        self.config, number, lanes = config, config.number, config.vector.lanes
        self._widest = max(move_sizes(config)["result"])

        def words(bits: int):
            return In(stream.Signature(RowWord(signed(bits), lanes)))

        def raw(size: int):
            return stream.Signature(data.ArrayLayout(8, size))

        super().__init__(
            {
                "kind": In(ResultKind),
                "requantised": words(number.accumulator_bits),
                "gated": words(number.residual_bits),
                "partial": words(number.accumulator_bits),
                "direct": In(stream.Signature(ResultWord(config))),
                "ended": words(number.operand_bits),
                "state": In(raw(lanes * sizes.accumulator_bytes(config))),
                "o": Out(raw(self._widest)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        kind = ResultKind
        with m.Switch(self.kind):
            for one, source, size in (
                (kind.OPERAND, self.requantised, 1),
                (kind.WIDE, self.requantised, sizes.RESIDUAL_BYTES),
                (kind.GATED, self.gated, sizes.RESIDUAL_BYTES),
                (kind.PARTIAL, self.partial, sizes.accumulator_bytes(self.config)),
                (kind.DIRECT, self.direct, 1),
                (kind.ENDED, self.ended, 1),
            ):
                with m.Case(one):
                    give(m, self.o, source, size)
            with m.Case(kind.STATE):
                m.d.comb += [
                    Value.cast(self.o.payload).eq(Value.cast(self.state.payload)),
                    self.o.valid.eq(self.state.valid),
                    self.state.ready.eq(self.o.ready),
                ]
        return m
