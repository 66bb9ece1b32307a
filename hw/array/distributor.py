"""The bank distributor: spreads columns over operand banks by hash, and reads all banks at once."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from hw.hash import BankHash, matrix_layout
from hw.sram import Sram

__all__ = ["BankDistributor", "OperandWord"]


class OperandWord(data.StructLayout):
    """One word of a column on its way into a bank.

    It goes to `bank = hash(column)`, word `offset + local(column)`.  The offset is the start of the
    matrix plus, for beat n of the column, n times the columns that a bank holds.
    """

    def __init__(self, config: CoreConfig):
        super().__init__(
            {
                "column": config.column_bits,
                "offset": (config.memory.bank_words - 1).bit_length(),
                "data": data.ArrayLayout(signed(config.number.operand_bits), config.array.lanes),
            }
        )


class BankDistributor(wiring.Component):
    """B operand banks behind the programmable hash.

    Writing: one word a cycle, never stalls, lands two cycles after it was accepted.  Reading: every
    bank at its own address each cycle, data one cycle later; no conflicts by construction, since
    each bank serves only its own dot-product unit.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    matrix : In, rows of H
        Quasi-static; data must be read with the matrix with which it was written.
    i : In, stream of `OperandWord`
    address : In, [B]
    en : In
        Read all banks.
    word : Out, [B][L] signed `operand_bits`
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        B = config.array.banks
        self._word = OperandWord(config)["data"].shape
        self._address_bits = (config.memory.bank_words - 1).bit_length()
        super().__init__(
            {
                "matrix": In(matrix_layout(config)),
                "i": In(stream.Signature(OperandWord(config))),
                "address": In(data.ArrayLayout(self._address_bits, B)),
                "en": In(1),
                "word": Out(data.ArrayLayout(self._word, B)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.hash = bank_hash = BankHash(self.config)

        # The hash gets a cycle of its own: its XOR trees are as deep as the index is wide.
        word = Signal(self._word, reset_less=True)
        address = Signal(self._address_bits, reset_less=True)
        select = Signal(self.config.array.banks)
        m.d.comb += [
            bank_hash.matrix.eq(self.matrix),
            bank_hash.column.eq(self.i.payload.column),
            self.i.ready.eq(1),
        ]
        m.d.sync += [
            word.eq(self.i.payload.data),
            address.eq(self.i.payload.offset + bank_hash.local),
            select.eq(self.i.valid << bank_hash.bank),
        ]
        for b in range(self.config.array.banks):
            m.submodules[f"bank_{b}"] = bank = Sram(self._word, self.config.memory.bank_words)
            m.d.comb += [
                bank.write_address.eq(address),
                bank.write_data.eq(word),
                bank.write_en.eq(select[b]),
                bank.read_address.eq(self.address[b]),
                bank.read_en.eq(self.en),
                self.word[b].eq(bank.read_data),
            ]
        return m
