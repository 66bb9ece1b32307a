"""Words that the load unit has read, on their way into the core's memories."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import BusConfig, CoreConfig
from disc.program import (
    LoadColumns,
    LoadConstants,
    LoadList,
    LoadMasks,
    LoadRows,
    LoadTable,
    Queue,
    sizes,
)
from disc.tables import MULTIPLIER_BITS, SHIFT_BITS
from hw.array.column_constants import ConstantWord
from hw.array.distributor import OperandWord
from hw.control.layouts import QueueLayout
from hw.engine import QueryWord
from hw.masks.controller import MaskLine
from hw.memory.lists import ListWritePort
from hw.memory.packer import ByteWord
from hw.vector.lookup import TableEntry

__all__ = ["Deliverer", "word_bytes"]


def word_bytes(config: CoreConfig, bus: BusConfig) -> dict[type, int]:
    """Return how wide the words are that each command wants to be given."""
    return {
        LoadList: sizes.ENTRY_BYTES,
        LoadColumns: config.array.lanes,
        LoadConstants: sizes.CONSTANT_BYTES,
        LoadTable: 1,
        LoadRows: config.array.lanes,
        # Lines may be wide; they are put together from pieces.  Both are powers of two.
        LoadMasks: min(sizes.mask_line_bytes(config), bus.word_bytes),
    }


class Deliverer(wiring.Component):
    """Gives each word of a command its place.

    No place needs a multiplier: those of columns and rows follow each other at fixed distances.

    Parameters
    ----------
    config : CoreConfig
    bus : BusConfig

    Members
    -------
    command : In, `QueueLayout`
        Quasi-static.
    begin : In
        The next word is the first of the command.
    i : In, stream of `ByteWord`
        Of the bytes that `word_bytes` says.
    bad : Out
        The entry of a list that is taken is not below `tokens`.
    list : Out, `ListWritePort`
        Entries only; they are always taken.
    operands, constants, table, rows, masks : Out, streams
    """

    def __init__(self, config: CoreConfig, bus: BusConfig):
        self.config = config
        self._bytes = word_bytes(config, bus)
        super().__init__(
            {
                "command": In(QueueLayout(Queue.LOAD, config)),
                "begin": In(1),
                "i": In(stream.Signature(ByteWord(max(self._bytes.values())))),
                "bad": Out(1),
                "list": Out(ListWritePort(config.memory.query_rows)),
                "operands": Out(stream.Signature(OperandWord(config))),
                "constants": Out(stream.Signature(ConstantWord(config))),
                "table": Out(stream.Signature(TableEntry(config))),
                "rows": Out(stream.Signature(QueryWord(config))),
                "masks": Out(stream.Signature(MaskLine(config))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        self._word = Signal(range(max(sizes.table_bytes(self.config), self._most_words())))
        self._row = Signal(range(self.config.memory.columns + 1))
        self._taken = self.i.valid & self.i.ready
        with m.If(self.begin):
            m.d.sync += [self._word.eq(0), self._row.eq(0)]
        with m.Elif(self._taken):
            m.d.sync += [
                self._word.eq(self._word + 1),
                self._row.eq(self._row + self.i.payload.last),
            ]
        with m.Switch(self.command.header.opcode):
            for kind, connect in (
                (LoadList, self._entry),
                (LoadColumns, self._operands),
                (LoadConstants, self._constants),
                (LoadTable, self._table),
                (LoadRows, self._rows),
                (LoadMasks, self._masks),
            ):
                with m.Case(kind.OPCODE):
                    connect(m)
        return m

    def _most_words(self) -> int:
        return max(self.config.query_words, self.config.memory.columns)

    def _elements(self) -> list:
        """Operands of a word; their bytes are sign-extended."""
        bits = self.config.number.operand_bits
        return [self.i.payload.data[n][:bits].as_signed() for n in range(self.config.array.lanes)]

    def _bits(self, start: int, bits: int):
        """Of the word, from byte `start` on."""
        return self.i.payload.data.as_value()[8 * start :][:bits]

    def _pass(self, m: Module, o: wiring.PureInterface) -> None:
        m.d.comb += [o.valid.eq(self.i.valid), self.i.ready.eq(o.ready)]

    def _entry(self, m: Module) -> None:
        command, token = self.command.load_list, self._bits(0, 32)
        m.d.comb += [
            self.i.ready.eq(1),
            self.list.list.eq(command.list),
            self.list.entry.eq(self._word),
            self.list.token.eq(token),
            self.list.en.eq(self.i.valid),
            self.bad.eq(self.i.valid & (token >= command.tokens)),
        ]

    def _operands(self, m: Module) -> None:
        command, o = self.command.load_columns, self.operands
        groups = Signal(self.config.local_bits + 1)
        offset = Signal(o.payload.offset.shape())
        m.d.comb += [
            groups.eq((command.columns + self.config.array.banks - 1) >> self.config.bank_bits),
            o.payload.column.eq(self._row),
            o.payload.offset.eq(offset),
        ]
        m.d.comb += [o.payload.data[n].eq(value) for n, value in enumerate(self._elements())]
        with m.If(self.begin | (self._taken & self.i.payload.last)):
            m.d.sync += offset.eq(command.base)
        with m.Elif(self._taken):
            m.d.sync += offset.eq(offset + groups)
        self._pass(m, o)

    def _constants(self, m: Module) -> None:
        o = self.constants
        m.d.comb += [
            o.payload.column.eq(self._word),
            o.payload.offset.eq(self.command.load_constants.base),
            o.payload.constants.bias.eq(self._bits(0, 32).as_signed()),
            o.payload.constants.multiplier.eq(self._bits(4, MULTIPLIER_BITS)),
            o.payload.constants.shift.eq(self._bits(6, SHIFT_BITS)),
        ]
        self._pass(m, o)

    def _table(self, m: Module) -> None:
        o, bits = self.table, self.config.number.operand_bits
        index = self._word[:bits]
        m.d.comb += [
            # The first entry is that of the most negative input.
            o.payload.index.eq(Cat(index[:-1], ~index[-1])),
            o.payload.value.eq(self._bits(0, bits)),
        ]
        self._pass(m, o)

    def _rows(self, m: Module) -> None:
        # Row slots lie behind each other.
        o = self.rows
        m.d.comb += o.payload.address.eq(self.command.load_rows.base + self._word)
        m.d.comb += [o.payload.data[n].eq(value) for n, value in enumerate(self._elements())]
        self._pass(m, o)

    def _masks(self, m: Module) -> None:
        o, piece = self.masks, 8 * self._bytes[LoadMasks]
        words = self.config.mask_words_per_row
        pieces = 8 * sizes.mask_line_bytes(self.config) // piece
        start = Signal(range(self.config.mask_lines + words))
        line = Signal(range(words + 1))
        part = Signal(range(max(2, pieces)))
        complete = Signal()
        m.d.comb += complete.eq(part == pieces - 1)
        bits = self._bits(0, piece)
        if pieces > 1:
            earlier = Signal(piece * (pieces - 1))
            bits = Cat(earlier, bits)
            with m.If(self._taken):
                m.d.sync += earlier.eq(bits[piece:])
        m.d.comb += [
            o.payload.address.eq(start + line),
            o.payload.bits.eq(bits),
            o.valid.eq(self.i.valid & complete),
            self.i.ready.eq(o.ready | ~complete),
        ]
        with m.If(self.begin):
            m.d.sync += [start.eq(self.command.load_masks.slot * words), line.eq(0), part.eq(0)]
        with m.Elif(self._taken):
            m.d.sync += part.eq(Mux(complete, 0, part + 1))
            with m.If(complete):
                m.d.sync += line.eq(line + 1)
            with m.If(self.i.payload.last):
                m.d.sync += [start.eq(start + words), line.eq(0)]
