"""Residual sharing: what ends a row of attention when masks are made or reused."""

from __future__ import annotations

from amaranth.hdl import EnableInserter, Module, Mux, Signal, signed
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.tables import MULTIPLIER_BITS, RECIPROCAL_BITS, SHIFT_BITS
from hw.adder_tree import delay
from hw.fixed import round_shift, saturate
from hw.softmax.reciprocal import Reciprocal
from hw.vector.row_queue import RowQueue
from hw.vector.words import (
    RowWord,
    busy,
    join,
    masked,
    offer,
    row_left,
    row_position,
    total_bits,
)

__all__ = ["SharingEpilogue", "SharingMode", "SharingRow"]


class SharingMode(enum.Enum, shape=2):
    """What becomes of a row's sums."""

    PLAIN = 0
    """They are normalised."""
    REUSE = 1
    """They are normalised, and the residual is added."""
    REFRESH = 2
    """Dense sums are normalised; their difference to the kept ones is the new residual."""


class SharingRow(data.StructLayout):
    """Sums of numerators of a row: of what it attends to and, with REFRESH, of kept columns."""

    def __init__(self, config: CoreConfig):
        super().__init__({"total": total_bits(config), "kept": total_bits(config)})


class SharingEpilogue(wiring.Component):
    """Divides sums by their totals and adds, or makes, what a mask drops.

    With `guarded(a, s) = saturate(round_shift(a * w, n + shift - guard), sharing_bits)`, guard =
    `sharing_guard_bits`, w and n from the reciprocal of s:

    - PLAIN: `o = saturate(round_shift(acc * w, n + shift), operand_bits)`, `softmax.normalise`;
    - REUSE: `o = saturate(round_shift(guarded(acc, total) + residual, guard), operand_bits)`,
      `sharing.add_residual`;
    - REFRESH: `o` as PLAIN, and `r = saturate(guarded(acc, total) - guarded(kept, kept total))`,
      `sharing.shared_residual`.

    Rows come ahead of their words, into a queue behind the reciprocals.

    Throughput: one word a cycle, no gap between rows of any length.  Latency: `ROW_LATENCY` cycles
    from a row to its first word being taken, `LATENCY` from the last of the words to the result.

    Parameters
    ----------
    config : CoreConfig
        `vector.lanes` elements a word, rows of up to `memory.head_dim`.

    Members
    -------
    channels, multiplier, shift, mode : In
        Quasi-static: elements of a row, output scale, what to do.  With REUSE and REFRESH the shift
        is at least `sharing_guard_bits`.
    row : In, stream of `SharingRow`
    acc : In, stream of [lanes] signed `accumulator_bits`
    kept : In, the same
        Taken only with REFRESH.
    residual : In, stream of [lanes] signed `sharing_bits`
        Taken only with REUSE.
    o : Out, stream of `RowWord` of signed `operand_bits`
    r : Out, stream of `RowWord` of signed `sharing_bits`
        Only with REFRESH.
    busy : Out
    """

    LATENCY = 4
    ROW_LATENCY = Reciprocal.LATENCY + 2

    def __init__(self, config: CoreConfig):
        self.config, number = config, config.number
        lanes = config.vector.lanes
        acc, shared = signed(number.accumulator_bits), signed(number.sharing_bits)
        super().__init__(
            {
                "channels": In(range(config.memory.head_dim + 1)),
                "multiplier": In(MULTIPLIER_BITS),
                "shift": In(SHIFT_BITS),
                "mode": In(SharingMode),
                "row": In(stream.Signature(SharingRow(config))),
                "acc": In(stream.Signature(data.ArrayLayout(acc, lanes))),
                "kept": In(stream.Signature(data.ArrayLayout(acc, lanes))),
                "residual": In(stream.Signature(data.ArrayLayout(shared, lanes))),
                "o": Out(stream.Signature(RowWord(signed(number.operand_bits), lanes))),
                "r": Out(stream.Signature(RowWord(shared, lanes))),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        p = Module()  # the rigid pipeline of the words: everything in it stops together
        number, lanes = self.config.number, self.config.vector.lanes
        guard = number.sharing_guard_bits
        plain = self.mode == SharingMode.PLAIN
        reuse, refresh = self.mode == SharingMode.REUSE, self.mode == SharingMode.REFRESH

        # Rows: reciprocals and what they make of the output scale.
        factor = data.StructLayout(
            {
                "multiplier": MULTIPLIER_BITS + 1,
                "shift": range(total_bits(self.config) + (1 << SHIFT_BITS)),
            }
        )
        row = data.StructLayout({"dense": factor, "kept": factor})
        m.submodules.rows = rows = RowQueue(row, Reciprocal.LATENCY + 1)
        result = Signal(row, reset_less=True)
        totals = (("dense", self.row.payload.total), ("kept", self.row.payload.kept))
        for name, total in totals:
            m.submodules[f"reciprocal_{name}"] = unit = Reciprocal(total_bits(self.config))
            m.d.comb += unit.total.eq(total)
            m.d.sync += [
                result[name].multiplier.eq(round_shift(unit.y * self.multiplier, RECIPROCAL_BITS)),
                result[name].shift.eq(unit.n + self.shift - Mux(plain, 0, guard)),
            ]
        m.d.comb += [
            rows.result.eq(result),
            rows.accept.eq(self.row.valid & rows.free),
            self.row.ready.eq(rows.free),
        ]

        # Words.
        advance = Signal()
        accept = join(
            m,
            advance & rows.o.valid,
            [(self.acc, 1), (self.kept, refresh), (self.residual, reuse)],
        )
        here = row_position(m, accept, self.channels, lanes, self.config.memory.head_dim, name="in")
        m.d.comb += rows.o.ready.eq(accept & here.last)
        factors = Signal(row, reset_less=True)
        p.d.sync += factors.eq(rows.o.payload)

        results, residuals = [], []
        for i in range(lanes):

            def divided(words, of, name: str):
                """Sums over totals, one bit finer than guard bits ask for."""
                value = delay(p, words.payload[i], 1, name=name)  # noqa: B023 called at once
                product = delay(p, value * of.multiplier, 1, name=f"{name}_product")
                shift = delay(p, of.shift, 1, name=f"{name}_shift")
                return (product << 1) >> shift

            dense = divided(self.acc, factors.dense, f"acc_{i}")
            kept = divided(self.kept, factors.kept, f"kept_{i}")
            dense_guarded = saturate((dense + 1) >> 1, number.sharing_bits)
            kept_guarded = saturate((kept + 1) >> 1, number.sharing_bits)
            # A shift by guard bits more is a shift by guard bits on top: no second shifter.
            unit = Mux(plain, dense, dense >> guard)
            unit = saturate((unit + 1) >> 1, number.operand_bits)

            dense_guarded = delay(p, dense_guarded, 1, name=f"dense_guarded_{i}")
            kept_guarded = delay(p, kept_guarded, 1, name=f"kept_guarded_{i}")
            unit = delay(p, unit, 1, name=f"unit_{i}")
            residual = delay(p, self.residual.payload[i], 3, name=f"residual_{i}")
            whole = saturate(round_shift(dense_guarded + residual, guard), number.operand_bits)
            results.append(Mux(reuse, whole, unit))
            residuals.append(saturate(dense_guarded - kept_guarded, number.sharing_bits))

        cycles = self.LATENCY - 1
        valid = delay(p, accept, cycles, name="valid", reset_less=False)
        last = delay(p, here.last, cycles, name="last")
        enable = delay(p, here.enable, cycles, name="enable")
        outputs = {"o": (self.o, valid), "r": (self.r, valid & refresh)}
        fields = {
            "o": {"data": masked(results, enable), "last": last},
            "r": {"data": masked(residuals, enable), "last": last},
        }
        m.d.comb += advance.eq(offer(m, outputs, fields))
        m.submodules.pipeline = EnableInserter(advance)(p)
        inside = busy(m, rows.accept, row_left(self.o), rows.depth + self.LATENCY + 1)
        m.d.comb += self.busy.eq(inside | self.r.valid)
        return m
