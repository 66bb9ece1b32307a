"""Lowering: tiles, layout, what programs cost against counts by hand, and what does not fit."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from disc.config import CoreConfig, build, preset
from disc.lower.count import count
from disc.lower.layout import ALIGN, Image, Layout
from disc.lower.plan import BlockPlan, NetworkPlan, NetworkScalars
from disc.lower.shape import BlockScalars, BlockShape, StepKind
from disc.lower.tiles import (
    Places,
    Tile,
    key_room,
    key_tiles,
    room_for_columns,
    room_for_rows,
    split,
    visits,
)
from disc.program import Attend, LoadColumns, MaskMode, Mlp, Program, Project
from disc.program.check import check
from disc.program.program import BufferKind

TINY, EDGE = preset("tiny"), preset("edge")


def changed(config: CoreConfig, **memory: int) -> CoreConfig:
    fields = config.model_dump()
    fields["memory"] |= memory
    return build(fields)


def lowered(config: CoreConfig, shape: BlockShape, kind: StepKind, **options: Any):
    plan = BlockPlan(config, shape)
    return plan, plan.program(BlockScalars.blank(shape), kind, **options)


# -- tiles ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("multiple", [1, 4])
def test_split_covers_everything_once(multiple: int) -> None:
    for total in range(1, 60):
        for most in range(multiple, 30, multiple):
            tiles = split(total, most, multiple)
            assert tiles[0].first == 0
            assert all(a.first + a.count == b.first for a, b in pairwise(tiles))
            assert tiles[-1].first + tiles[-1].count == total
            assert max(t.count for t in tiles) <= most
            assert all(t.count % multiple == 0 for t in tiles[:-1])
            assert len(tiles) == -(-total // most)


def test_split_is_even() -> None:
    assert split(10, 8) == [Tile(0, 5), Tile(5, 5)]
    assert split(10, 8, 4) == [Tile(0, 8), Tile(8, 2)]


def test_places_are_filled_in_turn() -> None:
    places, filled = Places((0, 100)), []

    def get(key: str) -> int:
        return places.get(key, lambda base: filled.append((key, base)))

    assert [get(key) for key in "abacb"] == [0, 100, 0, 0, 100]
    assert filled == [("a", 0), ("b", 100), ("c", 0)]


def test_visits_load_less() -> None:
    rows = split(40, 10)
    outer_rows = [(r, t) for r in range(4) for t in range(3)]
    outer_tiles = [(r, t) for t in range(3) for r in range(4)]
    assert list(visits(rows, 3, row_bytes=1000, tile_bytes=10)) == outer_rows
    assert list(visits(rows, 3, row_bytes=10, tile_bytes=1000)) == outer_tiles


def test_room_in_the_banks() -> None:
    # tiny: 4 banks of 1152 words, 64 columns a bank
    assert room_for_columns(TINY, 16, 400, "w").most == 4 * (576 // 16)
    assert room_for_columns(TINY, 16, 400, "w").bases == (0, 576)
    assert room_for_columns(TINY, 4, 400, "w").most == 256, "memory.columns"
    assert room_for_columns(TINY, 700, 400, "w") == room_for_columns(TINY, 700, 1, "w")
    assert room_for_columns(TINY, 700, 400, "w").bases == (0,)
    with pytest.raises(
        ValueError, match=r"w: a column takes 1153 words, memory.bank_words is 1152"
    ):
        room_for_columns(TINY, 1153, 4, "w")
    # 256 keys of 72 elements: all in one place rather than half of them in two
    assert key_room(TINY, 256, 72).bases == (0,)
    assert key_tiles(TINY, 256, 72) == [Tile(0, 256)]
    assert [t.count for t in key_tiles(TINY, 1024, 72)] == [128] * 8
    assert room_for_rows(TINY, 16, "rows").most == 1152 // 16
    assert room_for_rows(TINY, 1, "rows").most == 256
    assert room_for_rows(TINY, 2000, "rows").bases == (0,)
    with pytest.raises(ValueError, match="rows: a row takes 2305 words, the row buffer has 2304"):
        room_for_rows(TINY, 2305, "rows")


# -- layout --------------------------------------------------------------------------------------


def test_layout_and_image() -> None:
    layout = Layout()
    a = layout.add("a", 10, BufferKind.STATE, "x")
    b = layout.add("b", 100, BufferKind.SCRATCH, "y")
    assert (a.address, b.address, layout.end) == (ALIGN, 2 * ALIGN, 4 * ALIGN)
    with pytest.raises(ValueError, match="buffer a: there is one already"):
        layout.add("a", 1, BufferKind.STATE, "x")
    image = Image(layout)
    assert image.data[b.address : b.end].any(), "scratch is noise"
    image.put(a, [[1, -2], [3, -32768]], "<i2", offset=2)
    assert image.get(a, (2, 2), "<i2", offset=2).tolist() == [[1, -2], [3, -32768]]
    with pytest.raises(ValueError, match=r"a: values must be in \[-128, 127\], got \[0, 128\]"):
        image.put(a, [0, 128], "<i1")
    with pytest.raises(ValueError, match="a: 4 bytes at offset 8 do not fit 10"):
        image.put(a, [0], "<i4", offset=8)
    with pytest.raises(ValueError, match="a: has 10 bytes, asked for 12"):
        image.get(a, (3,), "<i4")
    with pytest.raises(ValueError, match="b: constants must be in"):
        image.put_constants(b, np.array([1]), 1 << 16, 0)
    record = json.loads(json.dumps(layout.to_json()))
    assert record["buffers"][1] == {
        "name": "b",
        "address": 128,
        "bytes": 100,
        "kind": "scratch",
        "group": "y",
    }


# -- what a block costs --------------------------------------------------------------------------


def test_counts_of_a_block_by_hand() -> None:
    """32 wide, 64 tokens, all in one tile of each sort."""
    shape = BlockShape(tokens=64, width=32, heads=2, hidden=64)
    plan, program = lowered(TINY, shape, StepKind(64))
    found = count(program, plan.layout, TINY)
    assert found.commands == {
        "load_list": 1,
        "load_columns": 2 + 2 * 2 + 1 + 2,
        "load_constants": 2 + 1 + 1,
        "load_table": 1,
        "load_rows": 2 + 1,
        "norm": 2,
        "project": 3,
        "attend": 2,
        "mlp": 1,
    }
    assert found.read["weights"] == 4 * 32 * 32 + 2 * 64 * 32
    assert found.read["caches"] == 2 * 64 * 32
    assert found.read["residual stream"] == 4 * 64 * 32 * 2  # twice normalised, twice added to
    assert found.written["residual stream"] == 2 * 64 * 32 * 2
    assert found.written["activations"] == 64 * 32 + 64 * 32  # q, attention's result
    assert found.written["caches"] == 2 * 64 * 32
    assert found.read["program"] == 64 * len(program.commands)
    assert "partial sums" not in found.read
    # 4 words a row of 32, 8 columns a bank for 32 of them
    project = 64 * 4 * (96 + 32) // 4
    attend = 2 * 64 * 2 * 2 * 64 // 4
    mlp = 64 * 2 * 4 * 64 // 4
    assert found.array_cycles == project + attend + mlp
    total = found.to_json()
    assert total["commands"] == len(program.commands)
    assert total["dram_bytes_read"] == sum(found.read.values())


@pytest.mark.parametrize("config", [TINY, EDGE], ids=lambda c: c.name)
def test_array_does_the_block_s_products_and_no_others(config: CoreConfig) -> None:
    """Ideal cycles times multipliers is the number of products, where all tiles are full."""
    shape = BlockShape(tokens=1024, width=144, heads=2, hidden=576)
    plan, program = lowered(config, shape, StepKind(1024))
    n, d, hidden = 1024, 144, 576
    products = n * (4 * d * d + 2 * d * hidden) + 2 * n * n * d
    assert count(program, plan.layout, config).array_cycles * config.macs_per_core == products


def test_fewer_rows_cost_less_and_masks_are_read() -> None:
    shape = BlockShape(tokens=256, width=128, heads=4, hidden=512)
    results = {}
    for name, kind in {
        "dense": StepKind(256),
        "reuse": StepKind(64, MaskMode.MASKED),
        "refresh": StepKind(256, MaskMode.GENERATE),
    }.items():
        plan, program = lowered(TINY, shape, kind)
        results[name] = count(program, plan.layout, TINY)
        check(program, TINY)
    assert results["reuse"].array_cycles * 4 == results["dense"].array_cycles
    assert results["reuse"].read["masks"] == 4 * 64 * 256 // 8
    assert results["refresh"].written["masks"] == 4 * 256 * 256 // 8
    assert results["refresh"].written["shared residual"] == 256 * 128
    assert results["reuse"].read["shared residual"] == 64 * 128
    assert "masks" not in results["dense"].read


def test_weights_are_double_buffered() -> None:
    """Neighbouring tiles lie in different halves, and loads do not wait for the tile before."""
    shape = BlockShape(tokens=64, width=128, heads=4, hidden=512)
    _, program = lowered(TINY, shape, StepKind(64))
    halves = [c.dot_base >= 576 for c in program.commands if isinstance(c, Mlp)]
    assert len(halves) > 4
    assert all(a != b for a, b in pairwise(halves))
    free_at_once = _loads_ahead(program)
    assert free_at_once > 2


def _loads_ahead(program: Program) -> int:
    """Column loads that may be complete before the command ahead of them in the array queue is."""
    ahead = 0
    last_array = None
    for command in program.commands:
        if isinstance(command, Project | Mlp | Attend):
            last_array = command
        elif isinstance(command, LoadColumns) and last_array is not None:
            ahead += not command.wait
    return ahead


def test_symbolic_is_the_same_program_without_tokens() -> None:
    shape = BlockShape(tokens=300, width=144, heads=2, hidden=300)
    plan, program = lowered(EDGE, shape, StepKind(300, MaskMode.GENERATE))
    _, bare = lowered(EDGE, shape, StepKind(300, MaskMode.GENERATE), tokens=False)
    assert [c.replace(wait=0, signal=0) for c in program.commands] == list(bare.commands)
    assert any(c.wait for c in program.commands)
    assert count(program, plan.layout, EDGE) == count(bare, plan.layout, EDGE)


def test_networks_too_large_to_hold() -> None:
    """A block of PixArt-Sigma's width in key tiles of `edge`, without tensors."""
    shape = BlockShape(tokens=2048, width=1152, heads=16, hidden=4608)
    plan, program = lowered(EDGE, shape, StepKind(2048), tokens=False)
    found = count(program, plan.layout, EDGE)
    assert [t.count for t in plan.keys] == [1024, 1024]
    assert found.commands["attend"] == 16 * 2 * 2048 // EDGE.memory.query_rows
    assert found.read["weights"] >= 1152 * 1152 * 4 + 2 * 1152 * 4608
    products = 2048 * (4 * 1152**2 + 2 * 1152 * 4608) + 2 * 2048**2 * 1152
    assert found.array_cycles * EDGE.macs_per_core == products


