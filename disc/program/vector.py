"""Commands of the vector queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from disc.config import CoreConfig
from disc.program import sizes
from disc.program.access import Access, Accesses, Space, Window, row_slots
from disc.program.fields import Queue, address, flag, operand, stride
from disc.program.load import RowCommand
from disc.tables import DISTANCE_BITS

EPSILON_BITS = 48


def _width() -> Any:
    return operand(
        "D, elements of a row",
        sizes.most_channels,
        low=1,
        unit="element",
        why="vector.max_channels",
    )


@dataclass(frozen=True, kw_only=True)
class Norm(RowCommand):
    """LayerNorm and modulation of rows of the residual stream, into the row buffer."""

    OPCODE: ClassVar[int] = 8
    QUEUE: ClassVar[Queue] = Queue.VECTOR
    NAME: ClassVar[str] = "norm"

    dram: int = address("element 0 of token 0 of the residual stream, int16", align=2)
    stride: int = stride("from token to token", align=2)
    width: int = _width()
    vectors: int = address(
        "modulation: shift uint16, 6 zero bytes, multipliers int16 [D], biases int16 [D]", align=2
    )
    epsilon: int = operand("added to D**2 times the variance", (1 << EPSILON_BITS) - 1)
    base: int = operand("first word of the row buffer", sizes.last_row_word, unit="word")

    def check(self, config: CoreConfig) -> None:
        """See `Command.check`."""
        length = self.rows * sizes.words(self.width, config)
        sizes.require_room("base", "the rows", self.base, length, config.query_words, "word")

    def accesses(self, config: CoreConfig, lists: Mapping[int, Window]) -> Accesses:
        """See `Command.accesses`."""
        window = self.window(lists)
        length = self.width * sizes.RESIDUAL_BYTES
        vectors = sizes.HEADER_BYTES + 2 * self.width * sizes.VECTOR_BYTES
        words = sizes.words(self.width, config)
        return [
            self.reads_list(),
            Access(Space.DRAM, False, self.dram, length, self.stride, window=window),
            Access(Space.DRAM, False, self.vectors, vectors),
            row_slots(Space.ROWS, True, self.base, self.rows, words),
        ]


@dataclass(frozen=True, kw_only=True)
class _Branch(RowCommand):
    """What `Forecast` and `Record` share."""

    x: int = address("residual stream of token 0, int16", align=2)
    embedding: int = address("embedding of token 0, int16", align=2)
    last: int = address("branch sum of token 0 when it was last computed, int16", align=2)
    before: int = address("the same, the time before, int16", align=2)
    ages: int = address(
        "step int32, 4 zero bytes, then of every token the steps of last and before, int16, "
        "-1 for none",
        align=4,
    )
    stride: int = stride("from token to token in all four", align=2)
    width: int = _width()

    def _row(self, dram: int, write: bool, window: Window) -> Access:
        length = self.width * sizes.RESIDUAL_BYTES
        return Access(Space.DRAM, write, dram, length, self.stride, window=window)

    def _ages(self, write: bool, window: Window) -> Access:
        start = self.ages + sizes.HEADER_BYTES
        return Access(Space.DRAM, write, start, sizes.AGE_BYTES, sizes.AGE_BYTES, window=window)

    def _now(self) -> Access:
        return Access(Space.DRAM, False, self.ages, sizes.HEADER_BYTES)


@dataclass(frozen=True, kw_only=True)
class Forecast(_Branch):
    """Reused tokens: x = embedding + branch sum extrapolated from its last two values."""

    OPCODE: ClassVar[int] = 9
    QUEUE: ClassVar[Queue] = Queue.VECTOR
    NAME: ClassVar[str] = "forecast"

    ratios: int = address("2**6 ratios uint32, see `step_ratio_table`", align=4)
    hold: int = flag("take the last value as it is")

    def accesses(self, config: CoreConfig, lists: Mapping[int, Window]) -> Accesses:
        """See `Command.accesses`."""
        window = self.window(lists)
        found = [
            self.reads_list(),
            self._row(self.embedding, False, window),
            self._row(self.last, False, window),
            self._row(self.x, True, window),
        ]
        if not self.hold:
            ratios = sizes.RATIO_BYTES << DISTANCE_BITS
            found += [
                self._row(self.before, False, window),
                self._ages(False, window),
                self._now(),
                Access(Space.DRAM, False, self.ratios, ratios),
            ]
        return found


@dataclass(frozen=True, kw_only=True)
class Record(_Branch):
    """Computed tokens: last becomes before, x - embedding becomes last; their steps likewise."""

    OPCODE: ClassVar[int] = 10
    QUEUE: ClassVar[Queue] = Queue.VECTOR
    NAME: ClassVar[str] = "record"

    def accesses(self, config: CoreConfig, lists: Mapping[int, Window]) -> Accesses:
        """See `Command.accesses`."""
        window = self.window(lists)
        return [
            self.reads_list(),
            self._row(self.x, False, window),
            self._row(self.embedding, False, window),
            self._row(self.last, False, window),
            self._row(self.last, True, window),
            self._row(self.before, True, window),
            self._ages(False, window),
            self._ages(True, window),
            self._now(),
        ]
