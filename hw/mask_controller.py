"""The sparse-mask controller: holds mask bits in bank order and lists each bank's kept columns."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from hw.hash import bank_offset, matrix_layout
from hw.mask_scanner import BankScanner
from hw.sram import Sram

__all__ = ["MaskController", "MaskLine", "bank_columns"]


class MaskLine(data.StructLayout):
    """One mask word of every bank: bit i of bank b is the column with local index 32 w + i.

    (32 stands for `memory.mask_word_bits`.)  Row slot s, word w has the address
    `s * config.mask_words_per_row + w`.
    """

    def __init__(self, config: CoreConfig):
        super().__init__(
            {
                "address": max(1, (config.mask_lines - 1).bit_length()),
                "bits": data.ArrayLayout(config.memory.mask_word_bits, config.array.banks),
            }
        )


def bank_columns(config: CoreConfig, matrix, columns, bank: int):
    """Return how many of the first `columns` columns live in `bank`: an expression."""
    low = config.bank_bits
    whole, left_over = columns[low:], columns[:low]
    # The last, incomplete group of B columns starts at hi = whole; its lo < left_over exist.
    lo = bank ^ bank_offset(matrix, whole[: config.local_bits])
    return whole + (lo < left_over)


class MaskController(wiring.Component):
    """Mask memory and B scanners, which list the kept columns of a row bank by bank.

    A row is scanned in as many cycles as the slowest `BankScanner` needs: at least
    `2 + kept columns`, and 1 for each empty word that is not the last.  With 1 to hand it over,
    `row` accepts the next.  Kept columns appear on `kept` at the rate of one a bank and cycle.  The
    memory takes a line a cycle.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    lines : In, stream of `MaskLine`
    matrix, columns, masked : In
        Quasi-static: the hash, the number of columns, and whether the mask memory is read.
    row : In, stream of row slots
    kept_valid : Out, [B]
    kept : Out, [B]
        Local index of a kept column of the row that is being scanned.
    done : Out, stream of row slots
        This row has been listed.  The next one is not started before this is accepted.
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        B = config.array.banks
        super().__init__(
            {
                "lines": In(stream.Signature(MaskLine(config))),
                "matrix": In(matrix_layout(config)),
                "columns": In(config.column_bits + 1),
                "masked": In(1),
                "row": In(stream.Signature(range(config.memory.query_rows))),
                "kept_valid": Out(B),
                "kept": Out(data.ArrayLayout(config.local_bits, B)),
                "done": Out(stream.Signature(range(config.memory.query_rows))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, B = self.config, self.config.array.banks
        low, word_bits = config.bank_bits, config.memory.mask_word_bits

        groups = Signal(config.local_bits + 1)
        words = Signal(range(config.mask_words_per_row + 1))
        m.d.sync += [
            groups.eq((self.columns + (B - 1)) >> low),
            words.eq((groups + (word_bits - 1)) >> (word_bits.bit_length() - 1)),
        ]

        active = Signal()
        start = Signal()
        all_done = Signal()
        m.d.comb += [
            self.row.ready.eq(~active),
            start.eq(self.row.valid & self.row.ready),
            self.done.valid.eq(active & all_done),
        ]
        with m.If(start):
            m.d.sync += [active.eq(1), self.done.payload.eq(self.row.payload)]
        with m.Elif(self.done.valid & self.done.ready):
            m.d.sync += active.eq(0)

        m.d.comb += self.lines.ready.eq(1)
        done = []
        for b in range(B):
            m.submodules[f"mask_{b}"] = memory = Sram(word_bits, config.mask_lines)
            m.submodules[f"scanner_{b}"] = scanner = BankScanner(config)
            in_bank = Signal(range(config.columns_per_bank + 1), name=f"columns_{b}")
            m.d.sync += in_bank.eq(bank_columns(config, self.matrix, self.columns, b))
            m.d.comb += [
                memory.write_address.eq(self.lines.payload.address),
                memory.write_data.eq(self.lines.payload.bits[b]),
                memory.write_en.eq(self.lines.valid),
                memory.read_address.eq(scanner.address),
                memory.read_en.eq(scanner.en),
                scanner.word.eq(memory.read_data),
                scanner.start.eq(start),
                scanner.first_line.eq(self.row.payload * config.mask_words_per_row),
                scanner.words.eq(words),
                scanner.masked.eq(self.masked),
                scanner.columns.eq(in_bank),
                self.kept_valid[b].eq(scanner.kept_valid),
                self.kept[b].eq(scanner.kept),
            ]
            done.append(scanner.done)
        m.d.comb += all_done.eq(Cat(done).all())
        return m
