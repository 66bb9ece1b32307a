"""Projections: rows times columns, tile by tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from disc.lower.emit import Emitter, FillRows
from disc.lower.shape import RowList
from disc.lower.tiles import Places, Room, Tile, room_for_columns, room_for_rows, split, visits
from disc.program import Project, ProjectEpilogue, sizes
from disc.program.program import Buffer


@dataclass(frozen=True)
class Layer:
    """Columns of one matrix that are projected to one place."""

    weights: Buffer
    first_weight: int
    """Row of `weights` that is column 0."""
    constants: Buffer
    columns: int
    epilogue: ProjectEpilogue
    dram: int
    stride: int
    gate: int = 0


def lower_projection(
    emitter: Emitter,
    rows: RowList,
    fill: FillRows,
    row_bytes: int,
    width: int,
    layers: Sequence[Layer],
) -> None:
    """Emit projections of the same rows.

    Parameters
    ----------
    fill
        Brings rows into the row buffer.
    row_bytes
        What that takes of DRAM for a row.
    width
        Elements of a row.
    """
    config = emitter.config
    words = sizes.words(width, config)
    room = room_for_rows(config, words, "width")
    row_tiles, row_places = split(rows.rows, room.most), Places(room.bases)
    room = room_for_columns(config, words, max(layer.columns for layer in layers), "weights")
    places = Places(range(len(room.bases)))
    tiles = [
        (layer, tile)
        for layer in layers
        for tile in split(layer.columns, room.most, config.array.banks)
    ]
    weight_bytes = width * sum(layer.columns for layer in layers)
    for r, t in visits(row_tiles, len(tiles), rows.rows * row_bytes, weight_bytes):
        layer, tile = tiles[t]
        count = row_tiles[r].count
        place = places.get(t, partial(_weights, emitter, layer, tile, width, room))
        buffer = emitter.list_buffer(rows, row_tiles[r])
        base = row_places.get(r, partial(fill, buffer, count))
        emitter.emit(
            Project(
                list=buffer,
                rows=count,
                row_base=base,
                width=width,
                columns=tile.count,
                dot_base=room.bases[place],
                constants=place * config.columns_per_bank,
                epilogue=layer.epilogue,
                first_column=tile.first,
                dram=layer.dram,
                stride=layer.stride,
                gate=layer.gate,
            )
        )


def _weights(
    emitter: Emitter, layer: Layer, tile: Tile, width: int, room: Room, place: int
) -> None:
    first = layer.first_weight + tile.first
    dram = layer.weights.address + first * width
    emitter.columns(dram, width, tile.count, width, room.bases[place])
    emitter.constants(layer.constants, first, tile.count, place)
