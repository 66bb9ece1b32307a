"""Random commands of the load queue, on an image that they fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from disc.config import CoreConfig
from disc.program import (
    Command,
    LoadColumns,
    LoadConstants,
    LoadList,
    LoadMasks,
    LoadRows,
    LoadTable,
    sizes,
)
from disc.program.access import LISTS

__all__ = ["KINDS", "Loads"]

KINDS = (LoadColumns, LoadConstants, LoadTable, LoadRows, LoadMasks, LoadList)


@dataclass
class Loads:
    """Commands with the image that they read."""

    config: CoreConfig
    rng: np.random.Generator
    size: int

    def __post_init__(self) -> None:
        self.image = self.rng.integers(0, 256, self.size).astype(np.uint8)
        self.tokens = int(self.rng.integers(3, 40))
        entries = self.rng.permutation(self.tokens)[: int(self.rng.integers(1, self.tokens + 1))]
        self.list = 4 * int(self.rng.integers(0, 20))
        words = np.array([len(entries), *entries], "<u4").view(np.uint8)
        self.image[self.list : self.list + len(words)] = words
        self.entries = len(entries)

    def _place(self, length: int, align: int = 1, low: int = 256) -> int:
        return low + align * int(self.rng.integers(0, (self.size - low - length) // align + 1))

    def _up_to(self, most: int) -> int:
        """In [1, most], both ends more likely."""
        return int(self.rng.choice([1, most, *self.rng.integers(1, most + 1, 8)]))

    def lists(self) -> list[Command]:
        """Fill all buffers, one at least with nothing."""
        found: list[Command] = []
        for buffer in range(LISTS):
            past = buffer == LISTS - 1 and self.entries < self.tokens
            first = self.entries if past else int(self.rng.integers(0, self.tokens))
            found.append(
                LoadList(
                    list=buffer,
                    dram=self.list,
                    first=first,
                    rows=self._up_to(self.config.memory.query_rows),
                    tokens=self.tokens,
                )
            )
        return found

    def draw(self, kind: type[Command], **fixed: int) -> Command:
        """A command whose places in DRAM and in its memory are random."""
        config = self.config
        fields: dict[str, Any] = {}
        if kind is LoadList:
            return self.lists()[int(self.rng.integers(LISTS))]
        if kind is LoadTable:
            return LoadTable(dram=self._place(sizes.table_bytes(config)))
        if kind in (LoadColumns, LoadConstants, LoadMasks):
            most = min(config.memory.columns, 60)
            fields["columns"] = fixed.get("columns", self._up_to(most))
        if kind is LoadConstants:
            groups = sizes.groups(fields["columns"], config)
            base = int(self.rng.integers(0, sizes.constant_entries(config) - groups + 1))
            dram = self._place(fields["columns"] * sizes.CONSTANT_BYTES, 4)
            return LoadConstants(dram=dram, base=base, **fields)
        if kind in (LoadRows, LoadMasks):
            fields["list"] = int(self.rng.integers(LISTS))
            fields["rows"] = config.memory.query_rows
        if kind is LoadMasks:
            fields["single"] = int(self.rng.random() < 0.3)
            rows = 1 if fields["single"] else fields["rows"]
            length = sizes.mask_row_bytes(fields["columns"], config)
            fields["slot"] = int(self.rng.integers(0, config.memory.query_rows - rows + 1))
        else:
            words = config.max_beats
            if kind is LoadColumns:
                groups = sizes.groups(fields["columns"], config)
                words = min(words, config.memory.bank_words // groups)
            length = fixed.get("width", self._up_to(words * config.array.lanes))
            fields["width"] = length
            used = sizes.words(length, config)
            if kind is LoadColumns:
                room = config.memory.bank_words - groups * used
            else:
                room = config.query_words - fields["rows"] * used
            fields["base"] = int(self.rng.integers(0, room + 1))
        count = self.tokens if kind is not LoadColumns else fields["columns"]
        # Rows may overlap, even be the same.
        most = (self.size - 256 - length) // count
        fields["stride"] = fixed.get("stride", int(self.rng.integers(0, min(most, 2 * length) + 1)))
        dram = self._place(length + (count - 1) * fields["stride"])
        return kind(dram=dram, **fields)
