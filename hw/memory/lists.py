"""List buffers: the tokens of the row tiles that commands work on."""

from __future__ import annotations

from amaranth.hdl import Array, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from disc.config import MAX_MEMORY_WORDS, CoreConfig
from disc.program.access import LISTS
from disc.program.fields import TOKEN_BITS
from hw.sram import Sram

__all__ = ["ListBuffers", "ListReadPort", "ListWritePort"]


class ListReadPort(wiring.Signature):
    """Reads entries, seen from the reader: `token` follows by one cycle and holds without `en`.

    `count`, the entries of the buffer `list`, follows at once.
    """

    def __init__(self, entries: int):
        super().__init__(
            {
                "list": Out(range(LISTS)),
                "entry": Out(range(max(2, entries))),
                "en": Out(1),
                "token": In(TOKEN_BITS),
                "count": In(range(entries + 1)),
            }
        )


class ListWritePort(wiring.Signature):
    """Writes an entry with `en`, and the number of entries with `set`."""

    def __init__(self, entries: int):
        super().__init__(
            {
                "list": Out(range(LISTS)),
                "entry": Out(range(max(2, entries))),
                "token": Out(TOKEN_BITS),
                "en": Out(1),
                "count": Out(range(entries + 1)),
                "set": Out(1),
            }
        )


class ListBuffers(wiring.Component):
    """`LISTS` buffers of `memory.query_rows` tokens, with a read port for every queue.

    Queues read different entries in the same cycle, so each has a copy of the memory.

    Parameters
    ----------
    config : CoreConfig
    readers : int
        Read ports, called `read_0` and so on.

    Members
    -------
    write : In, `ListWritePort`
    read_<n> : In, `ListReadPort`

    Raises
    ------
    ValueError
        The buffers do not fit into one memory.
    """

    def __init__(self, config: CoreConfig, readers: int):
        if LISTS * config.memory.query_rows > MAX_MEMORY_WORDS:
            raise ValueError(
                f"memory.query_rows: must be at most {MAX_MEMORY_WORDS // LISTS} for {LISTS} list "
                f"buffers, got {config.memory.query_rows}"
            )
        self.entries, self.readers = config.memory.query_rows, readers
        super().__init__(
            {
                "write": In(ListWritePort(self.entries)),
                **{f"read_{n}": In(ListReadPort(self.entries)) for n in range(readers)},
            }
        )

    def elaborate(self, platform):
        m = Module()
        write = self.write
        counts = Array(Signal(range(self.entries + 1), name=f"count_{n}") for n in range(LISTS))
        with m.If(write.set):
            m.d.sync += counts[write.list].eq(write.count)
        # Buffers lie behind each other, so that no entry is lost where they are no power of two.
        depth = LISTS * self.entries

        def place(port):
            address = Signal(range(depth))
            with m.Switch(port.list):
                for n in range(LISTS):
                    with m.Case(n):
                        m.d.comb += address.eq(port.entry + n * self.entries)
            return address

        where = place(write)
        for n in range(self.readers):
            port = getattr(self, f"read_{n}")
            m.submodules[f"tokens_{n}"] = tokens = Sram(TOKEN_BITS, depth)
            m.d.comb += [
                tokens.write_address.eq(where),
                tokens.write_data.eq(write.token),
                tokens.write_en.eq(write.en),
                tokens.read_address.eq(place(port)),
                tokens.read_en.eq(port.en),
                port.token.eq(tokens.read_data),
                port.count.eq(counts[port.list]),
            ]
        return m
