"""Loads the engine's memories by the backdoor."""

from __future__ import annotations

from typing import Any

import numpy as np

from disc.config import CoreConfig
from disc.hashing import BankHash
from disc.program import FuseCommand
from hw.array.column_constants import Constants
from hw.command import RowEntry
from hw_tests.lib import encode
from hw_tests.sim import pack_words, write_memory

__all__ = ["ROW_FIELDS", "columns", "constants", "masks", "row_list", "rows", "table"]

ROW_FIELDS = ("token", "outside", "maximum", "total")


def _beats(x: np.ndarray, config: CoreConfig, beats: int) -> np.ndarray:
    """Pad rows [n, d] with zeros to [n, beats, L]."""
    lanes = config.array.lanes
    padded = np.zeros((len(x), beats * lanes), dtype=np.int64)
    padded[:, : x.shape[1]] = x
    return padded.reshape(len(x), beats, lanes)


def columns(
    dut: Any, config: CoreConfig, hash_: BankHash, x: np.ndarray, beats: int, base: int
) -> None:
    """Put columns [n, d] into their banks."""
    index = np.arange(len(x))
    bank, local = hash_.bank(index), hash_.local(index)
    groups = -(-len(x) // config.array.banks)
    words = _beats(x, config, beats)
    for b in range(config.array.banks):
        image = np.zeros((beats, groups, config.array.lanes), dtype=np.int64)
        mine = bank == b
        image[:, local[mine]] = words[mine].transpose(1, 0, 2)
        memory = getattr(dut.engine.distributor, f"bank_{b}").words
        flat = image.reshape(beats * groups, config.array.lanes)
        write_memory(memory, pack_words(flat, config.number.operand_bits), offset=base)


def rows(
    dut: Any, config: CoreConfig, command: FuseCommand, x: np.ndarray, slots: list[int]
) -> None:
    """Put rows [n, d] into their slots of the row buffer."""
    for slot, row in zip(slots, _beats(x, config, command.beats), strict=True):
        words = pack_words(row, config.number.operand_bits)
        offset = command.row_base + slot * command.stride(config)
        write_memory(dut.engine.queries_buffer.words, words, offset=offset)


def row_list(dut: Any, config: CoreConfig, slots: list[int], values: dict[str, np.ndarray]) -> None:
    """Put entries with these `ROW_FIELDS` [rows] into the list of rows."""
    entry = RowEntry(config)
    for i, slot in enumerate(slots):
        fields = {name: int(value[i]) for name, value in values.items()}
        word = encode(entry, {"slot": slot, "last": i == len(slots) - 1, **fields})
        write_memory(dut.row_list.words, [word], offset=i)


def masks(
    dut: Any, config: CoreConfig, hash_: BankHash, mask: np.ndarray, slots: list[int]
) -> None:
    """Put masks [n, columns] into slots of the mask memory, with ones where no column is."""
    bits = config.memory.mask_word_bits
    dropped = hash_.to_bank_order(~mask.astype(bool))
    padded = ~np.pad(dropped, ((0, 0), (0, 0), (0, -dropped.shape[2] % bits)))
    for b in range(config.array.banks):
        memory = getattr(dut.engine.mask, f"mask_{b}").words
        for slot, row in zip(slots, padded[:, b], strict=True):
            words = pack_words(row.reshape(-1, bits).astype(np.int64), 1)
            write_memory(memory, words, offset=slot * config.mask_words_per_row)


def constants(dut: Any, config: CoreConfig, hash_: BankHash, base: int, values: np.ndarray) -> None:
    """Put bias, multiplier and shift [columns, 3] beside their banks."""
    index = np.arange(len(values))
    bank, local = hash_.bank(index), hash_.local(index)
    shape = Constants(config)
    for j, (bias, multiplier, shift) in enumerate(values.tolist()):
        word = encode(shape, {"bias": bias, "multiplier": multiplier, "shift": shift})
        memory = getattr(dut.engine.column_constants, f"bank_{bank[j]}").words
        write_memory(memory, [word], offset=base + int(local[j]))


def table(dut: Any, config: CoreConfig, values: np.ndarray) -> None:
    """Put a function's table [2**operand_bits], most negative input first, beside every bank."""
    # Inputs are addresses as they are, so 0 comes first.
    by_address = np.roll(values, len(values) // 2)
    words = pack_words(by_address[:, None], config.number.operand_bits)
    for b in range(config.array.banks):
        write_memory(getattr(dut.engine.activation.table, f"table_{b}").words, words)
