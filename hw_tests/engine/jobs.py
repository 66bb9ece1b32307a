"""Random commands of every function, with what the golden core makes of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from disc.config import CoreConfig
from disc.hashing import BankHash
from disc.program import Function, FuseCommand, MaskMode
from golden.integer.linear import Linear, Requantisation
from golden.integer.matmul import exact_matmul
from golden.integer.mlp import hidden_units, hot_columns
from golden.integer.quantise import quantise_head
from golden.integer.softmax import normalise
from golden.integer.tiled import (
    RowState,
    empty_maximum,
    mark,
    merge,
    tile_scores,
    tile_state,
)
from hw.vector.words import total_bits
from hw_tests.engine.simulate import HeadJob, SimulatedHead

__all__ = [
    "Expected",
    "array_cycles",
    "attention",
    "check",
    "filling",
    "hot",
    "marking",
    "mlp",
    "projection",
]

Bool = NDArray[np.bool_]


@dataclass(frozen=True)
class Expected:
    """What must come out."""

    out: NDArray[np.int64]
    mask: Bool | None = None
    more: dict[str, NDArray[np.int64]] = field(default_factory=dict)


def check(item: HeadJob, want: Expected, got: SimulatedHead) -> None:
    """Compare results, masks and counters."""
    np.testing.assert_array_equal(got.out, want.out)
    if item.command.mode == MaskMode.GENERATE:
        np.testing.assert_array_equal(got.mask, want.mask)
    for name, values in want.more.items():
        np.testing.assert_array_equal(got.more[name], values, err_msg=name)
    counters = got.counters
    assert (counters.dot, counters.axpy) == array_cycles(item, want.mask)
    assert counters.rows == len(item.q)
    assert counters.kept == kept(item).sum()
    places = counters.dot // item.command.beats * item.hash.banks
    assert counters.imbalance == places - counters.kept
    waited = counters.no_room + counters.no_row
    assert counters.cycles == counters.dot + counters.axpy + waited
    assert counters.no_row > 0


def kept(item: HeadJob) -> Bool:
    """[rows, columns] that dot visits."""
    shape = len(item.q), item.command.columns
    return item.mask if item.command.mode == MaskMode.MASKED else np.ones(shape, dtype=bool)


def array_cycles(item: HeadJob, made: Bool | None = None) -> tuple[int, int]:
    """Cycles of dot and of axpy: sums over rows of beats * columns of the fullest bank.

    Parameters
    ----------
    made
        The mask that the command makes; `share` and `mark` visit its columns a second time, and
        with `mark` the first time takes one word.
    """
    c = item.command
    bank = item.hash.bank(np.arange(c.columns))

    def steps(mask: Bool) -> int:
        loads = np.stack([mask[:, bank == b].sum(axis=1) for b in range(item.hash.banks)])
        return int(np.maximum(loads.max(axis=0), 1).sum())

    dense = steps(kept(item))
    if c.function == Function.PROJECT:
        return c.beats * dense, 0
    again = c.sum_beats() * steps(made) if (c.share or c.mark) and made is not None else 0
    return c.beats * dense, (1 if c.mark else c.sum_beats()) * dense + again


def _hash(config: CoreConfig, rng: np.random.Generator) -> BankHash:
    seed = int(rng.integers(1 << 30))
    return BankHash.random_gf2(config.array.banks, config.local_bits, seed=seed)


def _place(command: FuseCommand, config: CoreConfig, rng: np.random.Generator) -> FuseCommand:
    """Put rows and masks anywhere; a wide row cannot have the default's stride."""
    size = config.query_words
    stride = 0
    if command.beats > config.max_beats or rng.random() < 0.5:
        stride = int(rng.integers(command.beats, min(2 * command.beats, size) + 1))
    placed = replace(command, row_stride=stride)
    slots = int(rng.integers(1, size // placed.stride(config) + 1))
    base = int(rng.integers(0, size - slots * placed.stride(config) + 1))
    mask_slot = int(rng.integers(0, config.memory.query_rows - 1))
    placed = replace(placed, row_base=base, mask_slot=mask_slot)
    placed.validate(config)
    return placed


def _mask(rows: int, columns: int, rng: np.random.Generator, *, shared: bool, empty: bool) -> Bool:
    shape = (1, columns) if shared else (rows, columns)
    mask = rng.random(shape) < rng.choice([0.02, 0.3, 0.9])
    if not empty:
        mask[np.arange(len(mask)), rng.integers(columns, size=len(mask))] = True
    return np.broadcast_to(mask, (rows, columns)).copy()


def _traffic(rng: np.random.Generator) -> dict[str, float]:
    """Stalls, and a reader of masks that must not matter."""
    return {
        "stall": float(rng.choice([0.0, 0.3, 0.95])),
        "read_masks": float(rng.choice([0.0, 0.3, 0.99])),
    }


def _operands(config: CoreConfig, rng: np.random.Generator, *shape: int) -> NDArray[np.int64]:
    limit = 1 << (config.number.operand_bits - 1)
    values = rng.integers(-limit, limit, shape)
    values[rng.random(shape) < 0.02] = -limit
    return values


def _elements(beats: int, config: CoreConfig, rng: np.random.Generator) -> int:
    lanes = config.array.lanes
    return int(rng.integers((beats - 1) * lanes + 1, beats * lanes + 1))


def projection(config: CoreConfig, rng: np.random.Generator) -> tuple[HeadJob, Expected]:
    """Rows of any width that fits, times all columns or those of a mask, perhaps none."""
    beats = int(rng.integers(1, rng.choice([4, FuseCommand.most_beats(config)]) + 1))
    most = config.memory.bank_words // beats * config.array.banks
    columns = int(rng.integers(1, min(config.memory.columns, most) + 1))
    rows = int(rng.integers(1, min(40, config.memory.query_rows) + 1))
    groups = -(-columns // config.array.banks)
    shared = bool(rng.integers(2))
    command = FuseCommand(
        function=Function.PROJECT,
        mode=MaskMode(int(rng.integers(2))),
        columns=columns,
        beats=beats,
        dot_base=int(rng.integers(0, config.memory.bank_words - groups * beats + 1)),
        shared_mask=shared,
    )
    d = _elements(beats, config, rng)
    q, k = _operands(config, rng, rows, d), _operands(config, rng, columns, d)
    item = HeadJob(
        q=q,
        k=k,
        command=_place(command, config, rng),
        hash=_hash(config, rng),
        mask=_mask(rows, columns, rng, shared=shared, empty=True),
        tokens=rng.integers(config.memory.columns, size=rows),
        **_traffic(rng),
    )
    return item, Expected(np.where(kept(item), exact_matmul(q, k.T), 0))


def hot(config: CoreConfig, rng: np.random.Generator) -> tuple[HeadJob, Expected]:
    """Hidden columns of which the hot ones are noted; rows of few words, so many columns."""
    return mlp(config, rng, making=True)


def mlp(
    config: CoreConfig, rng: np.random.Generator, *, making: bool = False
) -> tuple[HeadJob, Expected]:
    """Hidden columns, all or hot ones, between two layers of unequal width."""
    number, words = config.number, config.memory.bank_words
    most = 2 if making else min(FuseCommand.most_beats(config), words // 2)
    few = min(most, 4)
    beats, axpy_beats = (int(rng.integers(1, rng.choice([few, most]) + 1)) for _ in range(2))
    groups = int(rng.integers(1, min(words // (beats + axpy_beats), config.columns_per_bank) + 1))
    columns = int(
        rng.integers((groups - 1) * config.array.banks + 1, groups * config.array.banks + 1)
    )
    dot_base = int(rng.integers(0, words - groups * (beats + axpy_beats) + 1))
    bases = dot_base, dot_base + groups * beats
    if rng.integers(2):
        bases = dot_base + groups * axpy_beats, dot_base
    mode = MaskMode.GENERATE if making else MaskMode(int(rng.integers(2)))
    rows = int(rng.integers(1, min(30, config.memory.query_rows) + 1))
    if making:
        rows = int(rng.choice([0, 1, rows, rows]))
    shared = bool(rng.integers(2))
    top = 1 << (config.number.operand_bits - 1)
    command = FuseCommand(
        function=Function.GELU,
        mode=mode,
        threshold=int(rng.choice([0, top - 2, top - 1, top, rng.integers(top), 1 << 20])),
        fresh=making and bool(rng.integers(2)),
        columns=columns,
        beats=beats,
        axpy_beats=0 if axpy_beats == beats else axpy_beats,
        dot_base=bases[0],
        axpy_base=bases[1],
        shared_mask=shared,
        constant_base=int(rng.integers(0, 2 * config.columns_per_bank - groups + 1)),
    )
    d, out = (_elements(n, config, rng) for n in (beats, axpy_beats))
    x, w = _operands(config, rng, rows, d), _operands(config, rng, columns, d)
    v = _operands(config, rng, columns, out)
    dot = exact_matmul(x, w.T)
    room = (1 << (number.accumulator_bits - 1)) - 1 - int(np.abs(dot).max(initial=0))
    bias = rng.integers(-room, room + 1, columns) >> rng.integers(0, 20, columns)
    # Mostly so that hidden units fill the operand's range; some saturate, some vanish.
    multiplier = rng.integers(1 << 15, 1 << 16, columns)
    span = np.log2(np.abs(dot + bias).max(axis=0, initial=0) + 1) + 16 - (number.operand_bits - 1)
    shift = np.clip(span + rng.integers(-2, 3, columns), 0, 63).astype(np.int64)
    constants = np.stack([bias, multiplier, shift], axis=1)
    constants[rng.random(columns) < 0.05, 1:] = (0xFFFF, 0)
    constants[rng.random(columns) < 0.05, 1:] = (0xFFFF, 63)
    table = _operands(config, rng, 1 << number.operand_bits)
    item = HeadJob(
        q=x,
        k=w,
        v=v,
        command=_place(command, config, rng),
        hash=_hash(config, rng),
        mask=_mask(1 if making else rows, columns, rng, shared=shared, empty=True),
        constants=constants,
        table=table,
        tokens=rng.integers(config.memory.columns, size=rows),
        **_traffic(rng),
    )
    scale = Requantisation(constants[:, 1], constants[:, 2])
    hidden = hidden_units(x, Linear(w, constants[:, 0]), scale, table, number)
    if shared and command.mode == MaskMode.MASKED:
        hot = item.mask[0]
        again = hidden_units(x, Linear(w, constants[:, 0]), scale, table, number, hot=hot)
        assert np.array_equal(again, np.where(hot, hidden, 0))
    if making and rows and rng.random() < 0.7:
        # At the threshold is not above it.
        most = int(np.abs(hidden[:, rng.integers(columns)]).max())
        command = replace(item.command, threshold=most)
        item = replace(item, command=command)
    sums = exact_matmul(np.where(kept(item), hidden, 0), v)
    if not making:
        return item, Expected(sums)
    found = hot_columns(hidden, command.threshold)[None]
    return item, Expected(sums, found if command.fresh else found | item.mask)


def _head(
    config: CoreConfig, rng: np.random.Generator, mode: MaskMode, rows: int, columns: int
) -> HeadJob:
    """A head whose keys fit the banks, without mask, tokens anywhere."""
    d = int(rng.integers(1, config.memory.head_dim + 1))
    while 2 * -(-d // config.array.lanes) * -(-columns // config.array.banks) > (
        config.memory.bank_words
    ):
        d = int(rng.integers(1, config.memory.head_dim + 1))
    spread = rng.choice([0.2, 1.0, 4.0])
    head = quantise_head(
        *(rng.normal(scale=spread, size=(n, d)) for n in (rows, columns, columns)), config
    )
    command = head.command(
        config,
        mode,
        alpha=float(rng.choice([0.0, 0.5, 2.0])) % (columns + 1),
        diagonal=bool(rng.integers(2)),
    )
    return HeadJob(
        q=head.q,
        k=head.k,
        v=head.v,
        command=_place(command, config, rng),
        hash=_hash(config, rng),
        tokens=rng.integers(config.memory.columns, size=rows),
        outside=rng.random(rows) < rng.choice([0.0, 0.5]),
        **_traffic(rng),
    )


def attention(config: CoreConfig, rng: np.random.Generator) -> tuple[HeadJob, Expected]:
    """A head in any mode, results or sums, with or without the kept columns' sums."""
    rows = int(rng.integers(1, 2 * config.memory.query_rows))
    columns = int(rng.integers(1, config.memory.columns + 1))
    mode = MaskMode(int(rng.integers(3)))
    item = _head(config, rng, mode, rows, columns)
    shared = mode == MaskMode.MASKED and rng.random() < 0.3
    share = mode == MaskMode.GENERATE and rng.random() < 0.6
    command = replace(
        item.command,
        shared_mask=shared,
        share=share,
        raw=bool(rng.integers(2)),
        fill=mode == MaskMode.GENERATE and bool(rng.integers(2)),
    )
    mask = _mask(rows, columns, rng, shared=shared, empty=True)
    item = replace(item, command=command, mask=mask)
    return item, expected_attention(config, item)


def filling(config: CoreConfig, rng: np.random.Generator) -> tuple[HeadJob, Expected]:
    """A mask in which some banks are really filled up, in a first or a second pass."""
    draw = attention if rng.random() < 0.6 else marking
    while True:
        item, want = draw(config, rng)
        if item.command.fill:
            bare = replace(item, command=replace(item.command, fill=False))
            plain = _marked(config, bare) if draw is marking else expected_attention(config, bare)
            if (want.mask != plain.mask).any():
                return item, want


def marking(config: CoreConfig, rng: np.random.Generator) -> tuple[HeadJob, Expected]:
    """A second pass: rows that have seen other key tiles too, or any maximum and total."""
    rows = int(rng.integers(1, 2 * config.memory.query_rows))
    columns = int(rng.integers(1, config.memory.columns + 1))
    item = _head(config, rng, MaskMode.GENERATE, rows, columns)
    raw, fill = (bool(n) for n in rng.integers(2, size=2))
    item = replace(item, command=replace(item.command, mark=True, raw=raw, fill=fill))
    number, c = config.number, item.command
    score = tile_scores(item.q, item.k, c, number)
    whole, _ = tile_state(score, np.ones(score.shape, bool), item.v, number)
    for _ in range(int(rng.integers(3))):
        other = score[:, rng.permutation(columns)] + rng.integers(-200, 200, (rows, 1))
        other = np.clip(other, -(1 << (number.score_bits - 1)), (1 << (number.score_bits - 1)) - 1)
        state, _ = tile_state(other, rng.random(score.shape) < 0.5, item.v, number)
        whole = merge(whole, state, number)
    maximum, total = whole.maximum, whole.total
    odd = rng.random(rows) < rng.choice([0.0, 0.2])
    low = empty_maximum(number)
    maximum = np.where(odd, rng.integers(low, -low, rows), maximum)
    total = np.where(odd, rng.integers(0, 1 << total_bits(config), rows), total)
    item = replace(item, maximum=maximum, total=total)
    return item, _marked(config, item)


def _marked(config: CoreConfig, item: HeadJob) -> Expected:
    """What a second pass makes of a head."""
    c, number = item.command, config.number
    score = tile_scores(item.q, item.k, c, number)
    whole = RowState(item.maximum, item.total, np.zeros_like(item.v[:0]))
    own = _own(item) if c.diagonal else None
    fill = item.hash if c.fill else None
    keep, kept_state = mark(score, whole, c.threshold, own, item.v, number, fill)
    more = {"total": kept_state.total, "maximum": item.maximum}
    return Expected(kept_state.acc, keep, more)


def _own(item: HeadJob) -> NDArray[np.int64]:
    """Index of each row's own column, -1 if it is elsewhere."""
    tokens = item.row_tokens()
    return tokens if item.outside is None else np.where(item.outside, -1, tokens)


def expected_attention(config: CoreConfig, item: HeadJob) -> Expected:
    """What the golden core makes of a head."""
    c, number = item.command, config.number
    score = tile_scores(item.q, item.k, c, number)
    state, _ = tile_state(score, kept(item), item.v, number)
    mask, sums = kept(item), None
    if c.mode == MaskMode.GENERATE:
        own = _own(item) if c.diagonal else None
        fill = item.hash if c.fill else None
        mask, sums = mark(score, state, c.threshold, own, item.v, number, fill)
    if not (c.raw or c.share):
        out = normalise(state.acc, state.total, c.output_multiplier, c.output_shift, number)
        return Expected(out, mask)
    more = {"total": state.total, "maximum": state.maximum}
    if c.share:
        more |= {"kept_out": sums.acc, "kept_total": sums.total}
    return Expected(state.acc, mask, more)
