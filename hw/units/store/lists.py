"""Two lists of tokens on their way to DRAM."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.program import sizes
from disc.program.fields import ADDRESS_BITS, TOKEN_BITS
from hw.memory.bus import WritePort

__all__ = ["ListEntry", "TokenLists"]

_OUTSTANDING_BITS = 8


class ListEntry(data.StructLayout):
    """A token, and whether it goes to the second list."""

    def __init__(self):
        super().__init__({"token": TOKEN_BITS, "second": 1})


class TokenLists(wiring.Component):
    """Writes two lists side by side: entries as they come, both lengths at the end.

    Entries are collected to bus words, a word for each list; they are aligned, so none straddles.

    Throughput: an entry is taken in every cycle unless a word waits for the write port.  `finish`
    takes four more words at most: what has been collected, and the lengths.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    begin : In
        Start new lists at `first_base` and `second_base`.
    first_base, second_base : In
        Byte addresses, multiples of an entry; they hold until the lists are complete.
    i : In, stream of `ListEntry`
    finish : In
        One cycle, after the last entry was taken.
    first_count, second_count : Out
        Entries taken.
    write : Out, `WritePort`
    idle : Out
        Lists are complete, and memory has said so.
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        super().__init__(
            {
                "begin": In(1),
                "first_base": In(ADDRESS_BITS),
                "second_base": In(ADDRESS_BITS),
                "i": In(stream.Signature(ListEntry())),
                "finish": In(1),
                "first_count": Out(TOKEN_BITS + 1),
                "second_count": Out(TOKEN_BITS + 1),
                "write": Out(WritePort(config.bus)),
                "idle": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bus = self.config.bus
        entry = sizes.ENTRY_BYTES.bit_length() - 1
        lanes, low = bus.word_bytes // sizes.ENTRY_BYTES, bus.offset_bits
        word = data.StructLayout(
            {
                "place": ADDRESS_BITS - low,
                "entries": data.ArrayLayout(TOKEN_BITS + 1, lanes),
                "enable": lanes,
            }
        )

        def lane_of(address):
            return address[entry:low] if lanes > 1 else 0

        bases, counts = (self.first_base, self.second_base), (self.first_count, self.second_count)
        held = [Signal(word, name=f"held_{n}") for n in range(2)]
        lane = [Signal(range(max(2, lanes)), name=f"lane_{n}") for n in range(2)]

        # What is written is the held word with an entry, the held word as it is, or a length.
        second, entering, heading = Signal(), Signal(), Signal()
        here, out = Signal(word), Signal(word)
        where, base, count = Signal(lane[0].shape()), Signal(ADDRESS_BITS), Signal(TOKEN_BITS + 1)
        m.d.comb += [
            here.eq(Mux(second, *held[::-1])),
            where.eq(Mux(second, *lane[::-1])),
            base.eq(Mux(second, *bases[::-1])),
            count.eq(Mux(second, *counts[::-1])),
            out.eq(here),
        ]
        with m.If(entering):
            m.d.comb += [
                out.entries[where].eq(self.i.payload.token),
                out.enable.bit_select(where, 1).eq(1),
            ]
        with m.If(heading):
            m.d.comb += [
                out.place.eq(base >> low),
                out.enable.eq(1 << lane_of(base)),
                *(value.eq(count) for value in out.entries),
            ]

        pending, free, put = Signal(), Signal(), Signal()
        request, outstanding = Signal(word), Signal(_OUTSTANDING_BITS)
        emit = Signal()
        m.d.comb += [
            self.write.request.valid.eq(pending & ~outstanding.all()),
            self.write.request.payload.address.eq(request.place << low),
            emit.eq(self.write.request.valid & self.write.request.ready),
            free.eq(~pending | emit),
        ]
        for n in range(lanes):
            part = slice(n * sizes.ENTRY_BYTES, (n + 1) * sizes.ENTRY_BYTES)
            m.d.comb += [
                self.write.request.payload.data.word_select(n, 8 * sizes.ENTRY_BYTES).eq(
                    request.entries[n]
                ),
                self.write.request.payload.enable[part].eq(
                    request.enable[n].replicate(sizes.ENTRY_BYTES)
                ),
            ]
        m.d.sync += outstanding.eq(outstanding + emit - self.write.done)
        with m.If(free):
            m.d.sync += pending.eq(put)
        with m.If(put):
            m.d.sync += request.eq(out)

        with m.FSM():
            with m.State("ENTRIES"):
                full = Signal()
                m.d.comb += [
                    second.eq(self.i.payload.second),
                    self.i.ready.eq(free),
                    entering.eq(self.i.valid & free),
                    full.eq(where == lanes - 1),
                    put.eq(entering & full),
                    self.idle.eq(~pending & (outstanding == 0) & ~self.finish),
                ]
                for n in range(2):
                    with m.If(entering & (second == n)):
                        m.d.sync += [
                            counts[n].eq(counts[n] + 1),
                            lane[n].eq(Mux(full, 0, lane[n] + 1)),
                            held[n].eq(out),
                        ]
                        with m.If(full):
                            m.d.sync += [held[n].place.eq(out.place + 1), held[n].enable.eq(0)]
                with m.If(self.finish):
                    m.next = "REST_0"
            for n in range(2):
                with m.State(f"REST_{n}"):
                    m.d.comb += [second.eq(n), put.eq(free & held[n].enable.any())]
                    with m.If(free):
                        m.next = f"LENGTH_{n}"
                with m.State(f"LENGTH_{n}"):
                    m.d.comb += [second.eq(n), heading.eq(1), put.eq(free)]
                    with m.If(free):
                        m.next = "REST_1" if n == 0 else "ENTRIES"
        with m.If(self.begin):
            for n in range(2):
                start = Signal(ADDRESS_BITS, name=f"start_{n}")
                m.d.comb += start.eq(bases[n] + sizes.LIST_HEADER_BYTES)
                m.d.sync += [
                    held[n].place.eq(start >> low),
                    held[n].enable.eq(0),
                    lane[n].eq(lane_of(start)),
                    counts[n].eq(0),
                ]
        return m
