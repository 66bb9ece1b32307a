"""Random commands of the vector queue, on images that they fit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from disc.config import CoreConfig
from disc.program import Command, Forecast, Norm, Record, sizes
from disc.program.access import LISTS
from disc.tables import DISTANCE_BITS, step_ratio_table

__all__ = ["KINDS", "Case"]

KINDS = (Norm, Forecast, Record)
MOST_ROWS = 9
"""In a list; hardware has no reason to care, and some configurations allow many."""


@dataclass
class Case:
    """An image, what the list buffers hold, and commands."""

    config: CoreConfig
    rng: np.random.Generator
    pauses: tuple[str, str, str] = ("never", "never", "never")
    """Of reads, of writes, of the row buffer."""
    latency: tuple[tuple[int, int], tuple[int, int]] = ((1, 1), (1, 1))
    """Least and most, of reads and of writes."""
    align: int = 2
    """Of rows."""
    commands: list[Command] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._parts: list[np.ndarray] = []
        self._end = 0
        self.tokens = int(self.rng.integers(MOST_ROWS, 30))
        most = min(MOST_ROWS, self.config.memory.query_rows)
        counts = [most, 1, 0, int(self.rng.integers(1, most + 1))]
        self.lists = [self.rng.permutation(self.tokens)[:count] for count in counts]
        assert len(self.lists) == LISTS

    # -- image ---------------------------------------------------------------------------------

    def put(self, values: np.ndarray, align: int) -> int:
        """Lay bytes down behind a gap; return where."""
        self._gap(-self._end % align + align * int(self.rng.integers(0, 9)))
        start = self._end
        self._append(values.view(np.uint8).ravel())
        return start

    def _gap(self, length: int) -> None:
        self._append(self.rng.integers(0, 256, length).astype(np.uint8))

    def _append(self, values: np.ndarray) -> None:
        self._parts.append(values)
        self._end += len(values)

    @property
    def image(self) -> np.ndarray:
        """All that was laid down, in whole bursts."""
        whole = self.config.bus.burst * self.config.bus.word_bytes
        if -self._end % whole:
            self._gap(-self._end % whole)
        return np.concatenate(self._parts)

    def residual(self, width: int, spread: float) -> np.ndarray:
        """Rows of all tokens as a network has them, some at the ends of the range."""
        limit = 1 << (self.config.number.residual_bits - 1)
        values = self.rng.normal(0, limit * spread, (self.tokens, width))
        values = np.where(self.rng.random(values.shape) < 0.03, np.sign(values) * limit, values)
        return np.clip(np.rint(values), -limit, limit - 1).astype(np.int64)

    def rows(self, values: np.ndarray, stride: int) -> int:
        """Lay rows down at a stride."""
        count, width = values.shape
        flat = self.rng.integers(0, 256, (count, stride)).astype(np.uint8)
        flat[:, : 2 * width] = values.astype("<i2").view(np.uint8)
        return self.put(flat, self.align)

    # -- commands ------------------------------------------------------------------------------

    def width(self, most: int) -> int:
        """Incomplete words of V and of L, and complete ones."""
        v, lanes = self.config.vector.lanes, self.config.array.lanes
        some = [1, v, v + 1, max(1, v - 1), lanes, lanes + 1, 2 * lanes, 2 * lanes + v]
        some += self.rng.integers(1, 50, 4).tolist()
        return min(most, self.config.vector.max_channels, int(self.rng.choice(some)))

    def add(self, kind: type[Command], *, ages: np.ndarray | None = None, **fixed: int) -> Command:
        """A command at random places; `fixed` gives some of its fields, or `step`.

        Ages [tokens, 2] are random by default.
        """
        number, rng = self.config.number, self.rng
        buffer = fixed.get("list", int(rng.choice([0, 0, 1, 2, 3, 3])))
        count = len(self.lists[buffer])
        rows = fixed.get("rows", int(rng.integers(max(1, count - 1), count + 2)))
        rows = min(rows, self.config.memory.query_rows)
        room = self.config.query_words // rows * self.config.array.lanes
        width = fixed.get("width") or self.width(room if kind is Norm else 1 << 12)
        stride = 2 * width + self.align * int(rng.choice([0, 0, 1, 5]))
        stride = fixed.get("stride", stride + -stride % self.align)
        fields: dict[str, Any] = {"list": buffer, "rows": rows, "stride": stride, "width": width}
        if kind is Norm:
            self.commands.append(self._norm(fields, **fixed))
            return self.commands[-1]
        last = self.residual(width, 0.3)
        before = last + np.rint(0.2 * self.residual(width, 0.3)).astype(np.int64)
        limit = 1 << (number.residual_bits - 1)
        for name, values in (
            ("x", self.residual(width, 0.4)),
            ("embedding", self.residual(width, 0.3)),
            ("last", last),
            ("before", np.clip(before, -limit, limit - 1)),
        ):
            fields[name] = self.rows(values, stride)
        step = fixed.get("step", int(rng.integers(2, 60)))
        if ages is None:
            ages = np.empty((self.tokens, 2), np.int64)
            ages[:, 0] = rng.integers(0, step, self.tokens)
            ages[:, 1] = [rng.integers(-1, max(0, one)) for one in ages[:, 0]]
        header = np.array([step, 0], "<i4").view(np.uint8)
        whole = np.concatenate([header, ages.astype("<i2").view(np.uint8).ravel()])
        fields["ages"] = self.put(whole, sizes.AGE_BYTES)
        if kind is Forecast:
            table = np.array(step_ratio_table(float(rng.choice([1.0, 0.5]))), "<u4")
            assert len(table) == 1 << DISTANCE_BITS
            fields["ratios"] = self.put(table, sizes.RATIO_BYTES)
            fields["hold"] = fixed.get("hold", int(rng.random() < 0.3))
        self.commands.append(kind(**fields))
        return self.commands[-1]

    def _norm(self, fields: dict[str, Any], **fixed: int) -> Norm:
        rng, width = self.rng, fields["width"]
        limit = (1 << (self.config.number.residual_bits - 1)) - 1
        x = self.residual(width, 0.3) // rng.integers(1, 60, (self.tokens, 1))
        fields["dram"] = self.rows(np.clip(x, -limit - 1, limit), fields["stride"])
        shift = int(rng.choice([24 - self.config.number.operand_bits + rng.integers(4), 0, 63]))
        vectors = rng.integers(-(1 << 15), 1 << 15, 2 * width).astype("<i2")
        header = np.array([shift, 0, 0, 0], "<u2")
        fields["vectors"] = self.put(np.concatenate([header, vectors.view("<u2")]), self.align)
        words = fields["rows"] * sizes.words(width, self.config)
        fields["base"] = int(rng.integers(0, self.config.query_words - words + 1))
        fields["epsilon"] = fixed.get("epsilon", int(rng.choice([0, 1, 1 << 20])))
        return Norm(**fields)
