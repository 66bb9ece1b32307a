"""Which hidden units are hot: their magnitude is above a threshold in some row."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.program import Function, MaskMode
from hw.command import FuseLayout
from hw.masks.controller import MaskLine
from hw.sram import Sram

__all__ = ["HotColumns"]


class HotColumns(wiring.Component):
    """Gathers GELU outputs above the threshold over all rows of a command into one mask row.

    Rows come one after the other, each in local order.  The bits of a line are gathered in a
    register and then ORed into a memory of a row's lines; a row that fits one line stays in the
    register.  When the command's rows have been delivered its lines are written, ORed with those in
    the mask memory unless `fresh`, a line a cycle: `lines + 2` cycles.  Bits where no column is are
    0.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    command : In, `FuseLayout`
        Quasi-static.
    restart : In
        A command is taken.
    enable, value : In, [B]
        GELU outputs as they are stored.
    position, row_last : In
        Their local index, and whether they are the row's last.
    in_bank : In, [B]
        Columns in each bank.  Quasi-static.
    drained : In
        The command's rows have been delivered.
    peek_en, peek_address : Out
    peek : In, [B] mask words
        Reads the mask memory.
    line_valid, line : Out, `MaskLine`
        Writes it.
    busy : Out
        The command's mask is not yet written.
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        B, line = config.array.banks, MaskLine(config)
        super().__init__(
            {
                "command": In(FuseLayout(config)),
                "restart": In(1),
                "enable": In(B),
                "value": In(data.ArrayLayout(signed(config.number.score_bits), B)),
                "position": In(config.local_bits),
                "row_last": In(1),
                "in_bank": In(data.ArrayLayout(range(config.columns_per_bank + 1), B)),
                "drained": In(1),
                "peek_en": Out(1),
                "peek_address": Out(line["address"].shape),
                "peek": In(line["bits"].shape),
                "line_valid": Out(1),
                "line": Out(line),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, cmd, B = self.config, self.command, self.config.array.banks
        word_bits, words = config.memory.mask_word_bits, config.mask_words_per_row
        index_bits = word_bits.bit_length() - 1
        bits = MaskLine(config)["bits"].shape
        m.submodules.lines = memory = Sram(bits, words)
        making = Signal()
        m.d.comb += making.eq((cmd.function == Function.GELU) & (cmd.mode == MaskMode.GENERATE))

        # Sizes of the command.
        groups = Signal(config.local_bits + 1)
        lines = Signal(range(words + 1))
        top = 1 << config.number.operand_bits
        limit = Signal(range(top + 1))
        m.d.sync += [
            groups.eq((cmd.columns + (B - 1)) >> config.bank_bits),
            limit.eq(Mux(cmd.threshold > top, top, cmd.threshold)),
        ]

        # A command without rows is drained at once: one register is all there is time for.
        m.d.comb += lines.eq((groups + (word_bits - 1)) >> index_bits)

        # Compare; the memory shows the position's line when the bits are there.
        above = Signal(B)
        place = Signal(config.local_bits)
        valid, last = Signal(), Signal()
        narrow = signed(config.number.operand_bits)
        for b in range(B):
            value = Signal(narrow, name=f"value_{b}")
            m.d.comb += value.eq(self.value[b])
            magnitude = Mux(value < 0, -value, value)
            m.d.sync += above[b].eq(self.enable[b] & (magnitude > limit))
        m.d.sync += [
            valid.eq(self.enable.any() & making),
            last.eq(self.row_last),
            place.eq(self.position),
        ]

        gathered, row = Signal(bits), Signal(bits)
        first_row = Signal()
        number = Signal(range(max(2, words)))
        begins, ends = Signal(), Signal()
        m.d.comb += [
            number.eq(place >> index_bits),
            begins.eq((place[:index_bits] == 0) & (lines != 1)),
            ends.eq(last | place[:index_bits].all()),
        ]
        for b in range(B):
            now = Mux(above[b], 1 << place[:index_bits], 0)
            m.d.comb += row[b].eq(Mux(begins, 0, gathered[b]) | now)
        with m.If(valid):
            m.d.sync += gathered.eq(row)
            with m.If(last):
                m.d.sync += first_row.eq(0)
        with m.If(self.restart):
            m.d.sync += [gathered.eq(0), first_row.eq(1)]
        # The register of a row of one line holds all rows: its memory need not be up to date.
        known = Mux(first_row, 0, Value.cast(memory.read_data))
        earlier = Mux(lines == 1, 0, known)
        m.d.comb += [
            memory.write_address.eq(number),
            memory.write_data.eq(Value.cast(row) | earlier),
            memory.write_en.eq(valid & ends),
        ]

        # Write: a line is read here and in the mask memory, and a cycle later the sum is there.
        written = Signal()
        reading, shown = Signal(), Signal()
        ahead = Signal(range(words + 1))
        m.d.comb += [
            self.busy.eq(making & ~written),
            reading.eq(self.drained & self.busy & (ahead != lines)),
            memory.read_address.eq(Mux(self.drained, ahead, self.position >> index_bits)),
            memory.read_en.eq(1),
            self.peek_en.eq(reading),
            self.peek_address.eq(cmd.mask_slot * words + ahead),
            self.line_valid.eq(shown),
        ]
        address = Signal.like(self.peek_address)
        behind = Signal.like(number)
        m.d.sync += [shown.eq(reading), address.eq(self.peek_address), behind.eq(ahead)]
        m.d.comb += self.line.address.eq(address)
        found = data.View(bits, known)
        for b in range(B):
            remaining = self.in_bank[b] - (behind << index_bits)
            exists = Cat((remaining > i) for i in range(word_bits))
            old = Mux(cmd.fresh, 0, self.peek[b] & exists)
            m.d.comb += self.line.bits[b].eq(found[b] | old)
        with m.If(self.restart):
            m.d.sync += [ahead.eq(0), written.eq(0)]
        with m.Elif(reading):
            m.d.sync += ahead.eq(ahead + 1)
        with m.Elif(self.drained & ~shown):
            m.d.sync += written.eq(1)
        return m
