"""The MLP of a block: tiles of hidden units."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from disc.lower.buffers import Block
from disc.lower.emit import Emitter
from disc.lower.shape import StepKind
from disc.lower.tiles import Places, Tile, hidden_room, hidden_tiles, room_for_rows, split, visits
from disc.program import LoadMasks, LoadTable, MaskMode, Mlp, StoreMasks, sizes


def lower_mlp(emitter: Emitter, block: Block, kind: StepKind) -> None:
    """Emit LayerNorm, modulation and the MLP, gated into the residual stream."""
    d, hidden, config, b = block.shape.width, block.shape.hidden, emitter.config, block.buffers
    words = sizes.words(d, config)
    room = room_for_rows(config, words, "width")
    row_tiles, row_places = split(kind.rows, room.most), Places(room.bases)
    banks, tiles = hidden_room(config, d, hidden).bases, hidden_tiles(config, d, hidden)
    places = Places(range(len(banks)))
    sparse = kind.hot != MaskMode.DENSE
    if sparse and len(tiles) > config.memory.query_rows:
        raise ValueError(
            f"hidden: {len(tiles)} tiles need a mask row each, memory.query_rows is "
            f"{config.memory.query_rows} in configuration {config.name!r}"
        )
    emitter.emit(LoadTable(dram=b.gelu.address))
    masks = _masks(block, tiles, emitter)
    if kind.hot == MaskMode.MASKED:
        for fields in masks:
            emitter.emit(LoadMasks(**fields))
    x = block.shared.x
    fill = emitter.rows_normalised(x, d, b.mlp, block.scalars.mlp_epsilon)
    generate = kind.hot == MaskMode.GENERATE
    threshold = min(block.scalars.hot_threshold or 0, 255)
    row_bytes = kind.rows * d * sizes.RESIDUAL_BYTES
    for r, t in visits(row_tiles, len(tiles), row_bytes, 2 * hidden * d):
        tile, rows = tiles[t], row_tiles[r]
        place = places.get(t, partial(_weights, emitter, block, tile, banks))
        buffer = emitter.list_buffer(block.rows(kind), rows)
        base = row_places.get(r, partial(fill, buffer, rows.count))
        sums = rows.first * d * sizes.accumulator_bytes(config)
        emitter.emit(
            Mlp(
                list=buffer,
                rows=rows.count,
                row_base=base,
                width=d,
                columns=tile.count,
                dot_base=banks[place],
                axpy_base=banks[place] + sizes.groups(tile.count, config) * words,
                out_width=d,
                constants=place * config.columns_per_bank,
                mode=kind.hot,
                slot=t if sparse else 0,
                fresh=int(generate and r == 0),
                threshold=threshold if generate else 0,
                first=int(t == 0),
                last=int(t == len(tiles) - 1),
                partial=block.shared.sums.address + sums if len(tiles) > 1 else 0,
                bias=b.down_bias.address,
                gate=b.mlp_gate.address,
                dram=x.address,
                stride=d * sizes.RESIDUAL_BYTES,
            )
        )
    if generate:
        for fields in masks:
            emitter.emit(StoreMasks(**fields))


def _masks(block: Block, tiles: Sequence[Tile], emitter: Emitter) -> list[dict[str, int]]:
    """Fields of what moves each tile's hot columns; tile t has row slot t."""
    length = sizes.mask_row_bytes(tiles[0].count, emitter.config)
    return [
        {
            "list": 0,
            "rows": 1,
            "dram": block.buffers.hot.address + t * length,
            "columns": tile.count,
            "slot": t,
            "single": 1,
        }
        for t, tile in enumerate(tiles)
    ]


def _weights(emitter: Emitter, block: Block, tile: Tile, banks: Sequence[int], place: int) -> None:
    d, b = block.shape.width, block.buffers
    length = sizes.groups(tile.count, emitter.config) * sizes.words(d, emitter.config)
    emitter.columns(b.up.address + tile.first * d, d, tile.count, d, banks[place])
    emitter.columns(b.down.address + tile.first * d, d, tile.count, d, banks[place] + length)
    emitter.constants(b.up_constants, tile.first, tile.count, place)
