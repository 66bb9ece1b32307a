"""What becomes of the sums of attention: key tiles meet, and rows end."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.program import Attend, AttendEpilogue, MaskMode, sizes
from hw.control.layouts import CommandLayout
from hw.units.array.reads import StreamQueue, header_words
from hw.units.array.sums import RowSplitter, RowSums
from hw.vector.merge import TileMerger, TileRow
from hw.vector.sharing import SharingEpilogue, SharingMode
from hw.vector.words import RowWord, total_bits, words_of

__all__ = ["AttendPath", "AttendPlan"]


class AttendPlan(data.StructLayout):
    """What an `attend` command needs besides the engine."""

    def __init__(self):
        super().__init__(
            {
                "merge": 1,  # with a state from DRAM
                "leave": 1,  # the state goes to DRAM; no result
                "drop": 1,  # the engine's sums do not matter
                "drop_dense": 1,  # of dense and kept sums only the kept ones matter
                "dense": 1,  # dense sums are the result, from the engine
                "whole": 1,  # dense sums are the result, from DRAM
                "mode": SharingMode,
            }
        )


class StateOut(wiring.Component):
    """Rows and their sums to words in DRAM: the header, then the sums.

    Members
    -------
    row : In, stream of `TileRow`
    words : In, stream of `RowWord` of signed `accumulator_bits`
    o : Out, stream of bytes
    """

    def __init__(self, config: CoreConfig):
        self.config, lanes = config, config.vector.lanes
        self._word = RowWord(signed(config.number.accumulator_bits), lanes)
        size = lanes * sizes.accumulator_bytes(config)
        super().__init__(
            {
                "row": In(stream.Signature(TileRow(config))),
                "words": In(stream.Signature(self._word)),
                "o": Out(stream.Signature(data.ArrayLayout(8, size))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        acc_bytes = sizes.accumulator_bytes(self.config)
        size = self.config.vector.lanes * acc_bytes
        count = header_words(size)
        word, row = Signal(range(count + 1)), self.row.payload
        out = Value.cast(self.o.payload)
        header = Signal(8 * size * count)
        maximum = Signal(signed(32))
        taken = self.o.valid & self.o.ready
        m.d.comb += [
            maximum.eq(row.maximum),
            header[:32].eq(maximum),
            header[32:64].eq(row.total),
        ]
        with m.If(word == count):
            m.d.comb += [self.o.valid.eq(self.words.valid), self.words.ready.eq(self.o.ready)]
            for n, value in enumerate(self.words.payload.data):
                element = Signal(signed(8 * acc_bytes), name=f"element_{n}")
                m.d.comb += [
                    element.eq(value),
                    out.word_select(n, 8 * acc_bytes).eq(element),
                ]
            with m.If(taken & self.words.payload.last):
                m.d.sync += word.eq(0)
        with m.Else():
            m.d.comb += [
                self.o.valid.eq(self.row.valid),
                out.eq(header.word_select(word, 8 * size)),
                self.row.ready.eq(self.o.ready & (word == count - 1)),
            ]
            with m.If(taken):
                m.d.sync += word.eq(word + 1)
        return m


class AttendPath(wiring.Component):
    """From the engine's sums to result, residual or state.

    Throughput a word a cycle; a state takes a cycle or two more for its header.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    command : In, `attend`
        Quasi-static, as all of its fields are here.
    active : In
        Quasi-static: the command is one, and its result is not `direct`.
    plan : Out, `AttendPlan`
    sums : In, stream of `RowSums`
    state_row, state_words : In, streams of `TileRow` and [lanes] signed `accumulator_bits`
        The state so far; taken with `merge`.
    whole_total, whole_words : In, streams
        Total and sums of the whole row; taken with `whole`.
    residual : In, stream of [lanes] signed `sharing_bits`
        Taken with ADD.
    state : Out, stream of bytes
    o, r : Out, streams of `RowWord`
        Result and new residual.
    """

    def __init__(self, config: CoreConfig):
        self.config, lanes = config, config.vector.lanes
        self._kind = CommandLayout(Attend, config)
        acc = stream.Signature(data.ArrayLayout(signed(config.number.accumulator_bits), lanes))
        self._epilogue, self._state_out = SharingEpilogue(config), StateOut(config)
        ending = self._epilogue.signature.members
        super().__init__(
            {
                "command": In(self._kind),
                "active": In(1),
                "plan": Out(AttendPlan()),
                "sums": In(stream.Signature(RowSums(config))),
                "state_row": In(stream.Signature(TileRow(config))),
                "state_words": In(acc),
                "whole_total": In(stream.Signature(total_bits(config))),
                "whole_words": In(acc),
                "residual": ending["residual"],
                "state": self._state_out.signature.members["o"],
                "o": ending["o"],
                "r": ending["r"],
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.main = main = RowSplitter(config, TileMerger.ROW_LATENCY + 5)
        longest = words_of(config.memory.head_dim, config.vector.lanes)
        m.submodules.dense = dense = RowSplitter(config, longest + 8)
        m.submodules.merger = merger = TileMerger(config)
        m.submodules.epilogue = epilogue = self._epilogue
        m.submodules.state_out = state_out = self._state_out
        word = main.words.payload.shape()
        m.submodules.merged = merged = StreamQueue(word, SharingEpilogue.ROW_LATENCY + 10)
        self._plan(m)
        plan = self.plan
        wiring.connect(m, state_out.o, wiring.flipped(self.state))
        for name in ("o", "r"):
            wiring.connect(m, getattr(epilogue, name), wiring.flipped(getattr(self, name)))
        wiring.connect(m, wiring.flipped(self.residual), epilogue.residual)

        # Where the engine's words go.
        early = Signal()  # dense sums, ahead of kept ones of the same row
        dropped = Signal()
        i = self.sums
        m.d.comb += [
            early.eq(plan.dense & ~i.payload.kept),
            dropped.eq(plan.drop | (plan.drop_dense & ~i.payload.kept)),
            main.i.payload.eq(i.payload),
            dense.i.payload.eq(i.payload),
            main.i.valid.eq(i.valid & ~early & ~dropped),
            dense.i.valid.eq(i.valid & early),
            i.ready.eq(dropped | Mux(early, dense.i.ready, main.i.ready)),
        ]

        # Merged with the state, or as they are.
        rows = stream.Signature(TileRow(config)).create(path=("rows",))
        with m.If(plan.merge):
            _pass(m, main.row, merger.row_b)
            _pass(m, merger.row, rows)
            _pass(m, merger.o, merged.i)
            m.d.comb += [
                merger.b.payload.eq(main.words.payload.data),
                merger.b.valid.eq(main.words.valid),
                main.words.ready.eq(merger.b.ready),
            ]
        with m.Else():
            _pass(m, main.row, rows)
            _pass(m, main.words, merged.i)
        wiring.connect(m, wiring.flipped(self.state_row), merger.row_a)
        wiring.connect(m, wiring.flipped(self.state_words), merger.a)
        m.d.comb += [
            merger.channels.eq(self.command.width),
            epilogue.channels.eq(self.command.width),
            epilogue.multiplier.eq(self.command.output_multiplier),
            epilogue.shift.eq(self.command.output_shift),
            epilogue.mode.eq(plan.mode),
        ]

        # The end of a row: with `whole` and without REFRESH nothing of the engine is used.
        refresh, row = plan.mode == SharingMode.REFRESH, epilogue.row
        engine = ~plan.whole | refresh
        wanted = ((rows, engine), (dense.row, plan.dense), (self.whole_total, plan.whole))
        with m.If(plan.leave):
            _pass(m, rows, state_out.row)
            _pass(m, merged.o, state_out.words)
        with m.Else():
            for one, needed in wanted:
                m.d.comb += one.ready.eq(row.valid & row.ready & needed)
            m.d.comb += [
                row.valid.eq(
                    self.active & Cat(one.valid | ~needed for one, needed in wanted).all()
                ),
                row.payload.total.eq(rows.payload.total),
                row.payload.kept.eq(rows.payload.total),
                epilogue.kept.payload.eq(merged.o.payload.data),
                epilogue.kept.valid.eq(merged.o.valid),
            ]
            with m.If(plan.dense):
                m.d.comb += [
                    row.payload.total.eq(dense.row.payload.total),
                    epilogue.acc.payload.eq(dense.words.payload.data),
                    epilogue.acc.valid.eq(dense.words.valid),
                    dense.words.ready.eq(epilogue.acc.ready),
                    merged.o.ready.eq(epilogue.kept.ready),
                ]
            with m.Elif(plan.whole):
                m.d.comb += row.payload.total.eq(self.whole_total.payload)
                m.d.comb += merged.o.ready.eq(epilogue.kept.ready)
                _pass(m, self.whole_words, epilogue.acc)
            with m.Else():
                m.d.comb += [
                    epilogue.acc.payload.eq(merged.o.payload.data),
                    epilogue.acc.valid.eq(merged.o.valid),
                    merged.o.ready.eq(epilogue.acc.ready),
                ]
        return m

    def _plan(self, m: Module) -> None:
        c, found = self.command, self.plan
        keep = c.epilogue == AttendEpilogue.KEEP
        plain = c.epilogue == AttendEpilogue.PLAIN
        generate = c.mode == MaskMode.GENERATE
        m.d.comb += [
            found.drop.eq(c.mark & c.last & plain),
            found.merge.eq(~c.first & ~found.drop),
            found.leave.eq(~c.last),
            found.drop_dense.eq(generate & ~c.mark & ~keep),
            found.dense.eq(c.last & ~c.mark & keep),
            found.whole.eq(c.last & c.mark & (keep | plain)),
            found.mode.eq(SharingMode.PLAIN),
        ]
        with m.If(keep):
            m.d.comb += found.mode.eq(SharingMode.REFRESH)
        with m.If(c.epilogue == AttendEpilogue.ADD):
            m.d.comb += found.mode.eq(SharingMode.REUSE)


def _pass(m: Module, i: wiring.PureInterface, o: wiring.PureInterface) -> None:
    """Connect two streams where a condition holds."""
    m.d.comb += [o.payload.eq(i.payload), o.valid.eq(i.valid), i.ready.eq(o.ready)]
