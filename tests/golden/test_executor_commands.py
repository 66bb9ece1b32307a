"""Single commands whose meaning whole blocks do not show, against direct computation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from disc.hashing import BankHash
from disc.lower.layout import Image, Layout
from disc.program import (
    Attend,
    AttendEpilogue,
    Change,
    Command,
    Fence,
    FuseCommand,
    LoadColumns,
    LoadList,
    LoadRows,
    MaskMode,
    Program,
    Select,
    StoreMasks,
    parse_program,
    sizes,
)
from disc.program.build import Builder
from disc.program.check import check
from disc.program.masks import pack_masks, unpack_masks
from disc.program.program import Buffer, BufferKind
from golden.ctr import select_tokens_int
from golden.executor import execute, random_order
from golden.executor.random_blocks import SIX
from golden.integer.fused import fused_attention


def make(layout: Layout, commands: list[Command], hash_: BankHash | None = None) -> Program:
    builder = Builder(SIX, layout.buffers, hash_rows=hash_.rows if hash_ else None)
    for command in commands:
        builder.emit(command)
    return builder.program()


@pytest.mark.parametrize("mode", list(Change))
@pytest.mark.parametrize("update", [0, 1])
def test_select(mode: Change, update: int) -> None:
    rng = np.random.default_rng(mode * 2 + update)
    rows, columns, patch, channels = 3, 5, 2, 3
    layout = Layout()
    shape = (channels, rows * patch, columns * patch)
    names = ("latent", "reference", "previous")
    values = {name: rng.integers(-32768, 32768, shape) for name in names}
    buffers = {
        name: layout.add(name, value.size * 2, BufferKind.STATE, "latents")
        for name, value in values.items()
    }
    lists = {
        name: layout.add(name, 4 + 4 * rows * columns, BufferKind.OUTPUT, "lists")
        for name in ("selected", "reused")
    }
    image = Image(layout)
    for name, value in values.items():
        image.put(buffers[name], value.transpose(1, 2, 0), "<i2")
    z, reference, previous = values.values()
    change = np.abs(z - reference if mode == Change.DIFFERENCE else z - 2 * reference + previous)
    scores = [
        int(change[:, r * 2 : r * 2 + 2, c * 2 : c * 2 + 2].sum())
        for r in range(rows)
        for c in range(columns)
    ]
    threshold = int(np.median(scores))
    command = Select(
        grid_rows=rows,
        grid_columns=columns,
        patch=patch,
        channels=channels,
        mode=mode,
        threshold=threshold,
        latent=buffers["latent"].address,
        reference=buffers["reference"].address,
        previous=buffers["previous"].address,
        update=update,
        selected=lists["selected"].address,
        reused=lists["reused"].address,
    )
    image.data = execute(make(layout, [command]), SIX, image.data)
    chosen = [token for token, score in enumerate(scores) if score >= threshold]
    assert 3 < len(chosen) < 12
    for name, tokens in (
        ("selected", chosen),
        ("reused", [t for t in range(rows * columns) if t not in chosen]),
    ):
        found = image.get(lists[name], (1 + len(tokens),), "<u4").tolist()
        assert found == [len(tokens), *tokens]
    if mode == Change.DIFFERENCE:
        assert select_tokens_int(z, reference, patch, threshold)[0].tolist() == chosen
    after = image.get(buffers["reference"], (shape[1], shape[2], channels), "<i2")
    for token in range(rows * columns):
        r, c = divmod(token, columns)
        area = np.s_[:, r * 2 : r * 2 + 2, c * 2 : c * 2 + 2]
        source = z if update and token in chosen else reference
        assert np.array_equal(after.transpose(2, 0, 1)[area], source[area])


@pytest.mark.parametrize("diagonal", [0, 1])
@pytest.mark.parametrize("first_column", [0, 7, 50])
def test_attend_makes_a_mask_without_a_residual(diagonal: int, first_column: int) -> None:
    rng = np.random.default_rng(first_column)
    tokens, columns, d, count = 60, 43, 13, 9
    hash_ = BankHash.xor_fold(SIX.array.banks, SIX.local_bits)
    layout = Layout()
    q, k, v = (rng.integers(-127, 128, (n, d)) for n in (tokens, columns, columns))
    chosen = rng.permutation(tokens)[:count]
    length = sizes.mask_row_bytes(columns, SIX)

    def add(name: str, size: int, kind: BufferKind) -> Buffer:
        return layout.add(name, size, kind, "x")

    given = {
        name: add(name, x.size, BufferKind.INPUT) for name, x in zip("qkv", (q, k, v), strict=True)
    }
    rows = add("rows", 4 + 4 * tokens, BufferKind.INPUT)
    out = add("out", tokens * d, BufferKind.OUTPUT)
    masks = add("masks", tokens * length, BufferKind.OUTPUT)
    image = Image(layout)
    for name, x in zip("qkv", (q, k, v), strict=True):
        image.put(given[name], x, "<i1")
    image.put_list(rows, chosen.tolist())
    scales: dict[str, Any] = {
        "score_multiplier": 50000,
        "score_shift": 18,
        "output_multiplier": 40000,
        "output_shift": 14,
        "threshold": 40000,
    }
    words = sizes.words(d, SIX)
    axpy = sizes.groups(columns, SIX) * words
    same = {"list": 2, "rows": count}
    command = Attend(
        **same,
        **scales,
        row_base=5,
        width=d,
        columns=columns,
        dot_base=0,
        axpy_base=axpy,
        mode=MaskMode.GENERATE,
        epilogue=AttendEpilogue.PLAIN,
        slot=3,
        first_column=first_column,
        diagonal=diagonal,
        dram=out.address,
        stride=d,
    )
    program = make(
        layout,
        [
            LoadList(list=2, dram=rows.address, first=0, rows=count, tokens=tokens),
            LoadColumns(dram=given["k"].address, stride=d, columns=columns, width=d, base=0),
            LoadColumns(dram=given["v"].address, stride=d, columns=columns, width=d, base=axpy),
            LoadRows(**same, dram=given["q"].address, stride=d, width=d, base=5),
            command,
            StoreMasks(**same, dram=masks.address, stride=length, columns=columns, slot=3),
        ],
        hash_,
    )
    check(program, SIX, image.data)
    before = image.get(out, (tokens, d), "<i1")
    order = random_order(program.commands, rng)
    image.data = execute(program, SIX, image.data, order=order)
    fuse = FuseCommand(
        mode=MaskMode.GENERATE,
        columns=columns,
        beats=words,
        dot_base=0,
        axpy_base=axpy,
        diagonal=bool(diagonal),
        **scales,
    )
    own = chosen - first_column
    # A token whose own column is in another tile has no diagonal here.
    own = np.where((own >= 0) & (own < columns), own, columns)
    expected = fused_attention(q[chosen], k, v, fuse, SIX.number, tokens=own)
    found = image.get(out, (tokens, d), "<i1")
    before[chosen] = expected.out
    assert np.array_equal(found, before), "other rows stay"
    lines = image.get(masks, (tokens, length), "u1")[chosen]
    mask = unpack_masks(lines, columns, hash_, SIX)
    assert np.array_equal(mask, expected.mask)
    assert 0.02 < mask.mean() < 0.6
    assert np.array_equal(pack_masks(mask, hash_, SIX), lines)


def test_masks_lie_as_the_mask_memory_has_them() -> None:
    """One line of 8 bits a bank for each 8 columns of a bank; modulo hash, so bank = j mod 8."""
    hash_ = BankHash.modulo(SIX.array.banks, SIX.local_bits)
    mask = np.zeros((1, 64), bool)
    mask[0, [0, 1, 8, 63]] = True
    line = pack_masks(mask, hash_, SIX)[0]
    assert line.tolist() == [0b11, 0b1, 0, 0, 0, 0, 0, 0b10000000]
    assert len(pack_masks(mask[:, :9], hash_, SIX)[0]) == sizes.mask_row_bytes(9, SIX) == 8


def test_orders_respect_tokens_and_fences() -> None:
    text = "load_table dram=0 signal=array\nload_table dram=64\nfence\nload_table dram=0\n"
    commands = parse_program(text).commands
    for seed in range(20):
        order = random_order(commands, np.random.default_rng(seed))
        assert order == [0, 1, 2, 3]
    waiting = parse_program("load_table dram=0 wait=array\n").commands
    with pytest.raises(ValueError, match=r"tokens: deadlock at commands \[0\]"):
        random_order(waiting, np.random.default_rng(0))
    assert isinstance(commands[2], Fence)