# -- what does not fit ---------------------------------------------------------------------------


def test_what_is_refused() -> None:
    shape = BlockShape(tokens=64, width=32, heads=2, hidden=64)
    for kind, message in (
        (StepKind(0), r"rows: must be in \[1, 64\] \(N\), got 0"),
        (StepKind(65), r"rows: must be in \[1, 64\] \(N\), got 65"),
    ):
        with pytest.raises(ValueError, match=message):
            lowered(TINY, shape, kind)
    scalars = BlockScalars(BlockScalars.blank(shape).heads, 0, 0, None)
    with pytest.raises(ValueError, match="hot: MASKED needs a block with a hot_threshold"):
        BlockPlan(TINY, shape).program(scalars, StepKind(4, hot=MaskMode.MASKED))
    with pytest.raises(ValueError, match=r"width: must be in \[1, 72\].*memory.head_dim"):
        lowered(TINY, BlockShape(tokens=64, width=160, heads=2, hidden=64), StepKind(64))
    small = changed(TINY, query_rows=4)
    with pytest.raises(ValueError, match="width: a row takes 40 words, the row buffer has 36"):
        lowered(small, BlockShape(tokens=64, width=320, heads=8, hidden=64), StepKind(64))
    with pytest.raises(ValueError, match=r"hidden: 8 tiles need a mask row each.*is 4"):
        lowered(
            changed(TINY, query_rows=4),
            BlockShape(tokens=8, width=128, heads=4, hidden=512),
            StepKind(8, hot=MaskMode.GENERATE),
        )
    for bad, message in (
        ({"tokens": 0}, "tokens: must be in"),
        ({"width": 33}, r"width: must be a multiple of heads \(2\), got 33"),
        ({"hidden": 1 << 20}, "hidden: must be in"),
    ):
        with pytest.raises(ValueError, match=message):
            BlockShape(**({"tokens": 4, "width": 32, "heads": 2, "hidden": 8} | bad))
    with pytest.raises(ValueError, match="depth, outputs: must be at least 1"):
        NetworkPlan(TINY, shape, 0, 4)
    with pytest.raises(ValueError, match="scalars: has 0 blocks, the network 2"):
        NetworkPlan(TINY, shape, 2, 4).program(NetworkScalars((), 0, True), StepKind(4), 60)


def test_networks_count_and_check() -> None:
    shape = BlockShape(tokens=64, width=32, heads=2, hidden=64)
    plan = NetworkPlan(TINY, shape, 3, 4)
    scalars = NetworkScalars((BlockScalars.blank(shape),) * 3, 0, False)
    program = plan.program(scalars, StepKind(16, MaskMode.MASKED), 48)
    kinds = Counter(c.NAME for c in program.commands)
    assert (kinds["attend"], kinds["forecast"], kinds["record"]) == (6, 1, 1)
    with pytest.raises(ValueError, match=r"reused: must be in \[0, 64\] \(N\), got 65"):
        plan.program(scalars, StepKind(16), 65)
    image = Image(plan.layout)
    image.put_list(plan.shared.rows, range(16))
    image.put_list(plan.buffers.reused, range(16, 64))
    image.put_list(plan.buffers.all_tokens, range(64))
    check(program, TINY, image.data)
