"""LayerNorm without affine parameters, fused with the modulation of adaLN."""

from __future__ import annotations

from amaranth.hdl import EnableInserter, Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import NORM_MARGIN_WORDS, CoreConfig
from disc.program.vector import EPSILON_BITS
from disc.tables import (
    NORM_BITS,
    NORM_FRACTION_BITS,
    RSQRT_BITS,
    SHIFT_BITS,
    VECTOR_BITS,
)
from hw.adder_tree import adder_tree, adder_tree_latency, delay
from hw.fixed import round_shift, saturate
from hw.sram import Sram
from hw.vector.rsqrt import Rsqrt
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

__all__ = ["LayerNorm"]

_SUMS = 3
"""Cycles from a word to its place at the adder trees, and from there into the row's sums."""
_VARIANCE = 2
_APPLY = 6
"""Cycles from the first read of a row to its first result."""


class LayerNorm(wiring.Component):
    """`out = saturate(round_shift(z * multiplier + bias * 2**10, shift))`, z the normalised row.

    Golden: `layernorm.layer_norm`, then `layernorm.modulate`.

    Rows are read twice, once for the exact sums and once, out of a ring buffer, for the result.
    Reading starts a constant time after the row's last word; meanwhile later rows are summed.

    The modulation's vectors may come while rows are under way: a result waits until its words of
    both have come.

    Throughput: one word a cycle, no gap between rows of any length.  Latency: the first word of a
    result is offered `latency` cycles after the last word of its row was taken, and the earliest
    3 cycles after its words of the vectors were.

    Parameters
    ----------
    config : CoreConfig
        `vector.lanes` elements a word, rows up to `vector.max_channels` long;
        `number.residual_bits` in, `number.operand_bits` out.

    Members
    -------
    channels, epsilon, shift : In
        Quasi-static: D, epsilon in units of V, and the modulation's shift, which must be there with
        the last word of the vectors at the latest.
    clear : In
        New vectors will come; only while not `busy`.
    multipliers, biases : In, streams of [lanes] signed `VECTOR_BITS`
        Word by word from the first; never stall.
    i : In, stream of [lanes] signed `residual_bits`
    o : Out, stream of `RowWord` of signed `operand_bits`
    busy : Out
    missing : Out
        Results wait for words of the vectors.
    """

    def __init__(self, config: CoreConfig):
        self.config, lanes = config, config.vector.lanes
        tree = adder_tree_latency(lanes)
        # From a row's last word to the first read: the buffer holds that much of later rows.
        self._wait = _SUMS + tree + _VARIANCE + Rsqrt.LATENCY
        self.latency = self._wait + _APPLY
        assert self._wait < NORM_MARGIN_WORDS, "the configuration leaves more room than that"
        self.max_channels = config.vector.max_channels
        self._depth = words_of(self.max_channels, lanes)
        word = data.ArrayLayout(signed(config.number.residual_bits), lanes)
        self._vector = data.ArrayLayout(signed(VECTOR_BITS), lanes)
        super().__init__(
            {
                "channels": In(range(self.max_channels + 1)),
                "epsilon": In(EPSILON_BITS),
                "shift": In(SHIFT_BITS),
                "clear": In(1),
                "multipliers": In(stream.Signature(self._vector)),
                "biases": In(stream.Signature(self._vector)),
                "i": In(stream.Signature(word)),
                "o": Out(stream.Signature(RowWord(signed(config.number.operand_bits), lanes))),
                "busy": Out(1),
                "missing": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        p = Module()  # the rigid pipeline: everything in it stops together
        lanes, bits = self.config.vector.lanes, self.config.number.residual_bits
        advance = Signal()
        accept = join(m, advance, [(self.i, 1)])
        here = row_position(m, accept, self.channels, lanes, self.max_channels, name="in")

        buffer_words = self._depth + self._wait + 1
        word = data.ArrayLayout(signed(bits), lanes)
        m.submodules.buffer = buffer = Sram(word, buffer_words)

        def step(pointer: Signal) -> Mux:
            return Mux(pointer == buffer_words - 1, 0, pointer + 1)

        write_pointer = Signal(range(buffer_words))
        m.d.comb += [
            buffer.write_address.eq(write_pointer),
            buffer.write_data.eq(self.i.payload),
            buffer.write_en.eq(accept),
        ]
        with m.If(accept):
            m.d.sync += write_pointer.eq(step(write_pointer))

        elements = masked([self.i.payload[lane] for lane in range(lanes)], here.enable)
        row_done, sum1, multiplier, shift = self._statistics(p, accept, here, elements)

        # Second pass: rows are as far apart as they are long, so the reader is always free.
        there_read = Signal()
        reading = Signal()
        m.d.comb += there_read.eq(row_done | reading)
        there = row_position(
            m, there_read & advance, self.channels, lanes, self.max_channels, name="out"
        )
        with m.If(there_read & advance):
            m.d.sync += reading.eq(~there.last)
        read_pointer = Signal(range(buffer_words))
        with m.If(there_read & advance):
            m.d.sync += read_pointer.eq(step(read_pointer))
        m.d.comb += [
            buffer.read_address.eq(read_pointer),
            buffer.read_en.eq(advance),
        ]

        def of_row(value: Signal, cycles: int, name: str) -> Signal:
            """Keep a row's constant from its first read on, `cycles` stages behind the data."""
            kept = Signal(value.shape(), name=name, reset_less=True)
            with p.If(row_done):
                p.d.sync += kept.eq(value)
            return delay(p, kept, cycles, name=name)

        sum1 = of_row(sum1, 0, "row_sum")
        multiplier, shift = of_row(multiplier, 1, "row_rsqrt"), of_row(shift, 2, "row_shift")

        word = delay(p, there.word, 3, name="word")
        multipliers, multipliers_there = self._vectors(m, self.multipliers, word, "multipliers")
        biases, biases_there = self._vectors(m, self.biases, word, "biases")
        for vector in (multipliers, biases):
            m.d.comb += vector.read_en.eq(advance)
        wanted = delay(p, there_read, 3, name="wanted", reset_less=False)
        m.d.comb += self.missing.eq(wanted & ~(multipliers_there & biases_there))
        enable = delay(p, there.enable, 5, name="enable")
        results = []
        for lane in range(lanes):
            x = buffer.read_data[lane]
            centred = delay(p, self.channels * x - sum1, 1, name=f"centred_{lane}")
            product = delay(p, centred * multiplier, 1, name=f"product_{lane}")
            z = delay(p, saturate(round_shift(product, shift), NORM_BITS), 1, name=f"z_{lane}")
            bias = biases.read_data[lane] << NORM_FRACTION_BITS
            scaled = z * multipliers.read_data[lane] + bias
            scaled = delay(p, scaled, 1, name=f"scaled_{lane}")
            results.append(
                saturate(round_shift(scaled, self.shift), self.config.number.operand_bits)
            )
        valid = delay(p, there_read, 5, name="valid", reset_less=False)
        fields = {"data": masked(results, enable), "last": delay(p, there.last, 5, name="last")}
        m.d.comb += advance.eq(offer(m, {"o": (self.o, valid)}, {"o": fields}, ~self.missing))
        m.submodules.pipeline = EnableInserter(advance)(p)
        begins, ends = accept & here.first, row_left(self.o)
        m.d.comb += self.busy.eq(busy(m, begins, ends, self.latency + 2))
        return m

    def _vectors(self, m, words, address, name):
        """Return the memory of a vector, and whether a word of it has come."""
        m.submodules[name] = memory = Sram(self._vector, self._depth)
        come = Signal(range(self._depth + 1), name=f"{name}_come")
        there = Signal(name=f"{name}_there")
        m.d.comb += [
            words.ready.eq(1),
            memory.write_address.eq(come),
            memory.write_data.eq(words.payload),
            memory.write_en.eq(words.valid),
            memory.read_address.eq(address),
            there.eq(address < come),
        ]
        with m.If(self.clear):
            m.d.sync += come.eq(0)
        with m.Elif(words.valid):
            m.d.sync += come.eq(come + 1)
        return memory, there

    def _statistics(self, p, accept, here, elements):
        """First pass: return, a row at a time, done, S1, rsqrt(V) and its shift."""
        lanes, bits = self.config.vector.lanes, self.config.number.residual_bits
        x = [delay(p, element, 1, name=f"x_{i}") for i, element in enumerate(elements)]
        squares = []
        for lane in range(lanes):
            square = Signal(2 * bits - 1, name=f"square_{lane}", reset_less=True)
            p.d.sync += square.eq(x[lane] * x[lane])
            squares.append(square)
        x = [delay(p, value, 1, name=f"x_late_{i}") for i, value in enumerate(x)]
        word_sum1 = adder_tree(p, x, name="tree_1")
        word_sum2 = adder_tree(p, squares, name="tree_2")
        before = _SUMS - 1 + adder_tree_latency(lanes)
        valid = delay(p, accept, before, name="sum_valid", reset_less=False)
        first = delay(p, here.first, before, name="sum_first")
        last = delay(p, here.last, before, name="sum_last")

        top1 = self.max_channels << (bits - 1)
        top2 = self.max_channels << (2 * bits - 2)
        sum1 = Signal(signed(top1.bit_length() + 1), reset_less=True)
        sum2 = Signal(top2.bit_length(), reset_less=True)
        with p.If(valid):
            p.d.sync += [
                sum1.eq(Mux(first, 0, sum1) + word_sum1),
                sum2.eq(Mux(first, 0, sum2) + word_sum2),
            ]
        complete = delay(p, valid & last, 1, name="complete", reset_less=False)

        # V = D * S2 - S1**2 + epsilon, never negative.
        scaled = delay(p, self.channels * sum2, 1, name="scaled_sum")
        squared = delay(p, sum1 * sum1, 1, name="squared_sum")
        v = Signal((self.max_channels * top2 + (1 << EPSILON_BITS)).bit_length(), reset_less=True)
        p.d.sync += v.eq(scaled - squared + self.epsilon)
        p.submodules.rsqrt = rsqrt = Rsqrt(len(v))
        p.d.comb += rsqrt.v.eq(v)
        cycles = _VARIANCE + Rsqrt.LATENCY
        done = delay(p, complete, cycles, name="done", reset_less=False)
        late_sum = delay(p, sum1, cycles, name="sum_late")
        shift = Signal(range(RSQRT_BITS + (1 << len(rsqrt.n))))
        p.d.comb += shift.eq(rsqrt.n + (RSQRT_BITS - NORM_FRACTION_BITS))
        return done, late_sum, rsqrt.y, shift
