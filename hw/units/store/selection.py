"""Selection of tokens: reads the latents, scores, writes the lists, and says what to copy."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.program import Change, Queue, sizes
from disc.program.fields import ADDRESS_BITS, TOKEN_BITS
from hw.control.layouts import QueueLayout
from hw.memory.bus import ReadPort, WritePort
from hw.memory.reader import READ_DEPTH, RowReader
from hw.units.store.lists import TokenLists
from hw.units.store.patches import PIECE_BITS, PatchPieces, image_bits, line_bits
from hw.units.store.requests import Stretch, StretchRequests, chunk_bytes
from hw.units.store.selector import MAX_CHANNELS, MAX_PATCH, TokenSelector

__all__ = ["Selection"]

_LATENTS = ("latent", "reference", "previous")


class Selection(wiring.Component):
    """Executes `select` but for the writing of patches.

    A latent is read as a sequence of pieces, the pixel rows of its patches, one behind the other
    without a gap.  Where a piece is a whole number of selector words, a pixel row of the image is
    one request of the reader; else each piece is one, since its last word is filled up with zeros,
    which add nothing to a score.

    The list of selected tokens is read back for the copy: to keep a bit of each token would take
    more memory than all else here.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    begin : In
        Start on `command`, which holds until the pieces have been copied.
    command : In, layout of `Select`
    done : Out
        High for one cycle: both lists are complete in DRAM.  Pieces to copy follow.
    failed : Out
        A value left `selector.latent_bits`; it holds from `done` on.
    pieces, piece : Out
        How many follow, and the bytes of each; they hold from `done` on.
    places : Out, stream of byte addresses
        Where the pieces go.
    words : Out, stream of [bus bytes] bytes
        The pieces; each starts a word.
    read_latent, read_reference, read_previous : Out, `ReadPort`
    write_lists : Out, `WritePort`
    waiting_data, waiting_space : Out
        As of `StoreUnit`, until `done`.
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        bus = config.bus
        super().__init__(
            {
                "begin": In(1),
                "command": In(QueueLayout(Queue.STORE, config)["select"].shape),
                "done": Out(1),
                "failed": Out(1),
                "pieces": Out(range(MAX_PATCH * config.selector.max_width**2 + 1)),
                "piece": Out(PIECE_BITS),
                "places": Out(stream.Signature(ADDRESS_BITS)),
                "words": Out(stream.Signature(data.ArrayLayout(8, bus.word_bytes))),
                **{f"read_{name}": Out(ReadPort(bus)) for name in _LATENTS},
                "write_lists": Out(WritePort(bus)),
                "waiting_data": Out(1),
                "waiting_space": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, command = self.config, self.command
        m.submodules.selector = selector = TokenSelector(config)
        m.submodules.lists = lists = TokenLists(config)
        m.submodules.patches = patches = PatchPieces(config)
        readers, requests = self._readers(m)
        wiring.connect(m, lists.write, wiring.flipped(self.write_lists))

        # Sizes follow from the command within two cycles.
        values = Signal(range(MAX_PATCH * MAX_CHANNELS + 1))
        beats, whole = self._beats(m, values)
        line, lines = Signal(line_bits(config)), Signal(Stretch(config)["runs"].shape)
        row = Signal(image_bits(config))
        m.d.sync += [
            values.eq(command.patch * command.channels),
            lines.eq(command.patch * command.grid_rows),
            line.eq(self.piece * command.grid_columns),
            row.eq(line * command.patch),
        ]
        m.d.comb += [
            self.piece.eq(values * sizes.LATENT_BYTES),
            self.waiting_space.eq(
                self.write_lists.request.valid
                & ~self.write_lists.request.ready
                & ~selector.pixels.ready
            ),
        ]

        scoring, copying = Signal(), Signal()  # copying: until the next command
        second_difference = command.mode == Change.SECOND_DIFFERENCE
        m.d.comb += [
            selector.commands.payload.rows.eq(command.grid_rows),
            selector.commands.payload.columns.eq(command.grid_columns),
            selector.commands.payload.patch.eq(command.patch),
            selector.commands.payload.beats.eq(beats),
            selector.commands.payload.mode.eq(command.mode),
            selector.commands.payload.threshold.eq(command.threshold),
            lists.first_base.eq(command.selected),
            lists.second_base.eq(command.reused),
            lists.i.valid.eq(selector.selected.valid | selector.reused.valid),
            lists.i.payload.second.eq(selector.reused.valid),
            lists.i.payload.token.eq(
                Mux(selector.reused.valid, selector.reused.payload, selector.selected.payload)
            ),
            selector.selected.ready.eq(lists.i.ready),
            selector.reused.ready.eq(lists.i.ready),
        ]
        for name, stretch in requests.items():
            m.d.comb += [
                stretch.stretch.base.eq(command[name]),
                stretch.stretch.length.eq(line),
                stretch.stretch.chunk.eq(Mux(whole, chunk_bytes(config), self.piece)),
                stretch.stretch.runs.eq(lines),
            ]
        bad = self._join(m, selector, readers, scoring, second_difference)
        with m.If(bad):
            m.d.sync += self.failed.eq(1)
        self._copy(m, patches, readers, requests["latent"], copying, line, row)

        with m.FSM():
            with m.State("IDLE"), m.If(self.begin):
                m.d.sync += [self.failed.eq(0), copying.eq(0)]
                m.next = "SIZES"
            with m.State("SIZES"):
                m.next = "START"
            with m.State("START"):
                m.d.comb += [
                    selector.commands.valid.eq(1),
                    lists.begin.eq(1),
                    patches.begin.eq(1),
                    requests["latent"].begin.eq(1),
                    requests["reference"].begin.eq(1),
                    requests["previous"].begin.eq(second_difference),
                ]
                m.next = "SCORE"
            with m.State("SCORE"):
                m.d.comb += scoring.eq(1)
                with m.If(selector.summary.valid):
                    m.d.comb += [selector.summary.ready.eq(1), lists.finish.eq(1)]
                    m.next = "LISTS"
            with m.State("LISTS"), m.If(lists.idle):
                m.d.sync += self.pieces.eq(
                    Mux(command.update, lists.first_count * command.patch, 0)
                )
                m.next = "DONE"
            with m.State("DONE"):
                m.d.comb += self.done.eq(1)
                m.next = "IDLE"
                with m.If(self.pieces != 0):
                    m.d.comb += [
                        requests["reference"].begin.eq(1),
                        requests["reference"].stretch.base.eq(
                            command.selected + sizes.LIST_HEADER_BYTES
                        ),
                        requests["reference"].stretch.length.eq(
                            lists.first_count * sizes.ENTRY_BYTES
                        ),
                        requests["reference"].stretch.chunk.eq(chunk_bytes(config)),
                        requests["reference"].stretch.runs.eq(1),
                    ]
                    m.d.sync += copying.eq(1)
        return m

    def _readers(self, m: Module) -> tuple[dict[str, RowReader], dict[str, StretchRequests]]:
        """One of each for every latent; also for the two sizes of words that come later."""
        bus, readers, requests = self.config.bus, {}, {}
        depth = max(READ_DEPTH, bus.burst)
        later = {"latent": (bus.word_bytes,), "reference": (sizes.ENTRY_BYTES,)}
        for name in _LATENTS:
            reader = RowReader(bus, (self._word_bytes, *later.get(name, ())), depth)
            request = StretchRequests(self.config)
            m.submodules[f"{name}_reader"] = readers[name] = reader
            m.submodules[f"{name}_requests"] = requests[name] = request
            wiring.connect(m, reader.read, wiring.flipped(getattr(self, f"read_{name}")))
        for name in ("reference", "previous"):
            wiring.connect(m, requests[name].rows, readers[name].rows)
        return readers, requests

    @property
    def _word_bytes(self) -> int:
        return sizes.LATENT_BYTES * self.config.selector.pixels

    def _beats(self, m: Module, values: Signal) -> tuple[Signal, Signal]:
        """Return selector words of a piece of so many values, and whether the last one is full."""
        pixels = self.config.selector.pixels
        beats, whole = Signal(values.shape()), Signal()
        with m.Switch(values):
            for n in range(1, MAX_PATCH * MAX_CHANNELS + 1):
                with m.Case(n):
                    m.d.comb += [beats.eq(-(-n // pixels)), whole.eq(n % pixels == 0)]
        return beats, whole

    def _join(self, m: Module, selector, readers, scoring, second_difference) -> Signal:
        """Words of the latents to the selector; return whether a value leaves its range."""
        pixels, bits = selector.pixels, self.config.selector.latent_bits
        needed = {"latent": Const(1), "reference": Const(1), "previous": second_difference}
        wrong = []
        take = Signal()
        m.d.comb += [
            pixels.valid.eq(scoring & Cat(readers[n].o.valid | ~needed[n] for n in _LATENTS).all()),
            take.eq(pixels.valid & pixels.ready),
            self.waiting_data.eq(pixels.ready & ~pixels.valid),
        ]
        for name, field in zip(_LATENTS, ("z", "ref", "prev"), strict=True):
            word = readers[name].o.payload.data.as_value()
            with m.If(scoring):
                m.d.comb += readers[name].o.ready.eq(take)
            for lane in range(self.config.selector.pixels):
                value = word.word_select(lane, 8 * sizes.LATENT_BYTES)
                m.d.comb += pixels.payload[lane][field].eq(value[:bits])
                sign = value[bits - 1 :]
                wrong.append(needed[name] & sign.any() & ~sign.all())
        return take & Cat(wrong).any()

    def _copy(self, m: Module, patches, readers, requests, copying, line, row) -> None:
        """List of selected tokens to pieces: read from the latent, to be written elsewhere."""
        command, latent, entries = self.command, readers["latent"], readers["reference"].o
        m.d.comb += [
            latent.size.eq(copying),
            readers["reference"].size.eq(copying),
            patches.columns.eq(command.grid_columns),
            patches.patch.eq(command.patch),
            patches.piece.eq(self.piece),
            patches.line.eq(line),
            patches.row.eq(row),
            self.places.payload.eq(command.reference + patches.offsets.payload),
            self.words.payload.eq(latent.o.payload.data.as_value()),
        ]
        with m.If(copying):
            m.d.comb += [
                patches.tokens.valid.eq(entries.valid),
                patches.tokens.payload.eq(entries.payload.data.as_value()[:TOKEN_BITS]),
                entries.ready.eq(patches.tokens.ready),
                # A piece is asked for and its place is noted in the same cycle.
                latent.rows.valid.eq(patches.offsets.valid & self.places.ready),
                latent.rows.payload.address.eq(command.latent + patches.offsets.payload),
                latent.rows.payload.length.eq(self.piece),
                self.places.valid.eq(patches.offsets.valid & latent.rows.ready),
                patches.offsets.ready.eq(self.places.ready & latent.rows.ready),
                self.words.valid.eq(latent.o.valid),
                latent.o.ready.eq(self.words.ready),
            ]
        with m.Else():
            m.d.comb += [
                latent.rows.valid.eq(requests.rows.valid),
                latent.rows.payload.eq(requests.rows.payload),
                requests.rows.ready.eq(latent.rows.ready),
            ]
