"""Meaning of the commands of the load, vector and store queues."""

from __future__ import annotations

import numpy as np

from disc.program import (
    Change,
    Forecast,
    LoadColumns,
    LoadConstants,
    LoadList,
    LoadMasks,
    LoadRows,
    LoadTable,
    Norm,
    Record,
    Select,
    StoreMasks,
    sizes,
)
from disc.tables import DISTANCE_BITS
from golden.ctr import copy_tokens, patch_sums, select_tokens_int
from golden.executor.memory import Memory
from golden.integer.forecast import forecast
from golden.integer.layernorm import Modulation, layer_norm, modulate
from golden.integer.rounding import Int, require_range, saturate

# -- load ----------------------------------------------------------------------------------------


def load_list(c: LoadList, m: Memory) -> None:
    """Fill a list buffer, with fewer entries where the list ends."""
    length = int(m.read(c.dram, 1, "<u4")[0, 0])
    count = int(np.clip(length - c.first, 0, min(c.rows, c.tokens - c.first)))
    start = c.dram + sizes.LIST_HEADER_BYTES + c.first * sizes.ENTRY_BYTES
    tokens = m.read(start, count, "<u4")[0]
    if np.any(tokens >= c.tokens):
        raise ValueError(f"tokens: list names token {tokens.max()}, allowed below {c.tokens}")
    if len(np.unique(tokens)) != count:
        raise ValueError("list: names a token twice")
    m.put_list(c.list, tokens)


def load_columns(c: LoadColumns, m: Memory) -> None:
    """Fill banks from a matrix."""
    matrix = m.read(c.dram, c.width, "<i1", stride=c.stride, rows=np.arange(c.columns))
    m.put_columns(c.base, matrix)


def load_constants(c: LoadConstants, m: Memory) -> None:
    """Fill the constants of a tile's columns."""
    record = m.read(c.dram, c.columns * sizes.CONSTANT_BYTES, "<u1").astype(np.uint8)
    record = record.reshape(c.columns, sizes.CONSTANT_BYTES)
    parts = [
        np.ascontiguousarray(record[:, low:high]).view(kind)[:, 0].astype(np.int64)
        for low, high, kind in ((0, 4, "<i4"), (4, 6, "<u2"), (6, 7, "u1"))
    ]
    m.put_constants(c.base, np.stack(parts, axis=1))


def load_table(c: LoadTable, m: Memory) -> None:
    """Fill the GELU table."""
    m.put_table(m.read(c.dram, sizes.table_bytes(m.config), "<i1")[0])


def load_rows(c: LoadRows, m: Memory) -> None:
    """Gather operand rows."""
    tokens = m.tokens(c.list)
    m.put_rows(c.base, m.read(c.dram, c.width, "<i1", stride=c.stride, rows=tokens))


def load_masks(c: LoadMasks, m: Memory) -> None:
    """Gather mask rows."""
    tokens = None if c.single else m.tokens(c.list)
    length = sizes.mask_row_bytes(c.columns, m.config)
    m.put_mask_rows(c.slot, m.read(c.dram, length, "<u1", stride=c.stride, rows=tokens))


# -- vector --------------------------------------------------------------------------------------


def norm(c: Norm, m: Memory) -> None:
    """LayerNorm and modulation."""
    tokens = m.tokens(c.list)
    x = m.read(c.dram, c.width, "<i2", stride=c.stride, rows=tokens)
    shift = int(m.read(c.vectors, 4, "<u2")[0, 0])
    both = m.read(c.vectors + sizes.HEADER_BYTES, 2 * c.width, "<i2")[0]
    modulation = Modulation(both[: c.width], both[c.width :], shift)
    m.put_rows(c.base, modulate(layer_norm(x, c.epsilon), modulation, m.config.number))


def _ages(c: Forecast | Record, m: Memory, tokens: Int) -> tuple[int, Int, Int]:
    step = int(m.read(c.ages, 2, "<i4")[0, 0])
    start = c.ages + sizes.HEADER_BYTES
    ages = m.read(start, 2, "<i2", stride=sizes.AGE_BYTES, rows=tokens)
    return step, ages[:, 0], ages[:, 1]


def forecast_rows(c: Forecast, m: Memory) -> None:
    """Extrapolate the branch sums of reused tokens."""
    tokens, number = m.tokens(c.list), m.config.number
    rows = {"stride": c.stride, "rows": tokens}
    embedding = m.read(c.embedding, c.width, "<i2", **rows)
    branches = m.read(c.last, c.width, "<i2", **rows)
    if not c.hold:
        before = m.read(c.before, c.width, "<i2", **rows)
        step, last_step, before_step = _ages(c, m, tokens)
        if np.any(last_step < 0):
            token = tokens[last_step < 0][0]
            raise ValueError(f"list: token {token} was never computed and cannot be reused")
        apart = np.where(before_step < 0, 0, last_step - before_step)
        table = m.read(c.ratios, 1 << DISTANCE_BITS, "<u4")[0]
        branches = forecast(branches, before, step - last_step, apart, table, number)
    m.write(saturate(embedding + branches, number.residual_bits), c.x, "<i2", **rows)


def record_rows(c: Record, m: Memory) -> None:
    """Keep the branch sums of computed tokens."""
    tokens = m.tokens(c.list)
    rows = {"stride": c.stride, "rows": tokens}
    x, embedding, last = (
        m.read(start, c.width, "<i2", **rows) for start in (c.x, c.embedding, c.last)
    )
    m.write(last, c.before, "<i2", **rows)
    m.write(saturate(x - embedding, m.config.number.residual_bits), c.last, "<i2", **rows)
    step, last_step, _ = _ages(c, m, tokens)
    ages = np.stack([np.full_like(last_step, step), last_step], axis=1)
    start = c.ages + sizes.HEADER_BYTES
    m.write(ages, start, "<i2", stride=sizes.AGE_BYTES, rows=tokens)


# -- store ---------------------------------------------------------------------------------------


def store_masks(c: StoreMasks, m: Memory) -> None:
    """Scatter mask rows."""
    tokens = None if c.single else m.tokens(c.list)
    rows = 1 if tokens is None else len(tokens)
    m.write(m.mask_rows(c.slot, rows, c.columns), c.dram, "<u1", stride=c.stride, rows=tokens)


def select(c: Select, m: Memory) -> None:
    """Choose the tokens to compute."""
    shape = (c.grid_rows * c.patch, c.grid_columns * c.patch, c.channels)

    def latent(start: int) -> Int:
        values = m.read(start, c.values_of_latent, "<i2")[0]
        require_range("latent", values, m.config.selector.latent_bits)
        return values.reshape(shape).transpose(2, 0, 1)

    z, reference = latent(c.latent), latent(c.reference)
    if c.mode == Change.DIFFERENCE:
        selected, reused, _ = select_tokens_int(z, reference, c.patch, c.threshold)
    else:
        change = np.abs(z - 2 * reference + latent(c.previous))
        chosen = patch_sums(change, c.patch) >= c.threshold
        selected, reused = np.flatnonzero(chosen), np.flatnonzero(~chosen)
    if c.update:
        target = reference.copy()
        copy_tokens(z.copy(), target, selected, c.patch)
        m.write(target.transpose(1, 2, 0).reshape(1, -1), c.reference, "<i2")
    for start, tokens in ((c.selected, selected), (c.reused, reused)):
        m.write(np.concatenate([[len(tokens)], tokens])[None], start, "<u4")
