"""Token selector of cached token reuse: which tokens of an image are computed anew."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from hw.sram import Sram

__all__ = [
    "MAX_CHANNELS",
    "MAX_PATCH",
    "SelectorMode",
    "TokenSelector",
    "command_layout",
    "max_beats",
    "pixels_layout",
    "score_bits",
    "summary_layout",
]

MAX_PATCH = 4
"""Largest edge of a patch in pixels."""

MAX_CHANNELS = 16
"""Most channels of a latent."""


class SelectorMode(enum.Enum, shape=1):
    """What is summed over a patch."""

    DIFFERENCE = 0
    """`|z - ref|`"""
    SECOND_DIFFERENCE = 1
    """`|z - 2 * ref + prev|`"""


def max_beats(config: CoreConfig) -> int:
    """Return the most words that one pixel row of one patch takes."""
    return -(-MAX_PATCH * MAX_CHANNELS // config.selector.pixels)


def score_bits(config: CoreConfig) -> int:
    """Return the width of a score, wide enough for any sum; all ones is more than any score."""
    s = config.selector
    values = MAX_PATCH * max_beats(config) * s.pixels
    return (values * ((2 << s.latent_bits) - 2)).bit_length()


def _index_bits(config: CoreConfig) -> int:
    return (config.selector.max_width**2 - 1).bit_length()


def pixels_layout(config: CoreConfig) -> data.ArrayLayout:
    """Shape of a word of the pixel stream."""
    latent = signed(config.selector.latent_bits)
    value = data.StructLayout({"z": latent, "ref": latent, "prev": latent})
    return data.ArrayLayout(value, config.selector.pixels)


def command_layout(config: CoreConfig) -> data.StructLayout:
    """Shape of a command; all counts are at least one."""
    size = config.selector.max_width.bit_length()
    return data.StructLayout(
        {
            "rows": size,
            "columns": size,
            "patch": MAX_PATCH.bit_length(),
            "beats": max_beats(config).bit_length(),
            "mode": SelectorMode,
            "threshold": score_bits(config),
        }
    )


def summary_layout(config: CoreConfig) -> data.StructLayout:
    """Shape of the counts of both lists."""
    bits = _index_bits(config) + 1
    return data.StructLayout({"selected": bits, "reused": bits})


class TokenSelector(wiring.Component):
    """Score tokens, compare, and compact their indices into two lists.

    A token is a patch of `patch` x `patch` pixels of a latent image of `rows` x `columns` patches.
    Its score is the sum over all values of the patch, all channels, of `|z - ref|`, or of
    `|z - 2 * ref + prev|`; exact, without saturation.  It is selected iff `score >= threshold`, so
    threshold 0 selects every token and a threshold of all ones none.

    Pixels come in raster order with interleaved channels.  In each pixel row, the values of a
    patch, `patch * channels`, take `beats = ceil(patch * channels / pixels)` words.  If that does
    not divide, the last word is filled up with values that have `z = ref = prev`, zero for example,
    which add nothing: so any patch size and number of channels works with any number of lanes,
    without hardware for words that straddle tokens.  Common latents, of 4 channels and patches of
    2, need no filling with 2, 4 or 8 lanes.

    Indices are row-major, `row * columns + column`, ascending in each list.  They leave during the
    last pixel row of their token row, without a second pass over the scores.  Once all have been
    taken from both lists, the summary offers the two counts, and only when that is taken does the
    next command start.  The lists come out in token order through one register: while the reader of
    one list stalls, the other list waits behind it.

    Latency and throughput: the first word is accepted 1 cycle after the command, one word each
    cycle if nothing stalls.  An index is offered 4 cycles after the last word of its patch was
    accepted.  A command of W = `rows * patch * columns * beats` words, accepted at cycle 0, has
    its last index at W + 4, its summary at W + 5, and makes place for the next at W + 6.
    `pixels.ready` depends combinationally on `ready` of the lists.

    Parameters
    ----------
    config : CoreConfig
        Section `selector`: values per word, their width, and the most rows and columns of patches,
        `max_width`.

    Members
    -------
    commands : In, stream of `command_layout(config)`
        `rows`, `columns` in [1, max_width]; `patch` in [1, MAX_PATCH]; `beats` in
        [1, max_beats(config)].  The hardware does not check them.
    pixels : In, stream of `pixels_layout(config)`
        `z` is the latent of this step.  For the first difference `ref` is the latent at which the
        token was last computed, or any other to compare with, and `prev` is ignored; for the second
        difference `ref` is the latent of the step before, and `prev` of the one before that.
    selected, reused : Out, streams of indices
    summary : Out, stream of `summary_layout(config)`

    Raises
    ------
    TypeError
        `config` is not a `CoreConfig`; its own validation covers the ranges.
    """

    def __init__(self, config: CoreConfig):
        if not isinstance(config, CoreConfig):
            raise TypeError(f"config: must be a CoreConfig, got {config!r}")
        self.config = config
        super().__init__(
            {
                "commands": In(stream.Signature(command_layout(config))),
                "pixels": In(stream.Signature(pixels_layout(config))),
                "selected": Out(stream.Signature(_index_bits(config))),
                "reused": Out(stream.Signature(_index_bits(config))),
                "summary": Out(stream.Signature(summary_layout(config))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lanes, bits = self.config.selector.pixels, score_bits(self.config)
        m.submodules.partial = partial = Sram(bits, self.config.selector.max_width)

        command = Signal(command_layout(self.config))
        place = data.StructLayout(
            {
                "column": len(command.columns),
                "end": 1,  # last word of a patch in this pixel row
                "first": 1,  # first pixel row of the patch
                "final": 1,  # last pixel row of the patch
            }
        )
        advance = Signal()  # one stalled list stops the whole pipeline
        accept = Signal()

        # Position of the word at the input.
        here = Signal(place)
        beat, line = Signal(len(command.beats)), Signal(len(command.patch))
        column, row = Signal(len(command.columns)), Signal(len(command.rows))
        end_column, end_row = Signal(), Signal()
        m.d.comb += [
            accept.eq(self.pixels.valid & self.pixels.ready),
            here.column.eq(column),
            here.end.eq(beat == command.beats - 1),
            here.first.eq(line == 0),
            here.final.eq(line == command.patch - 1),
            end_column.eq(column == command.columns - 1),
            end_row.eq(row == command.rows - 1),
        ]
        with m.If(accept):
            m.d.sync += beat.eq(Mux(here.end, 0, beat + 1))
            with m.If(here.end):
                m.d.sync += column.eq(Mux(end_column, 0, column + 1))
                with m.If(end_column):
                    m.d.sync += line.eq(Mux(here.final, 0, line + 1))
                    with m.If(here.final):
                        m.d.sync += row.eq(Mux(end_row, 0, row + 1))

        # Stage 1: magnitudes.
        valid_1, place_1 = Signal(), Signal(place)
        magnitudes = []
        for lane in range(lanes):
            value = self.pixels.payload[lane]
            second = command.mode == SelectorMode.SECOND_DIFFERENCE
            # z - ref + (prev - ref, or nothing)
            step = Mux(second, value.prev - value.ref, 0)
            change = Signal(signed(self.config.selector.latent_bits + 2), name=f"change_{lane}")
            magnitude = Signal(self.config.selector.latent_bits + 1, name=f"magnitude_{lane}")
            m.d.comb += change.eq(value.z - value.ref + step)
            with m.If(advance):
                m.d.sync += magnitude.eq(abs(change))
            magnitudes.append(magnitude)
        with m.If(advance):
            m.d.sync += [valid_1.eq(accept), place_1.eq(here)]

        # Stage 2: sum of the word; meanwhile the partial sum of earlier pixel rows is read.
        valid_2, place_2, word = Signal(), Signal(place), Signal(bits)
        write = Signal()
        forward, forwarded = Signal(), Signal(bits)
        with m.If(advance):
            m.d.sync += [
                valid_2.eq(valid_1),
                place_2.eq(place_1),
                word.eq(sum(magnitudes)),
                # Only with one column and one beat is a sum wanted in the cycle it is written.
                forward.eq(write & (place_1.column == place_2.column)),
                forwarded.eq(partial.write_data),
            ]
        m.d.comb += [
            partial.read_address.eq(place_1.column),
            partial.read_en.eq(advance),
        ]

        # Stage 3: score.
        valid_3, score = Signal(), Signal(bits)
        run, run_next, total, before = Signal(bits), Signal(bits), Signal(bits), Signal(bits)
        m.d.comb += [
            before.eq(Mux(place_2.first, 0, Mux(forward, forwarded, partial.read_data))),
            run_next.eq(run + word),
            total.eq(run_next + before),
            write.eq(valid_2 & place_2.end & ~place_2.final & advance),
            partial.write_address.eq(place_2.column),
            partial.write_data.eq(total),
            partial.write_en.eq(write),
        ]
        with m.If(advance):
            m.d.sync += [
                valid_3.eq(valid_2 & place_2.end & place_2.final),
                score.eq(total),
            ]
            with m.If(valid_2):
                m.d.sync += run.eq(Mux(place_2.end, 0, run_next))

        # Stage 4: decision, which the lists offer.
        valid_4, select = Signal(), Signal()
        index = Signal(_index_bits(self.config) + 1)
        selected = Signal.like(index)
        m.d.comb += [
            self.selected.valid.eq(valid_4 & select),
            self.reused.valid.eq(valid_4 & ~select),
            self.selected.payload.eq(index),
            self.reused.payload.eq(index),
            advance.eq(~valid_4 | Mux(select, self.selected.ready, self.reused.ready)),
            self.summary.payload.selected.eq(selected),
            self.summary.payload.reused.eq(index - selected),
        ]
        with m.If(advance):
            m.d.sync += [valid_4.eq(valid_3), select.eq(score >= command.threshold)]
            with m.If(valid_4):
                m.d.sync += [index.eq(index + 1), selected.eq(selected + select)]

        with m.FSM():
            with m.State("IDLE"):
                m.d.comb += self.commands.ready.eq(1)
                with m.If(self.commands.valid):
                    m.d.sync += [
                        command.eq(self.commands.payload),
                        index.eq(0),
                        selected.eq(0),
                    ]
                    m.next = "RUN"
            with m.State("RUN"):
                m.d.comb += self.pixels.ready.eq(advance)
                with m.If(accept & here.end & end_column & here.final & end_row):
                    m.next = "DRAIN"
            with m.State("DRAIN"), m.If(~(valid_1 | valid_2 | valid_3) & advance):
                m.next = "SUMMARY"
            with m.State("SUMMARY"):
                m.d.comb += self.summary.valid.eq(1)
                with m.If(self.summary.ready):
                    m.next = "IDLE"
        return m
