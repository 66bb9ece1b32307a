"""DRAM as part of the simulated design, so that whole networks run at the simulator's speed."""

from __future__ import annotations

from amaranth.hdl import Cat, ClockSignal, Const, Instance, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In

from disc.config import BusConfig
from disc.program.fields import ADDRESS_BITS
from hw.memory.bus import ReadPort, ReadRequest, WritePort, WriteRequest

__all__ = ["DRAM_VERILOG", "SimulatedDram", "Traffic"]

DRAM_VERILOG = """
module simulated_words #(parameter BITS = 64, parameter DEPTH = 1024) (
  input clk, input load, input save, input [31:0] index, input [31:0] last,
  input [31:0] read_index, output [BITS-1:0] read_data,
  input write, input [31:0] write_index, input [BITS-1:0] write_data, input [BITS/8-1:0] enable,
  output reg [63:0] random
);
  reg [BITS-1:0] words [0:DEPTH-1];
  integer i;
  assign read_data = words[read_index];
  always @(posedge clk) begin
    random <= {$urandom, $urandom};
    if (load) $readmemh($sformatf("load_%0d.hex", index), words);
    if (save) $writememh($sformatf("save_%0d.hex", index), words, 0, last);
    if (write) for (i = 0; i < BITS / 8; i = i + 1)
      if (enable[i]) words[write_index][8*i +: 8] <= write_data[8*i +: 8];
  end
endmodule
"""
"""The array of words; files and random numbers are what Amaranth has no words for."""

_QUEUE = 64


class Traffic(data.StructLayout):
    """How memory behaves.

    A request takes `latency` cycles, and up to `spread` (a power of two less one) more.  In every
    cycle, reads, words of data and writes are held up with a probability of `stall / 256`, each by
    itself.
    """

    def __init__(self):
        super().__init__({"latency": 16, "spread": 16, "stall": 8})


class SimulatedDram(wiring.Component):
    """Answers a read and a write port: in order, one word a cycle at best.

    Parameters
    ----------
    bus : BusConfig
    depth : int
        Bus words.

    Members
    -------
    traffic : In, `Traffic`
    load, save, index, last : In
        Read words from `load_<index>.hex`, or write those up to `last` to `save_<index>.hex`, in a
        cycle.
    read, write : In
    """

    def __init__(self, bus: BusConfig, depth: int):
        self.bus, self.depth = bus, depth
        super().__init__(
            {
                "traffic": In(Traffic()),
                "load": In(1),
                "save": In(1),
                "index": In(32),
                "last": In(32),
                "read": In(ReadPort(bus)),
                "write": In(WritePort(bus)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        bus, low = self.bus, self.bus.offset_bits
        now, random = Signal(32), Signal(64)
        m.d.sync += now.eq(now + 1)
        stalled = [random.word_select(4 + n, 8) < self.traffic.stall for n in range(3)]
        due = Signal(32)
        m.d.comb += due.eq(now + self.traffic.latency + (random[:16] & self.traffic.spread))

        def queue(name: str, request, layout, stall):
            """Requests with the time at which they are due."""
            entry = data.StructLayout({"due": 32, "request": layout})
            fifo = SyncFIFOBuffered(width=entry.size, depth=_QUEUE)
            m.submodules[name] = fifo
            # `ready` may fall again: it depends on nothing that a requester does.
            m.d.comb += [
                request.ready.eq(fifo.w_rdy & ~stall),
                fifo.w_en.eq(request.valid & request.ready),
                fifo.w_data.eq(Cat(due, request.payload)),
            ]
            head = data.View(entry, fifo.r_data)
            return fifo, head.request, fifo.r_rdy & (head.due - now)[31]

        reads, wanted, may_read = queue("reads", self.read.request, ReadRequest(bus), stalled[0])
        writes, given, may_write = queue(
            "writes", self.write.request, WriteRequest(bus), stalled[1]
        )
        sent, place, data_word = Signal.like(wanted.words), Signal(32), Signal(bus.word_bits)
        o = self.read.data
        take = Signal()
        m.d.comb += [
            place.eq((wanted.address >> low) + sent),
            take.eq(may_read & ~stalled[2] & (~o.valid | o.ready)),
            reads.r_en.eq(take & (sent + 1 == wanted.words)),
        ]
        with m.If(take):
            m.d.sync += sent.eq(Mux(sent + 1 == wanted.words, 0, sent + 1))
        with m.If(~o.valid | o.ready):
            m.d.sync += [o.valid.eq(take), o.payload.eq(data_word)]

        m.d.comb += writes.r_en.eq(may_write)
        m.d.sync += self.write.done.eq(may_write)
        m.submodules.words = Instance(
            "simulated_words",
            p_BITS=bus.word_bits,
            p_DEPTH=self.depth,
            i_clk=ClockSignal(),
            i_load=self.load,
            i_save=self.save,
            i_index=self.index,
            i_last=self.last,
            i_read_index=place,
            o_read_data=data_word,
            i_write=may_write,
            i_write_index=Cat((given.address >> low)[: ADDRESS_BITS - low], Const(0, 32))[:32],
            i_write_data=given.data,
            i_enable=given.enable,
            o_random=random,
        )
        return m
