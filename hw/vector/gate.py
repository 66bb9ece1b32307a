"""Sums of a linear layer into the residual stream: partial sums, bias, gate, saturation."""

from __future__ import annotations

from amaranth.hdl import EnableInserter, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.tables import SHIFT_BITS, VECTOR_BITS
from hw.adder_tree import delay
from hw.fixed import round_shift, saturate
from hw.sram import Sram
from hw.vector.words import (
    RowWord,
    busy,
    join,
    masked,
    offer,
    row_left,
    row_position,
    words_of,
)

__all__ = ["BiasWord", "GateResidual", "GateWord"]


class GateWord(data.StructLayout):
    """Multipliers of the channels of a word, for address `address`."""

    def __init__(self, config: CoreConfig):
        lanes = config.vector.lanes
        super().__init__(
            {
                "address": range(max(2, gate_words(config))),
                "data": data.ArrayLayout(signed(VECTOR_BITS), lanes),
            }
        )


class BiasWord(data.StructLayout):
    """Biases of the channels of a word, likewise."""

    def __init__(self, config: CoreConfig):
        acc = signed(config.number.accumulator_bits)
        super().__init__(
            {
                "address": range(max(2, gate_words(config))),
                "data": data.ArrayLayout(acc, config.vector.lanes),
            }
        )


def longest_row(config: CoreConfig) -> int:
    """Most channels of a row that is gated: a projection gates `memory.columns` at a time."""
    return max(config.vector.max_channels, config.memory.columns)


def gate_words(config: CoreConfig) -> int:
    """Words of the longest row."""
    return words_of(longest_row(config), config.vector.lanes)


class GateResidual(wiring.Component):
    """`x = saturate(x + round_shift(sum * multiplier, shift))`, `sum = acc [+ bias] [+ earlier]`.

    Golden: `linear.gate_residual` on the sum that `linear.accumulate` returns.  A layer whose
    columns come in several tiles passes its sums on, unrounded, until the last tile: then `gate` is
    low, and they leave at `sums`.  Sums wrap around in `accumulator_bits`, so it does not matter
    whether a part of one does not fit, as long as the whole does.

    Throughput: one word a cycle.  Latency from the last of the inputs: `LATENCY` cycles to `o`,
    `SUMS_LATENCY` to `sums`.

    Parameters
    ----------
    config : CoreConfig
        `vector.lanes` elements a word; rows up to `vector.max_channels` long, or `memory.columns`,
        which a projection gates at a time.

    Members
    -------
    channels, shift : In
        Quasi-static: D and the gate's shift.
    add_bias, add_earlier, gate : In
        Quasi-static: which terms are added; whether `x` comes and leaves, or else the sums.
    multipliers, biases : In, streams of `GateWord`, `BiasWord`
        Word n of the vectors to address n, taken at once, while no row is inside.  They can be read
        from the next cycle on.
    acc : In, stream of [lanes] signed `accumulator_bits`
    earlier : In, the same
        Sums of earlier tiles; taken only with `add_earlier`.
    x : In, stream of [lanes] signed `residual_bits`
        Taken only with `gate`.
    o : Out, stream of `RowWord` of signed `residual_bits`
    sums : Out, stream of `RowWord` of signed `accumulator_bits`
    busy : Out
    """

    LATENCY = 5
    SUMS_LATENCY = 3

    def __init__(self, config: CoreConfig):
        self.config, lanes = config, config.vector.lanes
        self.max_channels = longest_row(config)
        acc, x = signed(config.number.accumulator_bits), signed(config.number.residual_bits)
        super().__init__(
            {
                "channels": In(range(self.max_channels + 1)),
                "shift": In(SHIFT_BITS),
                "add_bias": In(1),
                "add_earlier": In(1),
                "gate": In(1),
                "multipliers": In(stream.Signature(GateWord(config))),
                "biases": In(stream.Signature(BiasWord(config))),
                "acc": In(stream.Signature(data.ArrayLayout(acc, lanes))),
                "earlier": In(stream.Signature(data.ArrayLayout(acc, lanes))),
                "x": In(stream.Signature(data.ArrayLayout(x, lanes))),
                "o": Out(stream.Signature(RowWord(x, lanes))),
                "sums": Out(stream.Signature(RowWord(acc, lanes))),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        p = Module()  # the rigid pipeline: everything in it stops together
        number, lanes = self.config.number, self.config.vector.lanes
        advance = Signal()
        accept = join(
            m,
            advance,
            [(self.acc, 1), (self.earlier, self.add_earlier), (self.x, self.gate)],
        )
        here = row_position(m, accept, self.channels, lanes, self.max_channels, name="in")

        vectors = {}
        for name in ("multipliers", "biases"):
            load = getattr(self, name)
            shape = load.payload.data.shape()
            m.submodules[name] = memory = Sram(shape, gate_words(self.config))
            m.d.comb += [
                load.ready.eq(1),
                memory.write_address.eq(load.payload.address),
                memory.write_data.eq(load.payload.data),
                memory.write_en.eq(load.valid),
                memory.read_address.eq(here.word),
                memory.read_en.eq(advance),
            ]
            vectors[name] = memory.read_data

        sums, results = [], []
        for i in range(lanes):
            # The sum: two additions while the vectors are being read, the bias after it.
            pair = Signal(signed(number.accumulator_bits), name=f"pair_{i}", reset_less=True)
            total = Signal.like(pair, name=f"sum_{i}")
            p.d.sync += [
                pair.eq(self.acc.payload[i] + Mux(self.add_earlier, self.earlier.payload[i], 0)),
                total.eq(pair + Mux(self.add_bias, vectors["biases"][i], 0)),
            ]
            sums.append(total)
            multiplier = delay(p, vectors["multipliers"][i], 1, name=f"multiplier_{i}")
            product = delay(p, total * multiplier, 1, name=f"product_{i}")
            branch = delay(p, round_shift(product, self.shift), 1, name=f"branch_{i}")
            x = delay(p, self.x.payload[i], 4, name=f"x_{i}")
            results.append(saturate(x + branch, number.residual_bits))

        def late(value, cycles: int, name: str, reset_less: bool = True):
            return delay(p, value, cycles, name=name, reset_less=reset_less)

        summed = late(accept, self.SUMS_LATENCY - 1, "summed", reset_less=False)
        done = late(summed, self.LATENCY - self.SUMS_LATENCY, "done", reset_less=False)
        sums_last = late(here.last, self.SUMS_LATENCY - 1, "sums_last")
        sums_enable = late(here.enable, self.SUMS_LATENCY - 1, "sums_enable")
        o_last = late(sums_last, self.LATENCY - self.SUMS_LATENCY, "o_last")
        o_enable = late(sums_enable, self.LATENCY - self.SUMS_LATENCY, "o_enable")
        outputs = {"o": (self.o, done & self.gate), "sums": (self.sums, summed & ~self.gate)}
        fields = {
            "o": {"data": masked(results, o_enable), "last": o_last},
            "sums": {"data": masked(sums, sums_enable), "last": sums_last},
        }
        m.d.comb += advance.eq(offer(m, outputs, fields))
        m.submodules.pipeline = EnableInserter(advance)(p)
        m.d.comb += self.busy.eq(
            busy(m, accept & here.first, row_left(self.o) | row_left(self.sums), self.LATENCY + 1)
        )
        return m
