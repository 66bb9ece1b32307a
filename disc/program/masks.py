"""Mask rows as DRAM and the mask memory hold them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from disc.config import CoreConfig
from disc.hashing import BankHash
from disc.program import sizes


def pack_masks(masks: NDArray[np.bool_], hash_: BankHash, config: CoreConfig) -> NDArray[np.uint8]:
    """Return masks [rows, columns] as lines of the mask memory, [rows, bytes]."""
    in_banks = hash_.to_bank_order(masks)
    rows, banks, groups = in_banks.shape
    bits = config.memory.mask_word_bits
    words = -(-groups // bits)
    padded = np.zeros((rows, banks, words * bits), bool)
    padded[..., :groups] = in_banks
    lines = padded.reshape(rows, banks, words, bits).transpose(0, 2, 1, 3)
    flat = lines.reshape(rows, words, banks * bits)
    packed = np.packbits(flat, axis=2, bitorder="little")
    return packed.reshape(rows, words * sizes.mask_line_bytes(config))


def unpack_masks(
    lines: NDArray[np.integer], columns: int, hash_: BankHash, config: CoreConfig
) -> NDArray[np.bool_]:
    """Undo `pack_masks`: bytes [rows, bytes] to masks [rows, columns]."""
    bits, banks, line = config.memory.mask_word_bits, hash_.banks, sizes.mask_line_bytes(config)
    rows = len(lines)
    words = sizes.mask_row_bytes(columns, config) // line
    flat = np.unpackbits(
        lines.astype(np.uint8).reshape(rows, words, line), axis=2, bitorder="little"
    )[..., : banks * bits].astype(bool)
    by_bank = flat.reshape(rows, words, banks, bits).transpose(0, 2, 1, 3)
    in_banks = by_bank.reshape(rows, banks, words * bits)
    return hash_.from_bank_order(in_banks[..., : sizes.groups(columns, config)], columns)
