"""Commands of the store queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from disc.config import CoreConfig
from disc.program import sizes
from disc.program.access import Access, Accesses, ListState, Space, Window
from disc.program.fields import Command, Queue, address, flag, operand, stride
from disc.program.load import RowCommand, mask_accesses

MAX_PATCH = 4
"""Largest edge of a patch in pixels."""

MAX_LATENT_CHANNELS = 16
"""Most channels of a latent."""


def _max_width(config: CoreConfig) -> int:
    return config.selector.max_width


def _max_score(config: CoreConfig) -> int:
    """All ones: above any score."""
    s = config.selector
    beats = -(-MAX_PATCH * MAX_LATENT_CHANNELS // s.pixels)
    values = MAX_PATCH * beats * s.pixels
    return (1 << (values * ((2 << s.latent_bits) - 2)).bit_length()) - 1


class Change(IntEnum):
    """What is summed over a patch."""

    DIFFERENCE = 0
    """|z - reference|"""
    SECOND_DIFFERENCE = 1
    """|z - 2 reference + previous|"""


@dataclass(frozen=True, kw_only=True)
class StoreMasks(RowCommand):
    """Scatter rows of the mask memory to DRAM, as `load_masks` reads them."""

    OPCODE: ClassVar[int] = 24
    QUEUE: ClassVar[Queue] = Queue.STORE
    NAME: ClassVar[str] = "store_masks"

    dram: int = address("mask of token 0, lines of the mask memory in bank order")
    stride: int = stride("from token to token", default=0)
    columns: int = operand(
        "columns", sizes.most_columns, low=1, unit="column", why="memory.columns"
    )
    slot: int = operand("first row slot", sizes.last_mask_slot, unit="row slot")
    single: int = flag("one mask, of one slot, to `dram`; the list does not matter")

    def check(self, config: CoreConfig) -> None:
        """See `Command.check`."""
        rows = 1 if self.single else self.rows
        sizes.require_room("slot", "the tile", self.slot, rows, config.memory.query_rows, "slot")

    def accesses(self, config: CoreConfig, lists: Mapping[int, Window]) -> Accesses:
        """See `Command.accesses`."""
        return mask_accesses(self, config, lists, to_dram=True)


@dataclass(frozen=True, kw_only=True)
class Select(Command):
    """Score the tokens of a latent and write two lists: those to compute and those to reuse.

    Latents are int16 [rows * patch, columns * patch, channels]; a value that leaves
    `selector.latent_bits` fails the command.  The lists lie apart from all latents, and with
    `update` the reference from the latent.
    """

    OPCODE: ClassVar[int] = 25
    QUEUE: ClassVar[Queue] = Queue.STORE
    NAME: ClassVar[str] = "select"

    grid_rows: int = operand("rows of patches", _max_width, low=1, why="selector.max_width")
    grid_columns: int = operand("columns of patches", _max_width, low=1, why="selector.max_width")
    patch: int = operand("edge of a patch", MAX_PATCH, low=1, unit="pixel")
    channels: int = operand("channels of the latent", MAX_LATENT_CHANNELS, low=1)
    mode: Change = operand("what is summed over a patch", Change, default=0)
    threshold: int = operand("tokens with a score of at least this are computed", _max_score)
    latent: int = address("latent of this step", align=2)
    reference: int = address("latent to compare with", align=2)
    previous: int = address("SECOND_DIFFERENCE: that of two steps before", align=2, default=0)
    update: int = flag("copy the patches of computed tokens into the reference")
    selected: int = address("list of the tokens to compute", align=4)
    reused: int = address("list of the others", align=4)

    @property
    def tokens(self) -> int:
        """N."""
        return self.grid_rows * self.grid_columns

    @property
    def values_of_latent(self) -> int:
        """Values of a latent."""
        return self.tokens * self.patch**2 * self.channels

    def check(self, config: CoreConfig) -> None:
        """See `Command.check`."""
        lists = (("selected", self.selected), ("reused", self.reused))
        length = sizes.LIST_HEADER_BYTES + self.tokens * sizes.ENTRY_BYTES
        sizes.require_apart("reused", lists, (length, length))
        # Lists are written while latents are read, patches while the latent is read again.
        latents = [("latent", self.latent), ("reference", self.reference)]
        if self.mode == Change.SECOND_DIFFERENCE:
            latents.append(("previous", self.previous))
        size = self.values_of_latent * sizes.LATENT_BYTES
        for one in lists:
            for latent in latents:
                sizes.require_apart(one[0], (latent, one), (size, length))
        if self.update:
            sizes.require_apart("reference", latents[:2], (size, size))

    def follow(self, lists: ListState) -> None:
        """See `Command.follow`."""
        lists.written(self.selected)
        lists.written(self.reused)

    def accesses(self, config: CoreConfig, lists: Mapping[int, Window]) -> Accesses:
        """See `Command.accesses`."""
        length = self.values_of_latent * sizes.LATENT_BYTES
        read = [self.latent, self.reference]
        if self.mode == Change.SECOND_DIFFERENCE:
            read.append(self.previous)
        found = [Access(Space.DRAM, False, start, length) for start in read]
        if self.update:
            found.append(Access(Space.DRAM, True, self.reference, length))
        length = sizes.LIST_HEADER_BYTES + self.tokens * sizes.ENTRY_BYTES
        return found + [
            Access(Space.DRAM, True, start, length) for start in (self.selected, self.reused)
        ]


@dataclass(frozen=True, kw_only=True)
class Fence(Command):
    """Nothing behind it starts, in any queue, before all that is ahead of it is complete."""

    OPCODE: ClassVar[int] = 26
    QUEUE: ClassVar[Queue] = Queue.STORE
    NAME: ClassVar[str] = "fence"

    def check(self, config: CoreConfig) -> None:
        """See `Command.check`."""
        if self.wait or self.signal:
            raise ValueError("wait, signal: a fence has none, it waits for all")

    def accesses(self, config: CoreConfig, lists: Mapping[int, Window]) -> Accesses:
        """See `Command.accesses`."""
        return []
