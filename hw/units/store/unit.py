"""The store unit: executes the commands of the store queue."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.program import Queue, Select, sizes
from disc.program.fields import ADDRESS_BITS
from hw.control.layouts import QueueLayout, QueuePort
from hw.masks.controller import MaskLine
from hw.memory.address import RowAddresses
from hw.memory.bus import ReadPort, WritePort
from hw.memory.lists import ListReadPort
from hw.memory.writer import RowWriter
from hw.units.store.masks import MaskRows
from hw.units.store.selection import Selection

__all__ = ["StoreUnit"]

_COPIES = 32
"""Pieces of the reference that may be on their way; memory may take about as many cycles."""


class StoreUnit(wiring.Component):
    """Writes mask rows to DRAM, and selects tokens, one command at a time.

    `store_masks` takes `MASKS_LATENCY` cycles and one for each line of the mask memory, or for each
    word of the bus if they are more.

    `select` takes `SELECT_LATENCY` cycles and one for each selector word.  A patch's pixel row, a
    piece, starts a word; so a latent is scored at `selector.pixels` values a cycle, if those divide
    the piece.  With `update` and tokens selected it takes `COPY_LATENCY` more, and one for each
    token up to the last that is not selected and for each bus word that a copied piece touches.

    All this with memory that takes and answers at once, and as long as reads keep up: where pieces
    are no whole number of selector words, each is a request of its own, and one that straddles two
    bus words may take a cycle more.

    A value that leaves `selector.latent_bits` fails `select`; lists and reference are then
    undefined.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    queue : In, `QueuePort`
    list_masks : Out, `ListReadPort`
        Tokens of mask rows.
    mask_read : Out, stream of line addresses
    mask_word : In, stream of `MaskLine`
        Lines of the mask memory in the order in which they were asked for.
    read_latent, read_reference, read_previous : Out, `ReadPort`
    write_rows, write_lists : Out, `WritePort`
        Mask rows and patches; lists.
    waiting_data : Out
        There is no word for what waits for one: the writer of mask rows or patches, until the
        command's last, or the selector, from its start to its last word.
    waiting_space : Out
        The writer does not take its word, or has taken all and waits for its write port; or the
        selector takes none, or has taken all, while a word of a list waits for its write port.
        A cycle is never both.
    """

    MASKS_LATENCY = 8
    SELECT_LATENCY = 24
    COPY_LATENCY = 15

    def __init__(self, config: CoreConfig):
        self.config = config
        bus = config.bus
        super().__init__(
            {
                "queue": In(QueuePort(Queue.STORE, config)),
                "list_masks": Out(ListReadPort(config.memory.query_rows)),
                "mask_read": Out(stream.Signature(MaskLine(config)["address"].shape)),
                "mask_word": In(stream.Signature(MaskLine(config))),
                "read_latent": Out(ReadPort(bus)),
                "read_reference": Out(ReadPort(bus)),
                "read_previous": Out(ReadPort(bus)),
                "write_rows": Out(WritePort(bus)),
                "write_lists": Out(WritePort(bus)),
                "waiting_data": Out(1),
                "waiting_space": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        command = Signal(QueueLayout(Queue.STORE, config))
        m.submodules.writer = writer = RowWriter(config.bus, config.bus.word_bytes)
        m.submodules.addresses = addresses = RowAddresses(config.memory.query_rows)
        m.submodules.masks = masks = MaskRows(config)
        m.submodules.selection = selection = Selection(config)
        m.submodules.places = places = SyncFIFO(width=ADDRESS_BITS, depth=_COPIES)
        wiring.connect(m, writer.write, wiring.flipped(self.write_rows))
        wiring.connect(m, masks.mask_read, wiring.flipped(self.mask_read))
        wiring.connect(m, wiring.flipped(self.mask_word), masks.mask_word)
        for name in ("read_latent", "read_reference", "read_previous", "write_lists"):
            wiring.connect(m, getattr(selection, name), wiring.flipped(getattr(self, name)))
        m.d.comb += [
            selection.command.eq(command.select),
            selection.places.ready.eq(places.w_rdy),
            places.w_en.eq(selection.places.valid),
            places.w_data.eq(selection.places.payload),
        ]
        rows = self._plan(m, command.store_masks, addresses, masks)

        # Rows of one of the two go to the writer.
        copying, left = Signal(), Signal(selection.pieces.shape())
        word, row, row_done = Signal(), Signal(), Signal()
        with m.If(copying):
            m.d.comb += [
                writer.rows.valid.eq(places.r_rdy),
                writer.rows.payload.address.eq(places.r_data),
                writer.rows.payload.length.eq(selection.piece),
                places.r_en.eq(writer.rows.ready),
                writer.i.valid.eq(selection.words.valid),
                writer.i.payload.eq(selection.words.payload),
                selection.words.ready.eq(writer.i.ready),
            ]
        with m.Else():
            m.d.comb += [
                writer.rows.valid.eq(addresses.rows.valid),
                writer.rows.payload.eq(addresses.rows.payload),
                addresses.rows.ready.eq(writer.rows.ready),
                writer.i.valid.eq(masks.o.valid),
                writer.i.payload.eq(masks.o.payload),
                masks.o.ready.eq(writer.i.ready),
            ]
        m.d.comb += [
            word.eq(writer.i.valid),
            row.eq(writer.rows.valid),
            row_done.eq(writer.rows.valid & writer.rows.ready),
        ]
        with m.If(row_done):
            m.d.sync += left.eq(left - 1)

        writing, written, blocked = Signal(), Signal(), Signal()
        m.d.comb += [
            written.eq((left == 0) & writer.idle),
            self.waiting_data.eq((writing & (left != 0) & ~(word & row)) | selection.waiting_data),
            self.waiting_space.eq((writing & blocked) | selection.waiting_space),
        ]
        with m.If(left != 0):
            m.d.comb += blocked.eq(word & row & ~writer.i.ready)
        with m.Else():
            request = self.write_rows.request
            m.d.comb += blocked.eq(request.valid & ~request.ready)
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.queue.command.ready.eq(1)
                with m.If(self.queue.command.valid):
                    m.d.sync += command.eq(self.queue.command.payload)
                    m.next = "DECODE"
            with m.State("DECODE"):
                with m.If(command.header.opcode == Select.OPCODE):
                    m.d.comb += selection.begin.eq(1)
                    m.next = "SELECT"
                with m.Else():
                    m.d.comb += addresses.run.valid.eq(1)
                    with m.If(addresses.run.ready):
                        m.d.comb += masks.begin.eq(1)
                        m.d.sync += left.eq(rows)
                        m.next = "WRITE"
            with m.State("SELECT"), m.If(selection.done):
                m.d.sync += left.eq(selection.pieces)
                m.next = "WRITE"
            with m.State("WRITE"):
                m.d.comb += [
                    writing.eq(1),
                    copying.eq(command.header.opcode == Select.OPCODE),
                ]
                with m.If(written):
                    m.next = "DONE"
            with m.State("DONE"):
                m.d.comb += [
                    self.queue.done.eq(1),
                    self.queue.failed.eq(
                        (command.header.opcode == Select.OPCODE) & selection.failed
                    ),
                ]
                m.next = "IDLE"
        return m

    def _plan(self, m: Module, command, addresses, masks) -> Signal:
        """Say which mask rows are to be written; return how many."""
        config = self.config
        rows, words = Signal(self.list_masks.count.shape()), Signal(masks.words.shape())
        groups = (command.columns + config.array.banks - 1) >> config.bank_bits
        bits = config.memory.mask_word_bits
        m.d.comb += [
            self.list_masks.list.eq(command.list),
            self.list_masks.entry.eq(addresses.entry),
            self.list_masks.en.eq(addresses.en),
            addresses.token.eq(self.list_masks.token),
            words.eq((groups + bits - 1) >> (bits.bit_length() - 1)),
            masks.slot.eq(command.slot),
            masks.words.eq(words),
            masks.rows.eq(rows),
            addresses.run.payload.rows.eq(rows),
            addresses.run.payload.base.eq(command.dram),
            addresses.run.payload.stride.eq(command.stride),
            addresses.run.payload.length.eq(words * sizes.mask_line_bytes(config)),
            addresses.run.payload.gather.eq(~command.single),
        ]
        with m.If(command.single):
            m.d.comb += rows.eq(1)
        with m.Elif(command.rows < self.list_masks.count):
            m.d.comb += rows.eq(command.rows)
        with m.Else():
            m.d.comb += rows.eq(self.list_masks.count)
        return rows
