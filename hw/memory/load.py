"""The load unit: executes the commands of the load queue."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
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
from hw.array.column_constants import ConstantWord
from hw.array.distributor import OperandWord
from hw.control.layouts import QueueLayout, QueuePort
from hw.engine import QueryWord
from hw.masks.controller import MaskLine
from hw.memory.address import RowAddresses
from hw.memory.bus import ReadPort
from hw.memory.deliver import Deliverer, word_bytes
from hw.memory.lists import ListReadPort, ListWritePort
from hw.memory.reader import READ_DEPTH, RowReader
from hw.vector.lookup import TableEntry

__all__ = ["LoadUnit"]


class LoadUnit(wiring.Component):
    """Reads rows from DRAM into the core's memories, one command at a time.

    Every command is one run of rows, or two (a list's length and its entries), read by one
    `RowReader` whose words are as wide as what they are for.

    Throughput: bus words at the rate of the bus, or a word a cycle where words are smaller (list
    entries 4 bytes, table entries 1).  Latency: `LATENCY` cycles from a command's start to its
    first word, besides memory's (a list: once more for its entries); `done` comes 2 cycles after
    the last word was taken, so whoever then starts finds it in its memory.

    An entry of a list that is not below `tokens` fails the command.  That a list names a token
    twice is not noticed.

    Parameters
    ----------
    config : CoreConfig
    bus : BusConfig
    depth : int
        As for `RowReader`.

    Members
    -------
    queue : In, `QueuePort`
    read : Out, `ReadPort`
    list : Out, `ListReadPort`
    list_write : Out, `ListWritePort`
    operands, constants, table, rows, masks : Out, streams
        Of `OperandWord`, `ConstantWord`, `TableEntry`, `QueryWord`, `MaskLine`.
    waiting_data, waiting_space : Out
        No word has come from DRAM; one has, and its memory does not take it.
    """

    LATENCY = RowReader.LATENCY + 5

    def __init__(self, config: CoreConfig, bus: BusConfig, depth: int = READ_DEPTH):
        self.config, self.bus, self.depth = config, bus, depth
        by_kind = word_bytes(config, bus)
        self._widths = sorted(set(by_kind.values()))
        self._size = {kind: self._widths.index(width) for kind, width in by_kind.items()}
        entries = config.memory.query_rows
        super().__init__(
            {
                "queue": In(QueuePort(Queue.LOAD, config)),
                "read": Out(ReadPort(bus)),
                "list": Out(ListReadPort(entries)),
                "list_write": Out(ListWritePort(entries)),
                "operands": Out(stream.Signature(OperandWord(config))),
                "constants": Out(stream.Signature(ConstantWord(config))),
                "table": Out(stream.Signature(TableEntry(config))),
                "rows": Out(stream.Signature(QueryWord(config))),
                "masks": Out(stream.Signature(MaskLine(config))),
                "waiting_data": Out(1),
                "waiting_space": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        most_rows = max(self.config.memory.query_rows, self.config.memory.columns)
        m.submodules.reader = reader = RowReader(self.bus, self._widths, self.depth)
        m.submodules.addresses = addresses = RowAddresses(most_rows)
        m.submodules.deliverer = deliverer = Deliverer(self.config, self.bus)
        wiring.connect(m, reader.read, wiring.flipped(self.read))
        wiring.connect(m, addresses.rows, reader.rows)
        for name in ("operands", "constants", "table", "rows", "masks"):
            wiring.connect(m, getattr(deliverer, name), wiring.flipped(getattr(self, name)))
        command = Signal(QueueLayout(Queue.LOAD, self.config))
        m.d.comb += [
            deliverer.command.eq(command),
            deliverer.i.payload.eq(reader.o.payload),
            self.list.entry.eq(addresses.entry),
            self.list.en.eq(addresses.en),
            addresses.token.eq(self.list.token),
        ]

        rows = Signal(addresses.run.payload.rows.shape())  # that have not come yet
        begun = Signal()
        row_done = Signal()
        m.d.comb += [
            begun.eq(addresses.run.valid & addresses.run.ready),
            row_done.eq(reader.o.valid & reader.o.ready & reader.o.payload.last),
        ]
        with m.If(begun):
            m.d.sync += rows.eq(addresses.run.payload.rows)
        with m.Elif(row_done):
            m.d.sync += rows.eq(rows - 1)

        second = Signal()  # run of a list: its entries
        length, count = Signal(32), Signal(self.list.count.shape())
        bad = Signal()
        with m.If(deliverer.bad):
            m.d.sync += bad.eq(1)
        is_list = command.header.opcode == LoadList.OPCODE
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.queue.command.ready.eq(1)
                with m.If(self.queue.command.valid):
                    m.d.sync += [command.eq(self.queue.command.payload), second.eq(0), bad.eq(0)]
                    m.next = "BEGIN"
            with m.State("BEGIN"):
                m.d.comb += [addresses.run.valid.eq(1), deliverer.begin.eq(1)]
                with m.If(begun):
                    m.next = "DELIVER"
                    with m.If(is_list & ~second):
                        m.next = "LENGTH"
            with m.State("LENGTH"):
                m.d.comb += [reader.o.ready.eq(1), self.waiting_data.eq(~reader.o.valid)]
                m.d.sync += length.eq(reader.o.payload.data.as_value()[:32])
                with m.If(row_done):
                    m.next = "COUNT"
            with m.State("COUNT"):
                m.d.sync += [count.eq(self._entries(m, command.load_list, length)), second.eq(1)]
                m.next = "BEGIN"
            with m.State("DELIVER"):
                m.d.comb += [
                    deliverer.i.valid.eq(reader.o.valid),
                    reader.o.ready.eq(deliverer.i.ready),
                    self.waiting_data.eq((rows != 0) & ~reader.o.valid),
                    self.waiting_space.eq(reader.o.valid & ~reader.o.ready),
                ]
                with m.If(rows == 0):
                    m.next = "DONE"
            with m.State("DONE"):
                m.d.comb += [self.queue.done.eq(1), self.queue.failed.eq(bad)]
                m.next = "IDLE"

        m.d.comb += [
            *(
                getattr(self.list_write, name).eq(getattr(deliverer.list, name))
                for name in ("list", "entry", "token", "en")
            ),
            self.list_write.count.eq(count),
            self.list_write.set.eq(begun & second),
        ]
        m.d.comb += reader.size.eq(self._plan(m, command, addresses.run.payload, second, count))
        return m

    def _entries(self, m: Module, command, length) -> Signal:
        """Return how many entries of a list there are for the buffer."""
        there, wanted = Signal(32), Signal(command.tokens.shape())
        found = Signal(self.list.count.shape())
        m.d.comb += [
            there.eq(Mux(length > command.first, length - command.first, 0)),
            wanted.eq(Mux(command.tokens > command.first, command.tokens - command.first, 0)),
        ]
        m.d.comb += found.eq(command.rows)
        with m.If((there < command.rows) & (there <= wanted)):
            m.d.comb += found.eq(there)
        with m.Elif(wanted < command.rows):
            m.d.comb += found.eq(wanted)
        return found

    def _plan(self, m: Module, command, run, second, count) -> Signal:
        """Say which rows a command reads; return how wide the words are to be."""
        config, size = self.config, Signal(range(len(self._widths)))
        listed = Signal(self.list.count.shape())
        mask_bytes = Signal(run.length.shape())
        columns = command.load_masks.columns
        groups = (columns + config.array.banks - 1) >> config.bank_bits
        bits = config.memory.mask_word_bits
        words = (groups + bits - 1) >> (bits.bit_length() - 1)
        m.d.comb += mask_bytes.eq(words * sizes.mask_line_bytes(config))

        def cut(rows):
            """No more rows than the list has."""
            return Mux(rows < listed, rows, listed)

        plans = {
            LoadList: {"rows": 1, "length": sizes.LIST_HEADER_BYTES},
            LoadColumns: {"rows": command.load_columns.columns},
            LoadConstants: {
                "rows": 1,
                "length": command.load_constants.columns * sizes.CONSTANT_BYTES,
            },
            LoadTable: {"rows": 1, "length": sizes.table_bytes(config)},
            LoadRows: {"rows": cut(command.load_rows.rows), "gather": 1},
            LoadMasks: {
                "rows": Mux(command.load_masks.single, 1, cut(command.load_masks.rows)),
                "length": mask_bytes,
                "stride": command.load_masks.stride,
                "gather": ~command.load_masks.single,
            },
        }
        for kind in (LoadColumns, LoadRows):
            fields = command[kind.NAME]
            plans[kind] |= {"length": fields.width, "stride": fields.stride}
        m.d.comb += listed.eq(self.list.count)
        with m.Switch(command.header.opcode):
            for kind, plan in plans.items():
                with m.Case(kind.OPCODE):
                    m.d.comb += [
                        size.eq(self._size[kind]),
                        run.base.eq(command[kind.NAME].dram),
                        *(run[name].eq(value) for name, value in plan.items()),
                    ]
                    if kind in (LoadRows, LoadMasks):
                        m.d.comb += self.list.list.eq(command[kind.NAME].list)
        with m.If(second):
            m.d.comb += [
                run.rows.eq(count != 0),
                run.base.eq(
                    command.load_list.dram
                    + sizes.LIST_HEADER_BYTES
                    + command.load_list.first * sizes.ENTRY_BYTES
                ),
                run.length.eq(count * sizes.ENTRY_BYTES),
            ]
        return size
