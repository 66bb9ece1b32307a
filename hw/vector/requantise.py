"""Requantises the dot products of columns and puts them into column order."""

from __future__ import annotations

from amaranth.hdl import EnableInserter, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.tables import MULTIPLIER_BITS, SHIFT_BITS
from hw.adder_tree import delay
from hw.fixed import round_shift, saturate
from hw.hash import BankHash, bank_offset, matrix_layout
from hw.vector.aligner import Aligner, exchange
from hw.vector.memory import HalvesMemory
from hw.vector.words import RowWord, busy, join, masked, row_left, row_position

__all__ = ["WIDE_BITS", "ColumnRequantiser", "ColumnWord", "column_constants"]

WIDE_BITS = 16
"""Signed bits of a result that is not an operand."""


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
    """Constants on their way to the bank of their column, into half `half`."""

    def __init__(self, config: CoreConfig):
        super().__init__(
            {"half": 1, "column": config.column_bits, "constants": column_constants(config)}
        )


class ColumnRequantiser(wiring.Component):
    """`out = saturate(round_shift((acc + bias) * multiplier, shift))` per column, in column order.

    Golden: the bias of `linear.accumulate`, then `linear.requantise`.

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
    matrix, columns, wide, half : In
        Quasi-static: H, the columns of a row, 1 to `memory.columns`; whether results have
        `WIDE_BITS` bits or `operand_bits`; the half of the constants that is in use.
    load : In, stream of `ColumnWord`
        Never stalls; lands two cycles after it was taken, in the bank that the matrix says.  The
        half in use may be loaded only while not `busy`.
    i : In, stream of [B] signed `accumulator_bits`
        Dense: every group, the last one with as many columns as are left.
    o : Out, stream of `RowWord` of signed `WIDE_BITS`
        Operands are sign-extended.
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
                "wide": In(1),
                "half": In(1),
                "load": In(stream.Signature(ColumnWord(config))),
                "i": In(stream.Signature(data.ArrayLayout(acc, config.array.banks))),
                "o": Out(stream.Signature(RowWord(signed(WIDE_BITS), self.lanes))),
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
        place = data.StructLayout(
            {
                "half": 1,
                "address": range(max(2, config.columns_per_bank)),
                "data": column_constants(config),
            }
        )
        loaded = Signal(place, reset_less=True)
        select = Signal(B)
        m.d.comb += [
            bank_hash.matrix.eq(self.matrix),
            bank_hash.column.eq(self.load.payload.column),
            self.load.ready.eq(1),
        ]
        m.d.sync += [
            loaded.half.eq(self.load.payload.half),
            loaded.address.eq(bank_hash.local),
            loaded.data.eq(self.load.payload.constants),
            select.eq(self.load.valid << bank_hash.bank),
        ]

        results = []
        for b in range(B):
            memory = HalvesMemory(column_constants(config), config.columns_per_bank)
            m.submodules[f"constants_{b}"] = memory
            m.d.comb += [
                memory.load.valid.eq(select[b]),
                memory.load.payload.eq(loaded),
                memory.half.eq(self.half),
                memory.read_address.eq(here.word),
                memory.read_en.eq(advance),
            ]
            constants = memory.read_data
            acc = delay(p, self.i.payload[b], 1, name=f"acc_{b}")
            total = Signal(signed(number.accumulator_bits), name=f"sum_{b}", reset_less=True)
            p.d.sync += total.eq(acc + constants.bias)
            multiplier = delay(p, constants.multiplier, 1, name=f"multiplier_{b}")
            product = delay(p, total * multiplier, 1, name=f"product_{b}")
            shift = delay(p, constants.shift, 2, name=f"shift_{b}")
            rounded = round_shift(product, shift)
            result = Signal(signed(WIDE_BITS), name=f"result_{b}", reset_less=True)
            p.d.sync += result.eq(
                Mux(self.wide, saturate(rounded, WIDE_BITS), saturate(rounded, number.operand_bits))
            )
            results.append(result)

        # Back to the order of columns; lanes beyond the last column become 0.
        cycles = self.LATENCY - 1
        offset = delay(p, bank_offset(self.matrix, here.word), cycles, name="offset")
        enable = delay(p, here.enable, cycles, name="enable")
        ordered = masked(exchange(m, results, offset, name="ordered"), enable)
        m.submodules.aligner = aligner = Aligner(signed(WIDE_BITS), B, self.lanes)
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
