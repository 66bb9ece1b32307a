"""Sizes of what commands read and write in DRAM, and ranges that several fields share."""

from __future__ import annotations

from collections.abc import Sequence

from disc.config import CoreConfig
from disc.program.access import constant_entries
from disc.program.fields import MAX_CHANNELS

RESIDUAL_BYTES = 2
"""Of an element of the residual stream and of branch sums."""

CONSTANT_BYTES = 8
"""Of one column's constants: bias int32, multiplier uint16, shift uint8, a zero."""

VECTOR_BYTES = 2
"""Of an element of a modulation or gate vector."""

HEADER_BYTES = 8
"""Ahead of vectors (shift uint16, zeros) and of the tokens' ages (step int32, zeros)."""

LIST_HEADER_BYTES = 4
ENTRY_BYTES = 4
"""A list is its length, uint32, and the token indices, uint32."""

AGE_BYTES = 4
"""Of a token's ages: step of `last` int16, step of `before` int16, -1 for none."""

RATIO_BYTES = 4
"""Of an entry of the forecast's ratios, uint32."""

LATENT_BYTES = 2
"""Of a latent value."""

STATE_HEADER_BYTES = 8
"""Of the state of a row between key tiles: maximum int32, total uint32; its sums follow."""


def accumulator_bytes(config: CoreConfig) -> int:
    """Of an accumulator or bias vector element in DRAM."""
    return 4 if config.number.accumulator_bits <= 32 else 8


def sharing_bytes(config: CoreConfig) -> int:
    """Of an element of what residual sharing keeps."""
    return 1 if config.number.sharing_bits <= 8 else 2


def state_bytes(config: CoreConfig, width: int) -> int:
    """Of the state of a row of `width` elements between key tiles."""
    return STATE_HEADER_BYTES + width * accumulator_bytes(config)


def table_bytes(config: CoreConfig) -> int:
    """Of a GELU table."""
    return 1 << config.number.operand_bits


def words(width: int, config: CoreConfig) -> int:
    """Words of `array.lanes` elements in a row."""
    return -(-width // config.array.lanes)


def groups(columns: int, config: CoreConfig) -> int:
    """Columns that the fullest bank holds."""
    return -(-columns // config.array.banks)


def mask_line_bytes(config: CoreConfig) -> int:
    """Of one mask word of every bank."""
    return -(-config.array.banks * config.memory.mask_word_bits // 8)


def mask_row_bytes(columns: int, config: CoreConfig) -> int:
    """Of a row's mask over `columns` columns: whole lines, in the order of the mask memory."""
    return -(-groups(columns, config) // config.memory.mask_word_bits) * mask_line_bytes(config)


# -- ranges of fields --------------------------------------------------------------------------


def last_word(config: CoreConfig) -> int:
    """Highest address in a bank."""
    return config.memory.bank_words - 1


def last_row_word(config: CoreConfig) -> int:
    """Highest address in the row buffer."""
    return config.query_words - 1


def last_mask_slot(config: CoreConfig) -> int:
    """Highest row slot of the mask memory."""
    return config.memory.query_rows - 1


def last_constant(config: CoreConfig) -> int:
    """Highest address in a bank's constants."""
    return constant_entries(config) - 1


def most_columns(config: CoreConfig) -> int:
    """Columns of one operation."""
    return config.memory.columns


def most_rows(config: CoreConfig) -> int:
    """Rows of one operation."""
    return config.memory.query_rows


def most_channels(config: CoreConfig) -> int:
    """Elements of a row of the residual stream."""
    return config.vector.max_channels


def most_elements(config: CoreConfig) -> int:
    """Elements of an operand row."""
    return min(MAX_CHANNELS, config.query_words * config.array.lanes)


def require_room(name: str, what: str, start: int, length: int, size: int, unit: str) -> None:
    """Raise ValueError if [start, start + length) leaves a memory."""
    if start + length > size:
        raise ValueError(
            f"{name}: {what} takes {unit}s {start} to {start + length - 1}, the memory has {size}"
        )


def require_apart(name: str, parts: Sequence[tuple[str, int]], length: Sequence[int]) -> None:
    """Raise ValueError if two ranges of one memory overlap."""
    (first, a), (second, b) = parts
    if a < b + length[1] and b < a + length[0]:
        raise ValueError(
            f"{name}: {second} at {b} ({length[1]} long) overlaps {first} at {a} ({length[0]} long)"
        )
