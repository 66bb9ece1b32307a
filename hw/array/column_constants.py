"""What requantises a dot product: bias, multiplier and shift of every column, beside its bank."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.tables import MULTIPLIER_BITS, SHIFT_BITS
from hw.hash import BankHash, matrix_layout
from hw.sram import Sram

__all__ = ["ColumnConstants", "ConstantWord", "Constants", "constant_entries"]


def constant_entries(config: CoreConfig) -> int:
    """Columns of a bank whose constants are held: two tiles, one in use, one being loaded."""
    return 2 * config.columns_per_bank


class Constants(data.StructLayout):
    """`(dot + bias) * multiplier * 2**-shift`."""

    def __init__(self, config: CoreConfig):
        super().__init__(
            {
                "bias": signed(config.number.accumulator_bits),
                "multiplier": MULTIPLIER_BITS,
                "shift": SHIFT_BITS,
            }
        )


class ConstantWord(data.StructLayout):
    """Constants of a column on their way to `bank = hash(column)`, entry `offset + local`."""

    def __init__(self, config: CoreConfig):
        super().__init__(
            {
                "column": config.column_bits,
                "offset": range(constant_entries(config)),
                "constants": Constants(config),
            }
        )


class ColumnConstants(wiring.Component):
    """A memory of constants a bank, addressed as the banks are.

    Writing: one column a cycle, never stalls, lands two cycles after it was accepted.  Reading:
    every bank at its own address each cycle, data one cycle later.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    matrix : In, rows of H
        Quasi-static.
    i : In, stream of `ConstantWord`
    en : In
    address : In, [B]
    constants : Out, [B] `Constants`
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        B = config.array.banks
        self._entries = range(max(2, constant_entries(config)))
        super().__init__(
            {
                "matrix": In(matrix_layout(config)),
                "i": In(stream.Signature(ConstantWord(config))),
                "en": In(1),
                "address": In(data.ArrayLayout((len(self._entries) - 1).bit_length(), B)),
                "constants": Out(data.ArrayLayout(Constants(config), B)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.hash = bank_hash = BankHash(self.config)
        constants = Signal(Constants(self.config), reset_less=True)
        address = Signal(self._entries, reset_less=True)
        select = Signal(self.config.array.banks)
        m.d.comb += [
            bank_hash.matrix.eq(self.matrix),
            bank_hash.column.eq(self.i.payload.column),
            self.i.ready.eq(1),
        ]
        m.d.sync += [
            constants.eq(self.i.payload.constants),
            address.eq(self.i.payload.offset + bank_hash.local),
            select.eq(self.i.valid << bank_hash.bank),
        ]
        for b in range(self.config.array.banks):
            m.submodules[f"bank_{b}"] = bank = Sram(Constants(self.config), len(self._entries))
            m.d.comb += [
                bank.write_address.eq(address),
                bank.write_data.eq(constants),
                bank.write_en.eq(select[b]),
                bank.read_address.eq(self.address[b]),
                bank.read_en.eq(self.en),
                self.constants[b].eq(bank.read_data),
            ]
        return m
