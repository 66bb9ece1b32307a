"""Finished words of weighted sums on their way out of the array."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFO, SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.program import FuseCommand
from hw.softmax.score import maximum_bits

__all__ = ["QueuedWord", "SumQueue", "WordTag", "beat_bits", "sum_queue_depth"]


def sum_queue_depth(config: CoreConfig) -> int:
    """Words that may be on their way from the array to whoever reads them: two heads' rows."""
    return max(8, 2 * config.max_beats)


def beat_bits(config: CoreConfig) -> int:
    """Bits of a word's number within its row."""
    return max(1, (FuseCommand.most_beats(config) - 1).bit_length())


class WordTag(data.StructLayout):
    """Which word of which row."""

    def __init__(self, config: CoreConfig):
        super().__init__(
            {
                "slot": range(config.memory.query_rows),
                "token": config.column_bits,
                "beat": beat_bits(config),
                "row_last": 1,  # of these sums
                "last": 1,  # of the command
                "kept": 1,  # sums over the columns of the mask just made, not over all
                "maximum": signed(maximum_bits(config)),
            }
        )


class QueuedWord(data.StructLayout):
    """L accumulators."""

    def __init__(self, config: CoreConfig):
        acc = signed(config.number.accumulator_bits)
        super().__init__(
            {"tag": WordTag(config), "data": data.ArrayLayout(acc, config.array.lanes)}
        )


class SumQueue(wiring.Component):
    """Queue of finished words with their tags.

    The array never stalls, so a word may only be begun while there is `room` for it.  `start` takes
    the room and notes the tag, `sum_valid` brings the word, in the same order; the room is given
    back when the word has been taken at `o`.

    Latency 2 cycles; a word a cycle.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    start, tag : In
    sum_valid, sum : In, [L] signed `accumulator_bits`
    room : Out
    o : Out, stream of `QueuedWord`
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        super().__init__(
            {
                "start": In(1),
                "tag": In(WordTag(config)),
                "sum_valid": In(1),
                "sum": In(QueuedWord(config)["data"].shape),
                "room": Out(1),
                "o": Out(stream.Signature(QueuedWord(config))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        depth = sum_queue_depth(self.config)
        tag = Value.cast(self.tag)
        m.submodules.tags = tags = SyncFIFO(width=len(tag), depth=depth)
        word = Value.cast(self.sum)
        m.submodules.words = words = SyncFIFOBuffered(width=len(word), depth=depth)
        taken = self.o.valid & self.o.ready
        m.d.comb += [
            tags.w_data.eq(tag),
            tags.w_en.eq(self.start),
            tags.r_en.eq(taken),
            words.w_data.eq(word),
            words.w_en.eq(self.sum_valid),
            words.r_en.eq(taken),
            self.o.valid.eq(words.r_rdy),
            Value.cast(self.o.payload.tag).eq(tags.r_data),
            Value.cast(self.o.payload.data).eq(words.r_data),
        ]
        free = Signal(range(depth + 1), init=depth)
        m.d.sync += free.eq(free - self.start + taken)
        m.d.comb += self.room.eq(free != 0)
        return m
