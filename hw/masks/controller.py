"""The sparse-mask controller: holds mask bits in bank order and lists each bank's kept columns."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from hw.hash import bank_offset, matrix_layout
from hw.masks.scanner import BankScanner
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

    Lines can be read too, one a cycle, two cycles after `read` was accepted.  Scanners go first:
    while a masked row is scanned nothing is read until every bank has its last word; there is a
    cycle for a line between any two rows.

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
    in_bank : Out, [B]
        How many of the columns live in each bank.
    read : In, stream of line addresses
    word : Out, stream of `MaskLine`
    peek_en, peek_address : In
    peek : Out, [B] mask words
        Reads a line one cycle later, only while no row is scanned; `read` waits.
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
                "in_bank": Out(data.ArrayLayout(range(config.columns_per_bank + 1), B)),
                "read": In(stream.Signature(MaskLine(config)["address"].shape)),
                "word": Out(stream.Signature(MaskLine(config))),
                "peek_en": In(1),
                "peek_address": In(MaskLine(config)["address"].shape),
                "peek": Out(MaskLine(config)["bits"].shape),
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
        reading = Signal()
        done, holds = [], []
        for b in range(B):
            m.submodules[f"mask_{b}"] = memory = Sram(word_bits, config.mask_lines)
            m.submodules[f"scanner_{b}"] = scanner = BankScanner(config)
            m.d.sync += self.in_bank[b].eq(bank_columns(config, self.matrix, self.columns, b))
            m.d.comb += [
                memory.write_address.eq(self.lines.payload.address),
                memory.write_data.eq(self.lines.payload.bits[b]),
                memory.write_en.eq(self.lines.valid),
                memory.read_address.eq(
                    Mux(
                        self.peek_en,
                        self.peek_address,
                        Mux(reading, self.read.payload, scanner.address),
                    )
                ),
                memory.read_en.eq(self.peek_en | reading | scanner.en),
                self.peek[b].eq(memory.read_data),
                scanner.word.eq(memory.read_data),
                scanner.start.eq(start),
                scanner.first_line.eq(self.row.payload * config.mask_words_per_row),
                scanner.words.eq(words),
                scanner.masked.eq(self.masked),
                scanner.columns.eq(self.in_bank[b]),
                self.kept_valid[b].eq(scanner.kept_valid),
                self.kept[b].eq(scanner.kept),
            ]
            done.append(scanner.done)
            holds.append(scanner.holds)
        m.d.comb += all_done.eq(Cat(done).all())
        scanning = self.masked & (start | Cat(holds).any())
        self._read_lines(m, reading, ~scanning & ~self.peek_en)
        return m

    def _read_lines(self, m, reading, may_read):
        """Take lines from the memories' outputs at once: a scanner may want the next cycle."""
        layout, depth = MaskLine(self.config), 3
        m.submodules.line_queue = queue = SyncFIFO(width=layout.size, depth=depth)
        free = Signal(range(depth + 1), init=depth)
        taken = self.word.valid & self.word.ready
        line, address, arrived = Signal(layout), Signal(layout["address"].shape), Signal()
        m.d.comb += [
            self.read.ready.eq(may_read & (free != 0)),
            reading.eq(self.read.valid & self.read.ready),
            line.address.eq(address),
            line.bits.eq(self.peek),
            queue.w_data.eq(line),
            queue.w_en.eq(arrived),
            queue.r_en.eq(taken),
            self.word.valid.eq(queue.r_rdy),
            Value.cast(self.word.payload).eq(queue.r_data),
        ]
        m.d.sync += [
            arrived.eq(reading),
            address.eq(self.read.payload),
            free.eq(free - reading + taken),
        ]
