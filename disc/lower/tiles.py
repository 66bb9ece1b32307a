"""How work is cut to what a core holds."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

from disc.config import CoreConfig
from disc.program import sizes


@dataclass(frozen=True)
class Tile:
    """Some rows or columns."""

    first: int
    count: int


def split(total: int, most: int, multiple: int = 1) -> list[Tile]:
    """Cut `total` into as few parts as possible, about equal, each a multiple but for the last."""
    parts = -(-total // most)
    size = min(most, -(-total // (parts * multiple)) * multiple)
    return [Tile(first, min(size, total - first)) for first in range(0, total, size)]


@dataclass(frozen=True)
class Room:
    """Places in a memory for tiles of equal size."""

    most: int
    """Rows or columns of a tile."""
    bases: tuple[int, ...]
    """Where a tile may lie: two places if loading shall overlap with work."""


def room_for_columns(
    config: CoreConfig, words: int, total: int, what: str, *, whole: bool = False
) -> Room:
    """Room in the banks for columns of `words` words: two halves, or one place.

    Parameters
    ----------
    whole
        Prefer one place that holds all `total` columns over two that do not.

    Raises
    ------
    ValueError
        Not even one group of columns fits.
    """
    a, capacity = config.array, config.memory.bank_words
    need = -(-total // a.banks)
    half, full = capacity // 2 // words, capacity // words
    if not full:
        raise ValueError(
            f"{what}: a column takes {words} words, memory.bank_words is {capacity} in "
            f"configuration {config.name!r}"
        )
    single = not half or (whole and half < need <= min(full, config.columns_per_bank))
    groups = min(full if single else half, config.columns_per_bank)
    return Room(groups * a.banks, (0,) if single else (0, capacity // 2))


def room_for_rows(config: CoreConfig, words: int, what: str, *, slots: int = 0) -> Room:
    """Room in the row buffer for rows of `words` words, at most `slots` of them."""
    capacity = config.query_words
    half, full = capacity // 2 // words, capacity // words
    if not full:
        raise ValueError(
            f"{what}: a row takes {words} words, the row buffer has {capacity} in configuration "
            f"{config.name!r}; memory.row_words limits it"
        )
    most = min(half or full, slots or config.memory.query_rows)
    return Room(most, (0, capacity // 2) if half else (0,))


class Places:
    """Places of a memory with what they hold; the one filled longest ago is filled next."""

    def __init__(self, bases: Sequence[int]) -> None:
        self._held: dict[Hashable, int] = {}
        self._free = list(bases)

    def get(self, key: Hashable, fill: Callable[[int], None]) -> int:
        """Where `key` is, after filling a place with it if it is nowhere."""
        if key not in self._held:
            oldest = next(iter(self._held), None)
            base = self._free.pop(0) if self._free else self._held.pop(oldest)
            fill(base)
            self._held[key] = base
        return self._held[key]


def visits(
    rows: Sequence[Tile], tiles: int, row_bytes: int, tile_bytes: int
) -> Iterator[tuple[int, int]]:
    """Order of (row tile, column tile) in which less is loaded.

    Parameters
    ----------
    row_bytes, tile_bytes
        To load all rows once, all column tiles once.
    """
    rows_outer = row_bytes + tile_bytes * len(rows)
    tiles_outer = tile_bytes + row_bytes * tiles
    if tiles == 1 or len(rows) == 1 or rows_outer <= tiles_outer:
        yield from ((r, t) for r in range(len(rows)) for t in range(tiles))
    else:
        yield from ((r, t) for t in range(tiles) for r in range(len(rows)))


def key_tiles(config: CoreConfig, tokens: int, head_dim: int) -> list[Tile]:
    """Key tiles of attention: one if the banks hold all keys."""
    return split(tokens, key_room(config, tokens, head_dim).most, config.array.banks)


def key_room(config: CoreConfig, tokens: int, head_dim: int) -> Room:
    """Room for K and V of a key tile."""
    words = 2 * sizes.words(head_dim, config)
    return room_for_columns(config, words, tokens, "keys and values", whole=True)


def hidden_tiles(config: CoreConfig, width: int, hidden: int) -> list[Tile]:
    """Tiles of the MLP's hidden units."""
    return split(hidden, hidden_room(config, width, hidden).most, config.array.banks)


def hidden_room(config: CoreConfig, width: int, hidden: int) -> Room:
    """Room for the columns of fc1 and fc2 of some hidden units."""
    words = 2 * sizes.words(width, config)
    return room_for_columns(config, words, hidden, "fc1 and fc2")
