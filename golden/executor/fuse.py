"""Meaning of the commands of the array queue."""

from __future__ import annotations

import numpy as np

from disc.program import Attend, AttendEpilogue, MaskMode, Mlp, Project, ProjectEpilogue, sizes
from golden.executor.memory import Memory
from golden.integer.linear import (
    Gate,
    Linear,
    Requantisation,
    accumulate,
    gate_residual,
    requantise,
)
from golden.integer.matmul import exact_matmul
from golden.integer.mlp import hidden_units, hot_columns
from golden.integer.rounding import Int, require_range
from golden.integer.sharing import add_residual
from golden.integer.softmax import normalise
from golden.integer.tiled import (
    RowState,
    mark,
    merge,
    residual_of,
    tile_scores,
    tile_state,
)


def _gate(start: int, first: int, count: int, m: Memory) -> Gate:
    shift = int(m.read(start, 4, "<u2")[0, 0])
    offset = sizes.HEADER_BYTES + first * sizes.VECTOR_BYTES
    return Gate(m.read(start + offset, count, "<i2")[0], shift)


def project(c: Project, m: Memory) -> None:
    """Rows times columns."""
    tokens, number = m.tokens(c.list), m.config.number
    x = m.rows(c.row_base, len(tokens), c.width)
    bias, multiplier, shift = m.constants(c.constants, c.columns)
    acc = accumulate(x, Linear(m.columns(c.dot_base, c.columns, c.width), bias), number)
    size = 1 if c.epilogue == ProjectEpilogue.OPERAND else 2
    start, kind = c.dram + c.first_column * size, f"<i{size}"
    if c.epilogue == ProjectEpilogue.GATE:
        gate = _gate(c.gate, c.first_column, c.columns, m)
        stream = m.read(start, c.columns, kind, stride=c.stride, rows=tokens)
        out = gate_residual(stream, acc, gate, number)
    else:
        bits = number.operand_bits if size == 1 else 16
        out = requantise(acc, Requantisation(multiplier, shift), bits)
    m.write(out, start, kind, stride=c.stride, rows=tokens)


def mlp(c: Mlp, m: Memory) -> None:
    """Hidden units of a tile."""
    tokens, number = m.tokens(c.list), m.config.number
    x = m.rows(c.row_base, len(tokens), c.width)
    bias, multiplier, shift = m.constants(c.constants, c.columns)
    hot = None
    if c.mode == MaskMode.MASKED:
        hot = m.masks(c.slot, 1, c.columns)[0]
    hidden = hidden_units(
        x,
        Linear(m.columns(c.dot_base, c.columns, c.width), bias),
        Requantisation(multiplier, shift),
        m.table(),
        number,
        hot=hot,
    )
    if c.mode == MaskMode.GENERATE:
        found = hot_columns(hidden, c.threshold)[None]
        m.put_masks(c.slot, found if c.fresh else found | m.masks(c.slot, 1, c.columns))
    acc = exact_matmul(hidden, m.columns(c.axpy_base, c.columns, c.out_width))
    width = sizes.accumulator_bytes(m.config)
    slots = {"stride": c.out_width * width, "rows": np.arange(len(tokens))}
    if not c.first:
        acc = acc + m.read(c.partial, c.out_width, f"<i{width}", **slots)
    require_range("acc", acc, number.accumulator_bits)
    if not c.last:
        m.write(acc, c.partial, f"<i{width}", **slots)
        return
    acc = acc + m.read(c.bias, c.out_width, f"<i{width}")
    require_range("acc", acc, number.accumulator_bits)
    rows = {"stride": c.stride, "rows": tokens}
    stream = m.read(c.dram, c.out_width, "<i2", **rows)
    gate = _gate(c.gate, 0, c.out_width, m)
    m.write(gate_residual(stream, acc, gate, number), c.dram, "<i2", **rows)


def _read_state(c: Attend, start: int, rows: int, m: Memory) -> RowState:
    width = sizes.accumulator_bytes(m.config)
    slots = {"stride": sizes.state_bytes(m.config, c.width), "rows": np.arange(rows)}
    return RowState(
        m.read(start, 1, "<i4", **slots)[:, 0],
        m.read(start + 4, 1, "<u4", **slots)[:, 0],
        m.read(start + sizes.STATE_HEADER_BYTES, c.width, f"<i{width}", **slots),
    )


def _write_state(c: Attend, state: RowState, start: int, m: Memory) -> None:
    width = sizes.accumulator_bytes(m.config)
    rows = np.arange(len(state.total))
    slots = {"stride": sizes.state_bytes(m.config, c.width), "rows": rows}
    m.write(state.maximum[:, None], start, "<i4", **slots)
    m.write(state.total[:, None], start + 4, "<u4", **slots)
    m.write(state.acc, start + sizes.STATE_HEADER_BYTES, f"<i{width}", **slots)


def attend(c: Attend, m: Memory) -> None:
    """One head over one key tile."""
    tokens, number = m.tokens(c.list), m.config.number
    q = m.rows(c.row_base, len(tokens), c.width)
    k, v = (m.columns(base, c.columns, c.width) for base in (c.dot_base, c.axpy_base))
    score = tile_scores(q, k, c, number)
    keep = np.ones(score.shape, bool)
    if c.mode == MaskMode.MASKED:
        keep = m.masks(c.slot, len(tokens), c.columns)
    whole = None
    if c.mark:
        whole = _read_state(c, c.partial, len(tokens), m)
    else:
        state, _ = tile_state(score, keep, v, number)
    if c.mode == MaskMode.GENERATE:
        own = tokens - c.first_column if c.diagonal else None
        whole = whole or state
        fill = m.hash if c.fill else None
        keep, state = mark(score, whole, c.threshold, own, v, number, fill)
        m.put_masks(c.slot, keep)
    running = c.kept if c.mark else c.partial
    if not c.first:
        state = merge(_read_state(c, running, len(tokens), m), state, number)
    if not c.last:
        _write_state(c, state, running, m)
        return
    m.write(_result(c, state, whole, tokens, m), c.dram, "<i1", stride=c.stride, rows=tokens)


def _result(c: Attend, state: RowState, whole: RowState | None, tokens: Int, m: Memory) -> Int:
    """Epilogue.  With GENERATE `state` is that of the kept columns, `whole` that of all."""
    number = m.config.number
    kind = f"<i{sizes.sharing_bytes(m.config)}"
    rows = {"stride": c.residual_stride, "rows": tokens}
    if c.epilogue == AttendEpilogue.ADD:
        return add_residual(state, m.read(c.residual, c.width, kind, **rows), c, number)
    if c.epilogue == AttendEpilogue.KEEP:
        m.write(residual_of(whole, state, c, number), c.residual, kind, **rows)
    if whole is not None and c.epilogue != AttendEpilogue.MASKED:
        state = whole
    return normalise(state.acc, state.total, c.output_multiplier, c.output_shift, number)
