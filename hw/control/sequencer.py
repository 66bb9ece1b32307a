"""The sequencer: commands of a program to their queues, in the order that tokens and fences ask."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, ResetInserter, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from disc.config import BusConfig, CoreConfig
from disc.program import COMMANDS, WORD_BITS, Fence, Queue
from disc.program.encoding import WORD_BYTES
from disc.program.fields import ADDRESS_BITS
from hw.control.fetch import COUNT_BITS, CommandFetch
from hw.control.layouts import CommandLayout, ProgramError, QueueLayout, QueuePort
from hw.control.tokens import TokenCounters
from hw.memory.bus import ReadPort

__all__ = ["Sequencer"]

_LEAST_DEPTH, _MOST_DEPTH = 2, 64


class Sequencer(wiring.Component):
    """Executes a program: `docs/program.md` gives the rules.

    Commands are fetched and decoded in order, each waits in its queue until the queue's earlier
    command is complete and its tokens are there, and is then offered to the queue's unit.  A fence
    lets no command behind it into a queue before all units are at rest.

    A word that is no command stops the program when all that is ahead of it is complete.  A command
    that fails, tokens that no counter can hold, and a wait that can never end stop it as soon as
    the commands in progress are complete.  The first error found is kept.

    Throughput: a command takes `512 / word_bits` cycles to fetch, and any number of queues can
    start one in the same cycle.  Latency: a command is offered `LATENCY` cycles after its last bus
    word, and in the cycle after the `done` that it waited for.

    Parameters
    ----------
    config : CoreConfig
    bus : BusConfig
    depth : int
        Commands that each queue holds.  Programs run with any; more lets queues run further ahead.

    Members
    -------
    start : In
        Begin; while `busy` it is ignored.  Tokens begin at zero.
    address, count : In
        Byte address of the program, a multiple of 64, and its commands.
    busy : Out
    done : Out
        High for one cycle when the program is complete or has stopped.
    error : Out, `ProgramError`
    error_index : Out
        Index of the command.  Both hold until the next `start`.
    started, running, blocked : Out
        A bit for each queue: a command starts; one is in progress; none is, and the next one waits
        for a token.
    read : Out, `ReadPort`
    load, vector, array, store : Out, `QueuePort`

    Raises
    ------
    ValueError
        `depth` is out of range.
    """

    LATENCY = 3

    def __init__(self, config: CoreConfig, bus: BusConfig, depth: int = 4):
        if not _LEAST_DEPTH <= depth <= _MOST_DEPTH:
            raise ValueError(f"depth: must be in [{_LEAST_DEPTH}, {_MOST_DEPTH}], got {depth}")
        self.config, self.bus, self.depth = config, bus, depth
        super().__init__(
            {
                "start": In(1),
                "address": In(ADDRESS_BITS),
                "count": In(COUNT_BITS),
                "busy": Out(1),
                "done": Out(1),
                "error": Out(ProgramError),
                "error_index": Out(COUNT_BITS),
                "started": Out(len(Queue)),
                "running": Out(len(Queue)),
                "blocked": Out(len(Queue)),
                "read": Out(ReadPort(bus)),
                **{queue.name.lower(): Out(QueuePort(queue, config)) for queue in Queue},
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.fetch = fetch = CommandFetch(self.bus)
        m.submodules.tokens = tokens = TokenCounters()
        wiring.connect(m, fetch.read, wiring.flipped(self.read))
        ports = {queue: getattr(self, queue.name.lower()) for queue in Queue}

        begin, aligned = Signal(), Signal()
        halted, refused = Signal(), Signal()  # nothing more is started, is decoded
        dispatched, total = Signal(COUNT_BITS), Signal(COUNT_BITS)
        m.d.comb += [
            begin.eq(self.start & ~self.busy),
            aligned.eq(self.address[: WORD_BYTES.bit_length() - 1] == 0),
            fetch.begin.eq(begin),
            fetch.address.eq(self.address),
            fetch.count.eq(Mux(aligned, self.count, 0)),
            fetch.stop.eq(halted | refused),
            tokens.clear.eq(begin),
        ]

        # Queues.
        running, empty = self.running, Signal(len(Queue))
        offered, valid = Signal(len(Queue)), Signal(len(Queue))
        put, room = Signal(len(Queue)), Signal(len(Queue))
        heads, indices = [], []
        for queue, port in ports.items():
            layout = QueueLayout(queue, self.config)
            entry = data.StructLayout({"command": layout.size, "index": COUNT_BITS})
            fifo = ResetInserter(begin)(SyncFIFO(width=entry.size, depth=self.depth))
            m.submodules[f"{queue.name.lower()}_queue"] = fifo
            head = Signal(entry, name=f"{queue.name.lower()}_head")
            index = Signal(COUNT_BITS, name=f"{queue.name.lower()}_index")
            signal = Signal(len(Queue), name=f"{queue.name.lower()}_signal")
            accept = Signal(name=f"{queue.name.lower()}_accept")
            m.d.comb += [
                fifo.w_data.eq(Cat(fetch.o.payload[: layout.size], dispatched)),
                fifo.w_en.eq(put[queue]),
                room[queue].eq(fifo.w_rdy),
                head.eq(fifo.r_data),
                empty[queue].eq(~fifo.r_rdy),
                port.command.payload.eq(head.command),
                port.command.valid.eq(valid[queue]),
                tokens.wait[queue].eq(port.command.payload.header.wait),
                # An offer stands, whatever happens elsewhere.
                valid[queue].eq(
                    fifo.r_rdy
                    & ~running[queue]
                    & tokens.granted[queue]
                    & (~halted | offered[queue])
                ),
                accept.eq(valid[queue] & port.command.ready),
                self.started[queue].eq(accept),
                self.blocked[queue].eq(
                    fifo.r_rdy & ~running[queue] & ~tokens.granted[queue] & ~halted
                ),
                fifo.r_en.eq(accept),
                tokens.take[queue].eq(accept),
                tokens.signal[queue].eq(signal),
                tokens.give[queue].eq(running[queue] & port.done),
            ]
            m.d.sync += offered[queue].eq(valid[queue] & ~port.command.ready)
            with m.If(accept):
                m.d.sync += [
                    running[queue].eq(1),
                    index.eq(head.index),
                    signal.eq(port.command.payload.header.signal),
                ]
            with m.Elif(port.done):
                m.d.sync += running[queue].eq(0)
            heads.append(head.index)
            indices.append(index)

        # The next command.
        verdict, target, fence = self._decode(m, fetch.o.payload)
        refuse, accept, rest = Signal(), Signal(), Signal()
        here = fetch.o.valid & self.busy & ~halted & ~refused
        legal = here & (verdict == ProgramError.NONE)
        m.d.comb += [
            rest.eq(empty.all() & ~running.any()),
            refuse.eq(here & (verdict != ProgramError.NONE)),
            accept.eq(legal & Mux(fence, rest, room.bit_select(target, 1))),
            put.eq((accept & ~fence) << target),
            fetch.o.ready.eq(accept),
        ]
        m.d.sync += [dispatched.eq(dispatched + accept), refused.eq(refused | refuse)]

        # What is wrong.  Units at rest, commands left, and none that may start or come.
        failed, stuck = Signal(len(Queue)), Signal()
        m.d.comb += [
            failed.eq(Cat(running[q] & port.done & port.failed for q, port in ports.items())),
            stuck.eq(
                self.busy
                & ~running.any()
                & ~valid.any()
                & ~empty.all()
                & ((dispatched == total) | refused | (fetch.o.valid & ~accept))
            ),
        ]
        with m.If(self.busy & ~halted):
            m.d.sync += halted.eq(failed.any() | tokens.overflow.any() | stuck)
        with m.If(self.busy & (self.error == ProgramError.NONE)):
            with m.If(failed.any()):
                m.d.sync += self.error.eq(ProgramError.FAILED)
                m.d.sync += self.error_index.eq(_lowest(failed, indices))
            with m.Elif(tokens.overflow.any()):
                m.d.sync += self.error.eq(ProgramError.OVERFLOW)
                m.d.sync += self.error_index.eq(_lowest(tokens.overflow, indices))
            with m.Elif(stuck & ~halted):
                m.d.sync += self.error.eq(ProgramError.DEADLOCK)
                m.d.sync += self.error_index.eq(_lowest(~empty, heads))
            with m.Elif(refuse):
                m.d.sync += self.error.eq(verdict), self.error_index.eq(dispatched)

        finish = Signal()
        m.d.comb += finish.eq(
            self.busy
            & fetch.idle
            & ~running.any()
            & Mux(halted, ~valid.any(), empty.all() & ((dispatched == total) | refused))
        )
        m.d.sync += self.done.eq(finish)
        with m.If(finish):
            m.d.sync += self.busy.eq(0)
        with m.If(begin):
            m.d.sync += [
                self.busy.eq(1),
                self.error.eq(Mux(aligned, ProgramError.NONE, ProgramError.ADDRESS)),
                self.error_index.eq(0),
                halted.eq(~aligned),
                refused.eq(0),
                dispatched.eq(0),
                total.eq(self.count),
            ]
        return m

    def _decode(self, m: Module, word: Value) -> tuple[Signal, Signal, Signal]:
        """Return what is wrong with a word, the queue of its command, and whether it is a fence."""
        header = data.View(CommandLayout(Fence, self.config), word[: self._header_bits])
        verdict, target, fence = Signal(ProgramError), Signal(Queue), Signal()
        known, spare, own = Signal(), Signal(), Signal()
        tokens = Signal(len(Queue))
        m.d.comb += [
            tokens.eq(header.wait | header.signal),
            fence.eq(header.opcode == Fence.OPCODE),
            own.eq(Mux(fence, tokens.any(), tokens.bit_select(target, 1))),
        ]
        with m.Switch(header.opcode):
            for kind in COMMANDS:
                with m.Case(kind.OPCODE):
                    used = CommandLayout(kind, self.config).size
                    m.d.comb += [target.eq(kind.QUEUE), known.eq(1)]
                    if used < WORD_BITS:
                        m.d.comb += spare.eq(word[used:].any())
        with m.If(word == 0):
            m.d.comb += verdict.eq(ProgramError.ZERO)
        with m.Elif(~known):
            m.d.comb += verdict.eq(ProgramError.OPCODE)
        with m.Elif(spare):
            m.d.comb += verdict.eq(ProgramError.PADDING)
        with m.Elif(own):
            m.d.comb += verdict.eq(ProgramError.TOKENS)
        return verdict, target, fence

    @property
    def _header_bits(self) -> int:
        return CommandLayout(Fence, self.config).size


def _lowest(bits: Value, values: list[Value]) -> Value:
    """Return the value that belongs to the lowest bit that is set."""
    found = values[-1]
    for bit, value in reversed(list(zip(bits, values, strict=True))[:-1]):
        found = Mux(bit, value, found)
    return found
