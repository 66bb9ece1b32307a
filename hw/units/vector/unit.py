"""The vector unit: executes the commands of the vector queue."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFO
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.program import Forecast, Norm, Queue, Record, sizes
from hw.control.layouts import QueueLayout, QueuePort
from hw.engine import QueryWord
from hw.memory.bus import ReadPort, WritePort
from hw.memory.lists import ListReadPort
from hw.memory.reader import LENGTH_BITS, RowReader
from hw.memory.writer import RowWriter
from hw.units.vector.moves import give_words, take_words, use_ages
from hw.units.vector.norm import NormRows
from hw.units.vector.places import RowPlace, RowPlaces, fork
from hw.units.vector.side import SideReader
from hw.vector import forecast as blocks

__all__ = ["VectorUnit"]

_KINDS = {"norm": Norm, "forecast": Forecast, "record": Record}

_ROWS_AHEAD = 16
"""Rows that are written of which some may have been asked for before the first has come."""

_STREAMS = ("x", "embedding", "last")


class VectorUnit(wiring.Component):
    """Normalises rows into the row buffer, forecasts reused tokens, records computed ones.

    One command at a time; the kinds share three readers of rows, a reader for what else they need,
    and a writer.  Rows are asked for ahead, while vectors, ratios and ages are on their way.

    Throughput: V elements a cycle, no gap between rows, as long as the bus keeps up: a row of
    `norm` is read once, one of `forecast` three times (`hold`: twice) and written once, one of
    `record` read three times and written twice; ages take a bus word a row each way.

    A forecast fails if a token was never computed, or was longer ago, or in steps further apart,
    than the ratios reach; what it has written is undefined.

    Latency, with memory that answers at once: the first word of a row is taken `LATENCY` cycles
    after the command, and as many later as bus words of vectors and other rows go first.  A
    forecast first waits for its ratios, one a cycle, and for the ages of its first token.  `done`
    comes 2 cycles after the last word of the row buffer was taken, or after memory has said that
    the last word is written.  A command without rows takes 2 cycles.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    queue : In, `QueuePort`
    list_rows : Out, `ListReadPort`
    read_x, read_embedding, read_last : Out, `ReadPort`
        Rows; `read_x` also what a forecast knows of the time before.
    read_side : Out, `ReadPort`
        Vectors, ratios, ages.
    write_rows, write_before, write_ages : Out, `WritePort`
        x of a forecast or last of a record; before and ages of a record.
    rows : Out, stream of `QueryWord`
    waiting_data : Out
        From the second cycle of a command on, as long as rows are still to be taken: the next word
        of one of the streams, or a row's ratio, is not there.  Or: a word of the vectors is not.
        Only while nothing waits for space.
    waiting_space : Out
        A word is offered at `rows` or to a write port, and is not taken.
    """

    LATENCY = RowReader.LATENCY + 5

    def __init__(self, config: CoreConfig):
        self.config = config
        bus = config.bus
        super().__init__(
            {
                "queue": In(QueuePort(Queue.VECTOR, config)),
                "list_rows": Out(ListReadPort(config.memory.query_rows)),
                **{f"read_{name}": Out(ReadPort(bus)) for name in (*_STREAMS, "side")},
                **{f"write_{name}": Out(WritePort(bus)) for name in ("rows", "before", "ages")},
                "rows": Out(stream.Signature(QueryWord(config))),
                "waiting_data": Out(1),
                "waiting_space": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self.config
        command = Signal(QueueLayout(Queue.VECTOR, config))
        opcode = command.header.opcode
        kinds = {name: Signal(name=f"is_{name}") for name in _KINDS}
        m.d.comb += [kinds[name].eq(opcode == kind.OPCODE) for name, kind in _KINDS.items()]
        is_norm, is_forecast, is_record = kinds.values()
        hold = command.forecast.hold
        aged = Signal()  # the command needs the ages of its tokens
        m.d.comb += aged.eq(is_record | (is_forecast & ~hold))

        word_bytes = config.vector.lanes * sizes.RESIDUAL_BYTES
        readers = {name: RowReader(config.bus, (word_bytes,)) for name in _STREAMS}
        m.submodules.norm = norm = NormRows(config)
        m.submodules.forecast = forecast = blocks.Forecast(config)
        m.submodules.record = record = blocks.Record(config)
        m.submodules.side = side = SideReader(config)
        m.submodules.places = places = RowPlaces(config.memory.query_rows)
        m.submodules.writer = writer = RowWriter(config.bus, word_bytes)
        m.submodules.writer_before = writer_before = RowWriter(config.bus, word_bytes)
        m.submodules.writer_ages = writer_ages = RowWriter(config.bus, sizes.AGE_BYTES)
        for name, reader in readers.items():
            m.submodules[f"reader_{name}"] = reader
            wiring.connect(m, reader.read, wiring.flipped(getattr(self, f"read_{name}")))
        wiring.connect(m, side.read, wiring.flipped(self.read_side))
        wiring.connect(m, side.multipliers, norm.multipliers)
        wiring.connect(m, side.biases, norm.biases)
        wiring.connect(m, side.ratios, forecast.load)
        wiring.connect(m, norm.rows, wiring.flipped(self.rows))
        wiring.connect(m, writer.write, wiring.flipped(self.write_rows))
        wiring.connect(m, writer_before.write, wiring.flipped(self.write_before))
        wiring.connect(m, writer_ages.write, wiring.flipped(self.write_ages))

        fields = self._fields(m, command, kinds)
        width = fields["width"]
        m.d.comb += [
            *(block.channels.eq(width) for block in (norm, forecast, record)),
            norm.epsilon.eq(command.norm.epsilon),
            norm.base.eq(command.norm.base),
            norm.shift.eq(side.shift),
            forecast.hold.eq(hold),
            side.command.eq(command),
            self.list_rows.list.eq(fields["list"]),
            self.list_rows.entry.eq(places.entry),
            self.list_rows.en.eq(places.en),
            places.token.eq(self.list_rows.token),
            places.run.payload.stride.eq(fields["stride"]),
        ]

        row_bytes = Signal(LENGTH_BITS)
        m.d.comb += row_bytes.eq(width * sizes.RESIDUAL_BYTES)
        needs = {"x": is_norm | is_record | aged, "embedding": ~is_norm, "last": ~is_norm}
        row_written = self._places(
            m,
            fields,
            row_bytes,
            aged,
            is_record,
            needs,
            readers,
            places,
            side,
            (writer, writer_before, writer_ages),
        )
        there, row_taken = take_words(m, config, kinds, hold, readers, norm, forecast, record)
        give_words(m, config.vector.lanes, is_forecast, forecast, record, writer, writer_before)
        bad = use_ages(m, is_record, side, forecast, writer_ages)

        # Rows that are to be taken, and those that are to leave.
        rows, begin, running = Signal(self.list_rows.count.shape()), Signal(), Signal()
        coming, leaving = Signal.like(rows), Signal.like(rows)
        failed = Signal()
        count = self.list_rows.count
        m.d.comb += [
            rows.eq(Mux(fields["rows"] < count, fields["rows"], count)),
            places.run.payload.rows.eq(rows),
            norm.begin.eq(begin),
            side.begin.eq(begin & (is_norm | aged)),
        ]
        with m.If(begin):
            m.d.sync += [coming.eq(rows), leaving.eq(rows), failed.eq(0)]
        with m.Else():
            m.d.sync += [
                coming.eq(coming - row_taken),
                leaving.eq(leaving - Mux(is_norm, norm.row_done, row_written)),
                failed.eq(failed | bad),
            ]
        idle = writer.idle & writer_before.idle & writer_ages.idle
        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.queue.command.ready.eq(1)
                with m.If(self.queue.command.valid):
                    m.d.sync += command.eq(self.queue.command.payload)
                    m.next = "BEGIN"
            with m.State("BEGIN"):
                m.d.comb += places.run.valid.eq(rows != 0)
                with m.If(rows == 0):
                    m.d.sync += failed.eq(0)
                    m.next = "DONE"
                with m.Elif(places.run.ready):
                    m.d.comb += begin.eq(1)
                    m.next = "RUN"
            with m.State("RUN"):
                m.d.comb += running.eq(1)
                with m.If((leaving == 0) & idle):
                    m.next = "DONE"
            with m.State("DONE"):
                m.d.comb += [self.queue.done.eq(1), self.queue.failed.eq(failed)]
                m.next = "IDLE"

        requests = (self.rows, *(one.write.request for one in (writer, writer_before, writer_ages)))
        m.d.comb += [
            self.waiting_space.eq(Cat(one.valid & ~one.ready for one in requests).any()),
            self.waiting_data.eq(
                running & ~self.waiting_space & (((coming != 0) & ~there) | norm.missing)
            ),
        ]
        return m

    def _fields(self, m: Module, command, kinds) -> dict[str, Signal]:
        """Return what a command's kind calls differently, and what all kinds have."""
        forecast = command.forecast
        names = ("list", "rows", "stride", "width")
        found = {name: Signal(forecast[name].shape(), name=name) for name in names}
        bases = {
            name: Signal(forecast.x.shape(), name=f"{name}_base")
            for name in (*_STREAMS, "o", "before", "ages")
        }
        plans: dict[str, dict[str, str]] = {
            "norm": {"x": "dram"},
            "forecast": {"x": "before", "embedding": "embedding", "last": "last", "o": "x"},
            "record": {
                "x": "x",
                "embedding": "embedding",
                "last": "last",
                "o": "last",
                "before": "before",
                "ages": "ages",
            },
        }
        for kind, plan in plans.items():
            with m.If(kinds[kind]):
                m.d.comb += [found[name].eq(command[kind][name]) for name in names]
                m.d.comb += [bases[name].eq(command[kind][field]) for name, field in plan.items()]
        return found | {f"{name}_base": base for name, base in bases.items()}

    def _places(
        self, m, fields, row_bytes, aged, is_record, needs, readers, places, side, writers
    ) -> Signal:
        """Give rows to those that read and write them; return when one is written."""
        place = places.o.payload
        m.submodules.ahead = ahead = SyncFIFO(width=RowPlace().size, depth=_ROWS_AHEAD)
        outputs = [(side.tokens.valid, side.tokens.ready, aged)]
        m.d.comb += [side.tokens.payload.eq(place.token), ahead.w_data.eq(place)]
        for name, reader in readers.items():
            row = reader.rows
            m.d.comb += [
                row.payload.address.eq(fields[f"{name}_base"] + place.offset),
                row.payload.length.eq(row_bytes),
            ]
            outputs.append((row.valid, row.ready, needs[name]))
        outputs.append((ahead.w_en, ahead.w_rdy, needs["last"]))
        fork(m, places.o, outputs, name="read")

        written = stream.Signature(RowPlace()).create()
        m.d.comb += [
            written.valid.eq(ahead.r_rdy),
            written.payload.eq(ahead.r_data),
            ahead.r_en.eq(written.ready),
        ]
        writer, before, ages = writers
        place = written.payload
        m.d.comb += [
            writer.rows.payload.address.eq(fields["o_base"] + place.offset),
            writer.rows.payload.length.eq(row_bytes),
            before.rows.payload.address.eq(fields["before_base"] + place.offset),
            before.rows.payload.length.eq(row_bytes),
            ages.rows.payload.address.eq(
                fields["ages_base"] + sizes.HEADER_BYTES + place.token * sizes.AGE_BYTES
            ),
            ages.rows.payload.length.eq(sizes.AGE_BYTES),
        ]
        wanted = (1, is_record, is_record)
        fork(
            m,
            written,
            [(w.rows.valid, w.rows.ready, one) for w, one in zip(writers, wanted, strict=True)],
            name="write",
        )
        return written.ready
