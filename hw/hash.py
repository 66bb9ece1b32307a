"""The hash that spreads columns over banks.

`bank = lo XOR H*hi` over GF(2) and `local = hi`, where `lo` are the low log2(B) bits of a column
index and `hi` the rest.  H is programmable.  For every H the map is a bijection and, at fixed
`hi`, its own inverse, so B consecutive columns always fall into B different banks.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig

__all__ = ["BankHash", "bank_offset", "matrix_layout"]


def matrix_layout(config: CoreConfig) -> data.ArrayLayout:
    """Shape of H: for every bank bit the set of local bits that are XORed into it."""
    return data.ArrayLayout(config.local_bits, config.bank_bits)


def bank_offset(matrix: data.View, local: Value) -> Value:
    """Return `H * local`, log2(B) bits: log2(B) XOR trees, combinational."""
    rows = matrix.shape().length
    return Cat(*((Value.cast(matrix[bit]) & local).xor() for bit in range(rows)))


class BankHash(wiring.Component):
    """The hash and its inverse.  Combinational.

    Parameters
    ----------
    config : CoreConfig
        `array.banks` and `memory.columns` fix the widths.

    Members
    -------
    matrix : In, rows of H
        Quasi-static: change it only while no operation runs.
    column : In, `config.column_bits`
        Column index to be placed.
    bank, local : Out
        Its bank and its index within the bank.
    from_bank, from_local : In
        A place.
    to_column : Out
        The column that lives there.
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        super().__init__(
            {
                "matrix": In(matrix_layout(config)),
                "column": In(config.column_bits),
                "bank": Out(config.bank_bits),
                "local": Out(config.local_bits),
                "from_bank": In(config.bank_bits),
                "from_local": In(config.local_bits),
                "to_column": Out(config.column_bits),
            }
        )

    def elaborate(self, platform):
        m = Module()
        low = self.config.bank_bits
        m.d.comb += [
            self.local.eq(self.column[low:]),
            self.bank.eq(self.column[:low] ^ bank_offset(self.matrix, self.column[low:])),
            self.to_column.eq(
                Cat(self.from_bank ^ bank_offset(self.matrix, self.from_local), self.from_local)
            ),
        ]
        return m
