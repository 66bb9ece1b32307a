"""Requantises the dot products of columns and puts them into column order."""

from __future__ import annotations

from amaranth.hdl import EnableInserter, Module, Signal, signed
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.program.access import constant_entries
from disc.tables import MULTIPLIER_BITS, SHIFT_BITS
from hw.adder_tree import delay
from hw.fixed import round_shift, saturate
from hw.hash import BankHash, bank_offset, matrix_layout
from hw.sram import Sram
from hw.vector.aligner import Aligner, exchange
from hw.vector.words import RowWord, busy, join, masked, row_left, row_position

__all__ = [
    "WIDE_BITS",
    "ColumnRequantiser",
    "ColumnResult",
    "ColumnWord",
    "column_constants",
]

WIDE_BITS = 16
"""Signed bits of a result that is not an operand."""


class ColumnResult(enum.Enum, shape=2):
    """What becomes of a column's sum."""

    OPERAND = 0
    """Requantised to `operand_bits`."""
    WIDE = 1
    """Requantised to `WIDE_BITS`."""
    SUM = 2
    """As it is, with its bias: for `GateResidual`."""


def column_constants(config: CoreConfig) -> data.StructLayout:
    """Constants of a column."""
    return data.StructLayout(
        {
            "bias": signed(config.number.accumulator_bits),
            "multiplier": MULTIPLIER_BITS,
            "shift": SHIFT_BITS,
        }
    )


class ColumnWord(data.StructLayout):
    """Constants on their way to `bank = hash(column)`, entry `base + local(column)`."""

    def __init__(self, config: CoreConfig):
        super().__init__(
            {
                "column": config.column_bits,
                "base": range(constant_entries(config)),
                "constants": column_constants(config),
            }
        )


class ColumnRequantiser(wiring.Component):
    """`out = saturate(round_shift((acc + bias) * multiplier, shift))` per column, in column order.

    Golden: the bias of `linear.accumulate`, then `linear.requantise`; with SUM the bias alone.

    The array gives a row in groups of B columns, in the order of banks.  Constants lie in the banks
    of their columns, so they meet their sums before anything is moved; then the hash is undone by
    XOR within the group, and the aligner cuts the row into words.

    Throughput: a row of G groups and W words takes max(G, W) cycles, without a gap between rows.
    Latency: a word is offered `LATENCY` cycles after the group that completes it was taken, if no
    word before it waits.

    Parameters
    ----------
    config : CoreConfig
    lanes : int, optional
        Elements of an output word; unset: `vector.lanes`.

    Members
    -------
    matrix, columns, result, base : In
        Quasi-static: H, the columns of a row, 1 to `memory.columns`; what becomes of the sums; the
        entry of the first constants.
    load : In, stream of `ColumnWord`
        Never stalls; lands two cycles after it was taken, in the bank that the matrix says.  What
        is in use may be loaded only while not `busy`.
    i : In, stream of [B] signed `accumulator_bits`
        Dense: every group, the last one with as many columns as are left.
    o : Out, stream of `RowWord` of signed `accumulator_bits`
        Sign-extended.
    busy : Out
    """

    LATENCY = 5

    def __init__(self, config: CoreConfig, lanes: int | None = None):
        self.config = config
        self.lanes = config.vector.lanes if lanes is None else lanes
        acc = signed(config.number.accumulator_bits)
        super().__init__(
            {
                "matrix": In(matrix_layout(config)),
                "columns": In(range(config.memory.columns + 1)),
                "result": In(ColumnResult),
                "base": In(range(constant_entries(config))),
                "load": In(stream.Signature(ColumnWord(config))),
                "i": In(stream.Signature(data.ArrayLayout(acc, config.array.banks))),
                "o": Out(stream.Signature(RowWord(acc, self.lanes))),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        p = Module()  # the rigid pipeline: everything in it stops together
        config, number, B = self.config, self.config.number, self.config.array.banks
        advance = Signal()
        accept = join(m, advance, [(self.i, 1)])
        here = row_position(m, accept, self.columns, B, config.memory.columns, name="in")

        # As in the distributor, the hash of a column has a cycle of its own.
        m.submodules.hash = bank_hash = BankHash(config)
        constants_shape, entries = column_constants(config), constant_entries(config)
        loaded = Signal(constants_shape, reset_less=True)
        place = Signal(range(entries), reset_less=True)
        select = Signal(B)
        m.d.comb += [
            bank_hash.matrix.eq(self.matrix),
            bank_hash.column.eq(self.load.payload.column),
            self.load.ready.eq(1),
        ]
        m.d.sync += [
            loaded.eq(self.load.payload.constants),
            place.eq(self.load.payload.base + bank_hash.local),
            select.eq(self.load.valid << bank_hash.bank),
        ]

        results = []
        acc_shape = signed(number.accumulator_bits)
        for b in range(B):
            m.submodules[f"constants_{b}"] = memory = Sram(constants_shape, entries)
            m.d.comb += [
                memory.write_address.eq(place),
                memory.write_data.eq(loaded),
                memory.write_en.eq(select[b]),
                memory.read_address.eq(self.base + here.word),
                memory.read_en.eq(advance),
            ]
            constants = memory.read_data
            acc = delay(p, self.i.payload[b], 1, name=f"acc_{b}")
            total = Signal(acc_shape, name=f"sum_{b}", reset_less=True)
            p.d.sync += total.eq(acc + constants.bias)
            multiplier = delay(p, constants.multiplier, 1, name=f"multiplier_{b}")
            product = delay(p, total * multiplier, 1, name=f"product_{b}")
            rounded = round_shift(product, delay(p, constants.shift, 2, name=f"shift_{b}"))
            unrounded = delay(p, total, 1, name=f"sum_late_{b}")
            result = Signal(acc_shape, name=f"result_{b}", reset_less=True)
            with p.Switch(self.result):
                with p.Case(ColumnResult.OPERAND):
                    p.d.sync += result.eq(saturate(rounded, number.operand_bits))
                with p.Case(ColumnResult.WIDE):
                    p.d.sync += result.eq(saturate(rounded, WIDE_BITS))
                with p.Default():
                    p.d.sync += result.eq(unrounded)
            results.append(result)

        # Back to the order of columns; lanes beyond the last column become 0.
        cycles = self.LATENCY - 1
        offset = delay(p, bank_offset(self.matrix, here.word), cycles, name="offset")
        enable = delay(p, here.enable, cycles, name="enable")
        ordered = masked(exchange(m, results, offset, name="ordered"), enable)
        m.submodules.aligner = aligner = Aligner(acc_shape, B, self.lanes)
        valid = delay(p, accept, cycles, name="valid", reset_less=False)
        m.d.comb += [
            aligner.i.valid.eq(valid),
            aligner.i.payload.count.eq(sum(enable)),
            aligner.i.payload.last.eq(delay(p, here.last, cycles, name="last")),
            advance.eq(~valid | aligner.i.ready),
        ]
        m.d.comb += [aligner.i.payload.data[i].eq(value) for i, value in enumerate(ordered)]
        m.submodules.pipeline = EnableInserter(advance)(p)
        wiring.connect(m, aligner.o, wiring.flipped(self.o))
        most = self.LATENCY + -(-(B + self.lanes) // self.lanes)
        begins = accept & here.first
        m.d.comb += self.busy.eq(busy(m, begins, row_left(self.o), most))
        return m
