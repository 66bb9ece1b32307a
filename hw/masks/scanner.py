"""Finds the kept columns of one bank, one a cycle."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig

__all__ = ["BankScanner"]


class BankScanner(wiring.Component):
    """Walks one row's mask words of one bank and yields the local index of every set bit.

    The word behind the current one is always being read, so a word of k > 0 set bits takes k
    cycles and an empty one takes 1, unless it is the last, which then takes none.  A row therefore
    takes `2 + sum over all words but the last of max(1, set bits) + set bits of the last word`
    cycles from `start` to `done`.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    start : In
        Begin a row; only while `done`.
    first_line : In
        Address of the row's first mask word.
    words : In
        Mask words in the row, at least 1.
    masked : In
        Read the mask memory; else every column counts as kept.
    columns : In
        Columns of the operation in this bank; bits beyond are ignored.
    address, en : Out
        To the mask memory.
    word : In
        From the mask memory, one cycle later.  It must stay while `holds`.
    holds : Out
    kept_valid : Out
        `kept` is the local index of the next kept column.
    kept : Out
    done : Out
        High when idle: everything of the last row has been yielded.
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        lines = max(1, (config.mask_lines - 1).bit_length())
        super().__init__(
            {
                "start": In(1),
                "first_line": In(lines),
                "words": In(range(config.mask_words_per_row + 1)),
                "masked": In(1),
                "columns": In(range(config.columns_per_bank + 1)),
                "address": Out(lines),
                "en": Out(1),
                "word": In(config.memory.mask_word_bits),
                "holds": Out(1),
                "kept_valid": Out(1),
                "kept": Out(config.local_bits),
                "done": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        width = self.config.memory.mask_word_bits
        index_bits = (width - 1).bit_length()

        pending = Signal(width)
        current = Signal(self.words.shape())  # number of the word in `pending`
        ahead = Signal(self.words.shape())  # number of the word that the memory shows
        ahead_valid = Signal()
        next_line = Signal(self.address.shape())

        lowest = Signal(width)
        rest = Signal(width)
        m.d.comb += [
            lowest.eq(pending & -pending),
            rest.eq(pending & ~lowest),
            self.kept_valid.eq(pending.any()),
            self.holds.eq(ahead_valid),
            self.done.eq(~pending.any() & ~ahead_valid),
        ]
        index = Cat(
            *(
                Cat(lowest[i] for i in range(width) if i >> bit & 1).any()
                for bit in range(index_bits)
            )
        )
        m.d.comb += self.kept.eq(Cat(index, current))

        # The memory's word, cut to the columns that exist.
        shown = Signal(width)
        span = width * self.config.mask_words_per_row
        remaining = Signal(range(-span, span + 1))
        m.d.comb += [
            shown.eq(Mux(self.masked, self.word, ~0)),
            remaining.eq(self.columns - (ahead << index_bits)),
        ]
        exists = Cat((remaining > i) for i in range(width))

        with m.If(self.start):
            m.d.comb += [self.address.eq(self.first_line), self.en.eq(1)]
            m.d.sync += [
                ahead.eq(0),
                ahead_valid.eq(1),
                next_line.eq(self.first_line + 1),
            ]
        with m.Else():
            m.d.comb += self.address.eq(next_line)
            m.d.sync += pending.eq(rest)
            with m.If(~rest.any() & ahead_valid):
                m.d.comb += self.en.eq(1)
                m.d.sync += [
                    pending.eq(shown & exists),
                    current.eq(ahead),
                    ahead.eq(ahead + 1),
                    ahead_valid.eq(ahead + 1 < self.words),
                    next_line.eq(next_line + 1),
                ]
        return m
