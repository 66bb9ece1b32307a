"""What a row leaves in its banks between dot and axpy: kept columns and their scores."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from hw.sram import Sram

__all__ = ["RowStore"]


class RowStore(wiring.Component):
    """Per bank, the local indices and the scores of the kept columns of the rows in flight.

    Entries are stored in the order in which the bank will visit them, so dot and axpy both just
    count up; scores never leave the bank of their column.  Reads take one cycle; all banks read
    the same entry.

    Parameters
    ----------
    config : CoreConfig

    Members
    -------
    list_valid : In, [B]
    list_slot : In
    list_position : In, [B]
    list_local : In, [B]
        Writes a kept column of a row into its list.
    score_valid : In, [B]
    score_slot, score_position : In
    score_in : In, [B]
        Writes the scores of one entry of all banks.
    en, slot, position : In
        Reads an entry.
    local, score : Out, [B]
    """

    def __init__(self, config: CoreConfig):
        self.config = config
        B, local_bits = config.array.banks, config.local_bits
        slot = range(config.array.rows_in_flight)
        score = data.ArrayLayout(signed(config.number.score_bits), B)
        locals_ = data.ArrayLayout(local_bits, B)
        super().__init__(
            {
                "list_valid": In(B),
                "list_slot": In(slot),
                "list_position": In(locals_),
                "list_local": In(locals_),
                "score_valid": In(B),
                "score_slot": In(slot),
                "score_position": In(local_bits),
                "score_in": In(score),
                "en": In(1),
                "slot": In(slot),
                "position": In(local_bits),
                "local": Out(locals_),
                "score": Out(score),
            }
        )

    def elaborate(self, platform):
        m = Module()
        depth = self.config.array.rows_in_flight << self.config.local_bits
        for b in range(self.config.array.banks):
            m.submodules[f"list_{b}"] = list_ = Sram(self.config.local_bits, depth)
            m.submodules[f"score_{b}"] = score = Sram(signed(self.config.number.score_bits), depth)
            m.d.comb += [
                list_.write_en.eq(self.list_valid[b]),
                list_.write_address.eq(Cat(self.list_position[b], self.list_slot)),
                list_.write_data.eq(self.list_local[b]),
                score.write_en.eq(self.score_valid[b]),
                score.write_address.eq(Cat(self.score_position, self.score_slot)),
                score.write_data.eq(self.score_in[b]),
                self.local[b].eq(list_.read_data),
                self.score[b].eq(score.read_data),
            ]
            for memory in (list_, score):
                m.d.comb += [
                    memory.read_en.eq(self.en),
                    memory.read_address.eq(Cat(self.position, self.slot)),
                ]
        return m
