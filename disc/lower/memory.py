"""Between a memory image and what a block keeps from step to step."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from disc.config import CoreConfig
from disc.hashing import BankHash
from disc.lower.buffers import BlockBuffers, SharedBuffers
from disc.lower.layout import Image
from disc.lower.shape import BlockShape
from disc.lower.tiles import Tile, hidden_tiles, key_tiles
from disc.program import sizes
from disc.program.masks import pack_masks, unpack_masks

Int = NDArray[np.int64]
Bits = NDArray[np.bool_]


class BlockMemory:
    """What a block keeps in DRAM, in the shapes of the golden core.  H heads of d elements.

    Parameters
    ----------
    config, shape, hash_
        Sizes, and the hash of columns to banks, which orders the bits of masks.
    shared, buffers
        Where everything is.
    """

    def __init__(
        self,
        config: CoreConfig,
        shape: BlockShape,
        hash_: BankHash,
        shared: SharedBuffers,
        buffers: BlockBuffers,
    ) -> None:
        self.config, self.shape, self.hash = config, shape, hash_
        self.shared, self.buffers = shared, buffers

    @property
    def keys(self) -> list[Tile]:
        """Key tiles."""
        return key_tiles(self.config, self.shape.tokens, self.shape.head_dim)

    @property
    def hidden(self) -> list[Tile]:
        """Tiles of hidden units."""
        return hidden_tiles(self.config, self.shape.width, self.shape.hidden)

    def put_x(self, image: Image, x: Int) -> None:
        """Write the residual stream [N, D]."""
        image.put(self.shared.x, x, "<i2")

    def x(self, image: Image) -> Int:
        """Read the residual stream [N, D]."""
        return image.get(self.shared.x, (self.shape.tokens, self.shape.width), "<i2")

    def put_kv(self, image: Image, k: Int, v: Int) -> None:
        """Write keys and values [H, N, d]."""
        both = [part.transpose(1, 0, 2).reshape(self.shape.tokens, -1) for part in (k, v)]
        image.put(self.buffers.kv, np.concatenate(both, axis=1), "<i1")

    def kv(self, image: Image) -> tuple[Int, Int]:
        """Read keys and values [H, N, d]."""
        s = self.shape
        found = image.get(self.buffers.kv, (s.tokens, 2, s.heads, s.head_dim), "<i1")
        return found[:, 0].transpose(1, 0, 2), found[:, 1].transpose(1, 0, 2)

    def put_masks(self, image: Image, masks: Bits) -> None:
        """Write masks [H, N, N], rows are queries."""
        keys, length = self.keys, self._mask_bytes
        rows = np.zeros((self.shape.heads, len(keys), self.shape.tokens, length), np.uint8)
        for head, mask in enumerate(masks):
            for t, tile in enumerate(keys):
                part = pack_masks(mask[:, _slice(tile)], self.hash, self.config)
                rows[head, t, :, : part.shape[1]] = part
        image.put(self.buffers.masks, rows, "u1")

    def masks(self, image: Image) -> Bits:
        """Read masks [H, N, N]."""
        s, keys = self.shape, self.keys
        shape = (s.heads, len(keys), s.tokens, self._mask_bytes)
        rows = image.get(self.buffers.masks, shape, "u1")
        masks = np.zeros((s.heads, s.tokens, s.tokens), bool)
        for head in range(s.heads):
            for t, tile in enumerate(keys):
                length = sizes.mask_row_bytes(tile.count, self.config)
                masks[head, :, _slice(tile)] = unpack_masks(
                    rows[head, t, :, :length], tile.count, self.hash, self.config
                )
        return masks

    @property
    def _mask_bytes(self) -> int:
        return sizes.mask_row_bytes(self.keys[0].count, self.config)

    def put_residual(self, image: Image, residual: Int) -> None:
        """Write what masks dropped, [H, N, d]."""
        flat = residual.transpose(1, 0, 2).reshape(self.shape.tokens, -1)
        image.put(self.buffers.residual, flat, self._sharing)

    def residual(self, image: Image) -> Int:
        """Read what masks dropped, [H, N, d]."""
        s = self.shape
        found = image.get(self.buffers.residual, (s.tokens, s.heads, s.head_dim), self._sharing)
        return found.transpose(1, 0, 2)

    @property
    def _sharing(self) -> str:
        return f"<i{sizes.sharing_bytes(self.config)}"

    def put_hot(self, image: Image, hot: Bits) -> None:
        """Write hot columns [hidden]."""
        for offset, tile in self._hot_rows():
            row = pack_masks(hot[None, _slice(tile)], self.hash, self.config)
            image.put(self.buffers.hot, row, "u1", offset=offset)

    def hot(self, image: Image) -> Bits:
        """Read hot columns [hidden]."""
        parts = []
        for offset, tile in self._hot_rows():
            length = sizes.mask_row_bytes(tile.count, self.config)
            row = image.get(self.buffers.hot, (1, length), "u1", offset=offset)
            parts.append(unpack_masks(row, tile.count, self.hash, self.config)[0])
        return np.concatenate(parts)

    def _hot_rows(self) -> list[tuple[int, Tile]]:
        length = sizes.mask_row_bytes(self.hidden[0].count, self.config)
        return [(t * length, tile) for t, tile in enumerate(self.hidden)]


def _slice(tile: Tile) -> slice:
    return slice(tile.first, tile.first + tile.count)
