"""Random commands of the store queue, on images that they fit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from disc.config import CoreConfig
from disc.program import Change, Command, Select, StoreMasks, sizes
from disc.program.access import LISTS
from disc.program.store import MAX_LATENT_CHANNELS, MAX_PATCH
from golden.ctr import patch_sums
from hw.units.store.selector import score_bits

__all__ = ["Case", "Latents"]

ALL, NONE = "all", "none"
"""Thresholds that select every token, and no token."""


@dataclass
class Latents:
    """Three latents [h, w, channels], and their place in DRAM."""

    z: np.ndarray
    reference: np.ndarray
    previous: np.ndarray
    patch: int

    def scores(self, mode: Change) -> np.ndarray:
        """The definition."""
        change = self.z - self.reference
        if mode == Change.SECOND_DIFFERENCE:
            change = change - self.reference + self.previous
        return patch_sums(np.abs(change).transpose(2, 0, 1), self.patch)


@dataclass
class Case:
    """An image, what the core holds, and commands."""

    config: CoreConfig
    rng: np.random.Generator
    pauses: tuple[str, str, str] = ("never", "never", "never")
    latency: tuple[tuple[int, int], tuple[int, int]] = ((1, 1), (1, 1))
    commands: list[Command] = field(default_factory=list)

    def __post_init__(self) -> None:
        config = self.config
        row = config.mask_words_per_row * sizes.mask_line_bytes(config)
        shape = config.memory.query_rows, row
        self.masks = self.rng.integers(0, 256, shape).astype(np.uint8)
        self.tokens = config.memory.query_rows + int(self.rng.integers(30))
        most = config.memory.query_rows
        counts = [0, 1, most, int(self.rng.integers(0, most + 1))]
        self.lists = [self.rng.permutation(self.tokens)[:count] for count in counts[:LISTS]]
        self._parts: list[np.ndarray] = []
        self._size = 0

    @property
    def image(self) -> np.ndarray:
        """DRAM from address 0, whole requests."""
        fill = -self._size % (self.config.bus.burst * self.config.bus.word_bytes)
        return np.concatenate([*self._parts, self._noise(fill)])

    def _noise(self, count: int) -> np.ndarray:
        return self.rng.integers(0, 256, count).astype(np.uint8)

    def place(self, content: np.ndarray | int, align: int = 1) -> int:
        """Put bytes, or so many random ones, behind a gap; return their address."""
        raw = self._noise(content) if isinstance(content, int) else content
        gap = int(self.rng.integers(0, 40))
        gap += -(self._size + gap) % align
        address = self._size + gap
        self._parts += [self._noise(gap), raw]
        self._size = address + len(raw)
        return address

    def _up_to(self, most: int) -> int:
        """In [1, most], both ends more likely."""
        return int(self.rng.choice([1, most, *self.rng.integers(1, most + 1, 6)]))

    def store_masks(self, **fixed: int) -> None:
        """Add a command on any slots, with rows that may overlap in DRAM."""
        most = self.config.memory.query_rows
        columns = fixed.get("columns", self._up_to(self.config.memory.columns))
        single = fixed.get("single", int(self.rng.random() < 0.3))
        rows = fixed.get("rows", self._up_to(most))
        slot = fixed.get("slot", int(self.rng.integers(0, most - (1 if single else rows) + 1)))
        length = sizes.mask_row_bytes(columns, self.config)
        stride = fixed.get("stride", int(self.rng.choice([length, length + 3, 2 * length + 1, 5])))
        self.commands.append(
            StoreMasks(
                list=fixed.get("list", int(self.rng.integers(LISTS))),
                rows=rows,
                dram=self.place(length + (self.tokens - 1) * stride, fixed.get("align", 1)),
                stride=stride,
                columns=columns,
                slot=slot,
                single=single,
            )
        )

    def latents(self, rows: int, columns: int, patch: int, channels: int) -> Latents:
        """Latents that differ by little in some patches and by much in others."""
        bits = self.config.selector.latent_bits
        low, high = -(1 << (bits - 1)), 1 << (bits - 1)
        shape = rows * patch, columns * patch, channels
        reference = self.rng.integers(low, high, shape)
        scale = self.rng.choice([1, 5, 300, high], (rows, columns))
        scale = np.kron(scale, np.ones((patch, patch), np.int64))[:, :, None]

        def near(values: np.ndarray) -> np.ndarray:
            change = self.rng.integers(-scale, scale + 1, shape)
            return np.clip(values + change, low, high - 1)

        return Latents(near(reference), reference, near(reference), patch)

    def select(self, values: int, latents: Latents | None = None, **fixed: Any) -> Select:
        """Add a selection on an image of about so many values; return it."""
        s = self.config.selector
        patch = fixed.get("patch", int(self.rng.integers(1, MAX_PATCH + 1)))
        channels = fixed.get("channels", int(self.rng.choice([1, 3, 4, 4, 7, MAX_LATENT_CHANNELS])))
        tokens = max(1, values // (patch * patch * channels))
        columns = fixed.get("columns", int(self.rng.integers(1, min(s.max_width, tokens) + 1)))
        rows = fixed.get("rows", max(1, min(s.max_width, tokens // columns)))
        latents = latents or self.latents(rows, columns, patch, channels)
        mode = fixed.get("mode", Change(self.rng.integers(2)))
        scores = latents.scores(mode)
        # A score that occurs, so that equality is met; one above; everything; nothing.
        one, largest = int(self.rng.choice(scores)), (1 << score_bits(self.config)) - 1
        threshold = fixed.get("threshold", int(self.rng.choice([one, one + 1, one, 0, largest])))
        threshold = {ALL: 0, NONE: largest}.get(threshold, threshold)
        length = sizes.LIST_HEADER_BYTES + rows * columns * sizes.ENTRY_BYTES
        where = {
            name: self.place(
                getattr(latents, field).astype("<i2").reshape(-1).view(np.uint8),
                fixed.get("align", sizes.LATENT_BYTES),
            )
            for name, field in (("latent", "z"), ("reference",) * 2, ("previous",) * 2)
        }
        command = Select(
            grid_rows=rows,
            grid_columns=columns,
            patch=patch,
            channels=channels,
            mode=mode,
            threshold=threshold,
            **where,
            update=fixed.get("update", int(self.rng.integers(2))),
            selected=self.place(length, 4),
            reused=self.place(length, 4),
        )
        self.commands.append(command)
        return command

    def shuffle(self) -> None:
        """Bring the commands into any order."""
        self.commands = [self.commands[i] for i in self.rng.permutation(len(self.commands))]

    def add(self, commands: Iterable[Command]) -> None:
        """Append commands."""
        self.commands += commands
