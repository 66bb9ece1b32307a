"""One DiSC core: executes a program on data in DRAM."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from disc.config import CoreConfig
from disc.program import Queue
from disc.program.fields import ADDRESS_BITS
from hw.control.fetch import COUNT_BITS
from hw.control.layouts import ProgramError
from hw.control.sequencer import Sequencer
from hw.counters import CoreCounters, ProgramCounters
from hw.engine import AttentionEngine
from hw.hash import matrix_layout
from hw.memory.arbiter import ReadArbiter, WriteArbiter
from hw.memory.bus import ReadPort, WritePort
from hw.memory.lists import ListBuffers, ListReadPort
from hw.memory.load import LoadUnit
from hw.units.array import ArrayUnit
from hw.units.store import StoreUnit
from hw.units.vector import VectorUnit

__all__ = ["TOP", "Core"]

TOP = "disc_core"
"""Name of the top module, in every release."""


class Core(wiring.Component):
    """Sequencer, the units of its four queues, the engine, and what they share.

    The host writes program and data to DRAM, sets `matrix`, `address` and `count`, pulses `start`,
    and finds the results in DRAM after `done`.  `docs/program.md` says what programs do.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    matrix : In
        Rows of the hash's matrix H, `hw.hash.matrix_layout`.  It must not change while `busy`.
    start : In
        Begin; while `busy` it is ignored.
    address, count : In
        Byte address of the program, a multiple of 64, and its commands.
    busy : Out
    running : Out
        A bit for each queue, load first: a command is in progress.
    done : Out
        High for one cycle when the program is complete or has stopped; all its writes have taken
        effect.
    error, error_index : Out
        `ProgramError`, and the command's index; they hold until the next `start`.
    read, write : Out
        To DRAM, `config.bus` wide.
    counters : Out, `CoreCounters`
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        super().__init__(
            {
                "matrix": In(matrix_layout(config)),
                "start": In(1),
                "address": In(ADDRESS_BITS),
                "count": In(COUNT_BITS),
                "busy": Out(1),
                "running": Out(len(Queue)),
                "done": Out(1),
                "error": Out(ProgramError),
                "error_index": Out(COUNT_BITS),
                "read": Out(ReadPort(config.bus)),
                "write": Out(WritePort(config.bus)),
                "counters": Out(CoreCounters()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        m.submodules.sequencer = sequencer = Sequencer(config, config.bus)
        m.submodules.load = load = LoadUnit(config, config.bus)
        m.submodules.vector = vector = VectorUnit(config)
        m.submodules.array = array = ArrayUnit(config)
        m.submodules.store = store = StoreUnit(config)
        m.submodules.engine = engine = AttentionEngine(config)
        units = {Queue.LOAD: load, Queue.VECTOR: vector, Queue.ARRAY: array, Queue.STORE: store}

        for name in ("start", "address", "count"):
            m.d.comb += getattr(sequencer, name).eq(getattr(self, name))
        for name in ("busy", "running", "done", "error", "error_index"):
            m.d.comb += getattr(self, name).eq(getattr(sequencer, name))
        m.d.comb += [engine.matrix.eq(self.matrix), array.matrix.eq(self.matrix)]
        for queue, unit in units.items():
            connect(m, getattr(sequencer, queue.name.lower()), unit.queue)

        self._connect_engine(m, engine, load, vector, array, store)
        self._connect_lists(m, units.values())
        self._connect_dram(m, [sequencer, *units.values()])
        self._count(m, sequencer, units, engine)
        return m

    def _connect_engine(self, m, engine, load, vector, array, store):
        for name in ("operands", "table", "masks"):
            connect(m, getattr(load, name), getattr(engine, name))
        for name in ("command", "rows"):
            connect(m, getattr(array, name), getattr(engine, name))
        for name in ("o", "sums", "dots"):
            connect(m, getattr(engine, name), getattr(array, name))
        connect(m, store.mask_read, engine.mask_read)
        connect(m, engine.mask_word, store.mask_word)
        m.d.comb += [array.engine_busy.eq(engine.busy), engine.no_rows.eq(array.no_rows)]

        # Both copies of a column's constants are written at the same time.
        constants = load.constants
        connect(m, constants, engine.constants)
        m.d.comb += [
            array.constants.payload.eq(constants.payload),
            array.constants.valid.eq(constants.valid & engine.constants.ready),
        ]

        # Loaded rows and normalised ones share the row buffer's write port, word by word in turn.
        own, turn = Signal(), Signal()
        rows = engine.queries
        with m.If(rows.valid & rows.ready):
            m.d.sync += turn.eq(own)
        m.d.comb += [
            own.eq(vector.rows.valid & ~(turn & load.rows.valid)),
            rows.payload.eq(Mux(own, vector.rows.payload.as_value(), load.rows.payload.as_value())),
            rows.valid.eq(vector.rows.valid | load.rows.valid),
            vector.rows.ready.eq(own & rows.ready),
            load.rows.ready.eq(~own & rows.ready),
        ]

    def _connect_lists(self, m, units):
        ports = [port for unit in units for port in _ports(unit, ListReadPort)]
        m.submodules.lists = lists = ListBuffers(self.config, len(ports))
        for n, port in enumerate(ports):
            connect(m, port, getattr(lists, f"read_{n}"))
        for unit in units:
            if hasattr(unit, "list_write"):
                connect(m, unit.list_write, lists.write)

    def _connect_dram(self, m, units):
        for name, signature, arbiter in (
            ("read", ReadPort, ReadArbiter),
            ("write", WritePort, WriteArbiter),
        ):
            ports = [port for unit in units for port in _ports(unit, signature)]
            merged = arbiter(self.config.bus, len(ports))
            m.submodules[f"{name}_arbiter"] = merged
            for port, own in zip(ports, merged.ports, strict=True):
                connect(m, port, own)
            connect(m, merged.memory, flipped(getattr(self, name)))

    def _count(self, m, sequencer, units, engine):
        m.submodules.program_counters = counters = ProgramCounters()
        m.d.comb += [
            counters.clear.eq(self.start & ~self.busy),
            counters.running.eq(self.busy),
            counters.engine_busy.eq(engine.busy),
            counters.engine_counters.eq(engine.counters),
            counters.read_word.eq(self.read.data.valid & self.read.data.ready),
            counters.write_word.eq(self.write.request.valid & self.write.request.ready),
            self.counters.eq(counters.counters),
        ]
        for queue, unit in units.items():
            state = getattr(counters, f"{queue.name.lower()}_state")
            m.d.comb += [
                state.started.eq(sequencer.started[queue]),
                state.busy.eq(sequencer.running[queue]),
                state.blocked.eq(sequencer.blocked[queue]),
                state.waiting_data.eq(unit.waiting_data),
                state.waiting_space.eq(unit.waiting_space),
            ]


def _ports(unit: wiring.Component, kind: type[wiring.Signature]) -> list[wiring.PureInterface]:
    """Return a unit's ports of one kind."""
    return [
        getattr(unit, name)
        for name, member in unit.signature.members.items()
        if member.is_signature and isinstance(member.signature, kind)
    ]
