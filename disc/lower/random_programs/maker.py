"""Draws numbers, buffers and what several scenes need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from disc.config import CoreConfig
from disc.lower.buffers import list_bytes
from disc.lower.layout import Image, Layout
from disc.program import LoadColumns, LoadConstants, LoadList, LoadRows, sizes
from disc.program.access import LISTS
from disc.program.build import Builder
from disc.program.program import Buffer, BufferKind

Fill = Callable[[Image], None]
Emit = Callable[[Builder], None]


@dataclass(frozen=True)
class Rows:
    """A window of a list in a list buffer."""

    buffer: int
    rows: int


class Maker:
    """What all scenes of a program share: memory image, row lists, residual stream."""

    def __init__(self, config: CoreConfig, rng: np.random.Generator) -> None:
        self.config, self.rng = config, rng
        self.layout, self.fills = Layout(), list[Fill]()
        self._count = 0
        self.tokens = self.integer(4, 30)
        most = config.query_words * config.array.lanes // 2
        self.width = self.integer(2, min(48, most, config.vector.max_channels))
        n, d = self.tokens, self.width
        self.x = self.noise("x", n * d * 2, "residual stream")
        self.lists = [self._list(f"list{i}") for i in range(2)]

    # -- drawing -------------------------------------------------------------------------------

    def integer(self, low: int, high: int) -> int:
        """Uniform in [low, high], both ends more likely."""
        if self.chance(0.15):
            return low
        return high if self.chance(0.15) else int(self.rng.integers(low, high + 1))

    def chance(self, p: float) -> bool:
        """True with probability p."""
        return bool(self.rng.random() < p)

    def pick(self, choices: Any) -> Any:
        """One of some."""
        options = list(choices)
        return options[int(self.rng.integers(len(options)))]

    def place(self, size: int, length: int) -> int:
        """Where `length` units may begin in a memory."""
        return self.integer(0, size - length)

    # -- buffers -------------------------------------------------------------------------------

    def add(self, name: str, size: int, kind: BufferKind, group: str) -> Buffer:
        """A buffer under a name that is free."""
        self._count += 1
        return self.layout.add(f"{name}.{self._count}", size, kind, group)

    def noise(self, name: str, size: int, group: str) -> Buffer:
        """A buffer of random bytes, which may be read and written."""
        buffer = self.add(name, size, BufferKind.STATE, group)
        values = self.rng.integers(0, 256, size)
        self.fills.append(lambda image: image.put(buffer, values, "u1"))
        return buffer

    def put(self, name: str, values: Any, kind: str, group: str) -> Buffer:
        """A buffer of numbers, which is only read."""
        array = np.asarray(values)
        size = array.size * np.dtype(kind).itemsize
        buffer = self.add(name, size, BufferKind.INPUT, group)
        self.fills.append(lambda image: image.put(buffer, array, kind))
        return buffer

    def _list(self, name: str) -> Buffer:
        buffer = self.add(name, list_bytes(self.tokens), BufferKind.INPUT, "lists")
        count = self.integer(0, self.tokens)
        entries = self.rng.permutation(self.tokens)[:count]
        self.fills.append(lambda image: image.put_list(buffer, entries.tolist()))
        return buffer

    def vectors(self, count: int, width: int) -> Buffer:
        """Vectors with a shift."""
        size = sizes.HEADER_BYTES + count * width * sizes.VECTOR_BYTES
        buffer = self.add("vectors", size, BufferKind.INPUT, "vectors")
        shift = self.pick([0, self.integer(4, 24), self.integer(0, 63)])
        values = self.rng.integers(-(1 << 15), 1 << 15, count * width)
        self.fills.append(lambda image: image.put_vectors(buffer, shift, values))
        return buffer

    def column_constants(self, columns: int) -> Buffer:
        """Constants under which results spread, or saturate."""
        buffer = self.add(
            "constants", columns * sizes.CONSTANT_BYTES, BufferKind.CONSTANT, "constants"
        )
        bias = self.rng.integers(-(1 << 12), 1 << 12, columns)
        multiplier = self.rng.integers(0, 1 << 16, columns)
        shift = self.rng.integers(self.integer(0, 20), 30, columns)
        self.fills.append(lambda image: image.put_constants(buffer, bias, multiplier, shift))
        return buffer

    # -- what several scenes need --------------------------------------------------------------

    def window(self, most: int) -> tuple[Rows, LoadList]:
        """A window of a list, and the command that loads it."""
        rows = self.integer(1, max(1, min(most, self.config.memory.query_rows, self.tokens)))
        first = self.integer(0, self.tokens - 1)
        buffer = self.integer(0, LISTS - 1)
        load = LoadList(
            list=buffer,
            dram=self.pick(self.lists).address,
            first=first,
            rows=rows,
            tokens=self.tokens,
        )
        return Rows(buffer, min(rows, self.tokens - first)), load

    def fit_width(self, most: int) -> int:
        """Elements of a row that the row buffer can hold."""
        return self.integer(1, min(most, self.config.query_words * self.config.array.lanes))

    def fit_columns(self, words: int) -> int:
        """Columns of `words` words that the banks can hold."""
        groups = min(self.config.memory.bank_words // words, self.config.columns_per_bank)
        return self.integer(1, groups * self.config.array.banks)

    def row_room(self, width: int) -> int:
        """Rows that the row buffer can hold."""
        return self.config.query_words // sizes.words(width, self.config)

    def operand_rows(self, rows: Rows, width: int) -> tuple[int, LoadRows]:
        """Rows in the row buffer: where, and the command that loads them."""
        source = self.noise("operands", self.tokens * width, "activations")
        base = self.place(self.config.query_words, rows.rows * sizes.words(width, self.config))
        load = LoadRows(
            list=rows.buffer,
            rows=rows.rows,
            dram=source.address,
            stride=width,
            width=width,
            base=base,
        )
        return base, load

    def columns(self, count: int, width: int, base: int) -> LoadColumns:
        """Loads a random matrix."""
        source = self.noise("matrix", count * width, "weights")
        return LoadColumns(dram=source.address, stride=width, columns=count, width=width, base=base)

    def two_bases(self, count: int, widths: tuple[int, int]) -> tuple[int, int]:
        """Where two images of the same columns lie in the banks."""
        groups = sizes.groups(count, self.config)
        first, second = (groups * sizes.words(w, self.config) for w in widths)
        start = self.place(self.config.memory.bank_words, first + second)
        return (start, start + first) if self.chance(0.5) else (start + second, start)

    def constants(self, count: int) -> tuple[int, LoadConstants]:
        """Constants of columns: where, and the command that loads them."""
        groups = sizes.groups(count, self.config)
        base = self.place(sizes.constant_entries(self.config), groups)
        return base, LoadConstants(
            dram=self.column_constants(count).address, columns=count, base=base
        )


def emit_all(*commands: Any) -> Emit:
    """Emit commands one after the other."""

    def emit(builder: Builder) -> None:
        for command in commands:
            builder.emit(command)

    return emit
