"""A DiT block as commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from disc.lower.buffers import BlockBuffers, SharedBuffers
from disc.lower.shape import BlockScalars, BlockShape, StepKind
from disc.lower.tiles import (
    Places,
    Room,
    Tile,
    hidden_room,
    hidden_tiles,
    key_room,
    key_tiles,
    room_for_columns,
    room_for_rows,
    split,
    visits,
)
from disc.program import (
    Attend,
    AttendEpilogue,
    LoadColumns,
    LoadConstants,
    LoadList,
    LoadMasks,
    LoadRows,
    LoadTable,
    MaskMode,
    Mlp,
    Norm,
    Project,
    ProjectEpilogue,
    StoreMasks,
    sizes,
)
from disc.program.access import LISTS
from disc.program.build import Builder
from disc.program.program import Buffer

FillRows = Callable[[int, int, int], None]
"""Emits what brings rows into the row buffer, given (list buffer, rows, base)."""


@dataclass(frozen=True)
class _Layer:
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


class Lists:
    """Keeps row lists in the list buffers."""

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._places = Places(range(LISTS))

    def get(self, address: int, tile: Tile, tokens: int) -> int:
        """List buffer that holds a window of the list at a DRAM address."""

        def fill(buffer: int) -> None:
            self._builder.emit(
                LoadList(
                    list=buffer, dram=address, first=tile.first, rows=tile.count, tokens=tokens
                )
            )

        return self._places.get((address, tile), fill)


class BlockLowering:
    """Emits the commands of a block.

    Parameters
    ----------
    builder
        Takes the commands; it knows the buffers.
    lists
        Row lists in the core.
    shape, scalars
        Of the block.
    shared, buffers
        Where everything is.
    """

    def __init__(
        self,
        builder: Builder,
        lists: Lists,
        shape: BlockShape,
        scalars: BlockScalars,
        shared: SharedBuffers,
        buffers: BlockBuffers,
    ) -> None:
        self.builder, self.config, self.lists = builder, builder.config, lists
        self.shape, self.scalars = shape, scalars
        self.shared, self.buffers = shared, buffers

    def lower(self, kind: StepKind) -> None:
        """Emit a step of the block.

        Raises
        ------
        ValueError
            The block does not fit the configuration, or the step does not fit the block.
        """
        if not 1 <= kind.rows <= self.shape.tokens:
            raise ValueError(f"rows: must be in [1, {self.shape.tokens}] (N), got {kind.rows}")
        if kind.hot != MaskMode.DENSE and self.scalars.hot_threshold is None:
            raise ValueError(f"hot: {kind.hot.name} needs a block with a hot_threshold")
        self.qkv(kind)
        self.attention(kind)
        self.proj(kind)
        self.mlp(kind)

    # -- projections ---------------------------------------------------------------------------

    def qkv(self, kind: StepKind) -> None:
        """LayerNorm, modulation and the projections to Q, K and V."""
        d, b, operand = self.shape.width, self.buffers, ProjectEpilogue.OPERAND
        layers = [
            _Layer(b.qkv, 0, b.qkv_constants, d, operand, self.shared.q.address, d),
            _Layer(b.qkv, d, b.qkv_constants, 2 * d, operand, b.kv.address, 2 * d),
        ]
        fill = self._norm(b.attention, self.scalars.attention_epsilon)
        self._project(kind.rows, fill, 2 * d, layers)

    def proj(self, kind: StepKind) -> None:
        """The projection behind attention, gated into the residual stream."""
        d, b, x = self.shape.width, self.buffers, self.shared.x
        layer = _Layer(
            b.proj,
            0,
            b.proj_constants,
            d,
            ProjectEpilogue.GATE,
            x.address,
            d * sizes.RESIDUAL_BYTES,
            b.attention_gate.address,
        )

        def fill(buffer: int, rows: int, base: int) -> None:
            self.builder.emit(
                LoadRows(
                    list=buffer,
                    rows=rows,
                    dram=self.shared.attention_out.address,
                    stride=d,
                    width=d,
                    base=base,
                )
            )

        self._project(kind.rows, fill, d, [layer])

    def _norm(self, vectors: Buffer, epsilon: int) -> FillRows:
        d = self.shape.width

        def fill(buffer: int, rows: int, base: int) -> None:
            self.builder.emit(
                Norm(
                    list=buffer,
                    rows=rows,
                    dram=self.shared.x.address,
                    stride=d * sizes.RESIDUAL_BYTES,
                    width=d,
                    vectors=vectors.address,
                    epsilon=epsilon,
                    base=base,
                )
            )

        return fill

    def _list(self, tile: Tile) -> int:
        return self.lists.get(self.shared.rows.address, tile, self.shape.tokens)

    def _project(self, rows: int, fill: FillRows, row_bytes: int, layers: Sequence[_Layer]) -> None:
        """Emit a projection; `row_bytes` is what bringing in a row takes of DRAM."""
        d, config = self.shape.width, self.config
        words = sizes.words(d, config)
        room = room_for_rows(config, words, "width")
        row_tiles, row_places = split(rows, room.most), Places(room.bases)
        total = max(layer.columns for layer in layers)
        room = room_for_columns(config, words, total, "weights")
        places = Places(range(len(room.bases)))
        tiles = [
            (layer, tile)
            for layer in layers
            for tile in split(layer.columns, room.most, config.array.banks)
        ]
        weight_bytes = d * sum(layer.columns for layer in layers)
        for r, t in visits(row_tiles, len(tiles), rows * row_bytes, weight_bytes):
            layer, tile = tiles[t]
            rows_of = row_tiles[r]
            place = places.get(t, partial(self._weights, layer, tile, room))
            buffer = self._list(rows_of)
            base = row_places.get(r, partial(fill, buffer, rows_of.count))
            self.builder.emit(
                Project(
                    list=buffer,
                    rows=rows_of.count,
                    row_base=base,
                    width=d,
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

    def _weights(self, layer: _Layer, tile: Tile, room: Room, place: int) -> None:
        d = self.shape.width
        first = layer.first_weight + tile.first
        self._columns(layer.weights.address + first * d, d, tile.count, d, room.bases[place])
        self._constants(layer.constants, first, tile.count, place)

    def _columns(self, dram: int, stride: int, columns: int, width: int, base: int) -> None:
        self.builder.emit(
            LoadColumns(dram=dram, stride=stride, columns=columns, width=width, base=base)
        )

    def _constants(self, constants: Buffer, first: int, columns: int, place: int) -> None:
        self.builder.emit(
            LoadConstants(
                dram=constants.address + first * sizes.CONSTANT_BYTES,
                columns=columns,
                base=place * self.config.columns_per_bank,
            )
        )

    # -- attention -----------------------------------------------------------------------------

    def attention(self, kind: StepKind) -> None:
        """All heads, each over all key tiles, for the rows of the list."""
        config, d = self.config, self.shape.head_dim
        masks = kind.mode != MaskMode.DENSE
        slots = config.memory.query_rows // 2 if masks else config.memory.query_rows
        room = room_for_rows(config, sizes.words(d, config), "head dimension", slots=slots)
        row_tiles, rows = split(kind.rows, room.most), Places(room.bases)
        keys = key_tiles(config, self.shape.tokens, d)
        banks = key_room(config, self.shape.tokens, d).bases
        places, mask_places = Places(banks), Places((0, config.memory.query_rows // 2))
        several = len(keys) > 1
        passes = [False, True] if several and kind.mode == MaskMode.GENERATE else [False]
        for head in range(self.shape.heads):
            for mark in passes:
                for t, tile in enumerate(keys):
                    base = places.get((head, t), partial(self._keys, head, tile))
                    for r, rows_of in enumerate(row_tiles):
                        buffer = self._list(rows_of)
                        row_base = rows.get(
                            (head, r),
                            partial(self._queries, head, buffer, rows_of.count),
                        )
                        self._attend(
                            kind, head, t, keys, mark, rows_of, buffer, row_base, base, mask_places
                        )

    def _keys(self, head: int, tile: Tile, base: int) -> None:
        d, width = self.shape.head_dim, self.shape.width
        start = self.buffers.kv.address + tile.first * 2 * width + head * d
        length = sizes.groups(tile.count, self.config) * sizes.words(d, self.config)
        self._columns(start, 2 * width, tile.count, d, base)
        self._columns(start + width, 2 * width, tile.count, d, base + length)

    def _queries(self, head: int, buffer: int, rows: int, base: int) -> None:
        d = self.shape.head_dim
        self.builder.emit(
            LoadRows(
                list=buffer,
                rows=rows,
                dram=self.shared.q.address + head * d,
                stride=self.shape.width,
                width=d,
                base=base,
            )
        )

    def mask_rows(self, head: int, t: int, keys: Sequence[Tile]) -> tuple[int, int]:
        """Address of the mask of token 0 for a head and key tile, and the distance of tokens."""
        length = sizes.mask_row_bytes(keys[0].count, self.config)
        index = (head * len(keys) + t) * self.shape.tokens
        return self.buffers.masks.address + index * length, length

    def _attend(
        self,
        kind: StepKind,
        head: int,
        t: int,
        keys: Sequence[Tile],
        mark: bool,
        rows: Tile,
        buffer: int,
        row_base: int,
        base: int,
        mask_places: Places,
    ) -> None:
        tile, d, scales = keys[t], self.shape.head_dim, self.scalars.heads[head]
        last = t == len(keys) - 1
        several = len(keys) > 1
        # The first of two passes leaves the dense state of the whole row, for the second.
        sums_only = several and kind.mode == MaskMode.GENERATE and not mark
        mode = MaskMode.DENSE if sums_only else kind.mode
        slot = 0
        if mode != MaskMode.DENSE:
            dram, stride = self.mask_rows(head, t, keys)
            fields = {
                "list": buffer,
                "rows": rows.count,
                "dram": dram,
                "stride": stride,
                "columns": tile.count,
            }

            def load(place: int) -> None:
                if mode == MaskMode.MASKED:
                    self.builder.emit(LoadMasks(**fields, slot=place))

            slot = mask_places.get((head, t, rows), load)
        state = rows.first * sizes.state_bytes(self.config, d)
        epilogue = _epilogue(mode, kind.share_residual)
        result: dict[str, int] = {}
        if last and not sums_only:
            result = self._result(head, epilogue)
        self.builder.emit(
            Attend(
                list=buffer,
                rows=rows.count,
                row_base=row_base,
                width=d,
                columns=tile.count,
                dot_base=base,
                axpy_base=base
                + sizes.groups(tile.count, self.config) * sizes.words(d, self.config),
                mode=mode,
                epilogue=epilogue,
                slot=slot,
                first_column=tile.first,
                score_multiplier=scales.score_multiplier,
                score_shift=scales.score_shift,
                output_multiplier=scales.output_multiplier,
                output_shift=scales.output_shift,
                threshold=kind.threshold if mode == MaskMode.GENERATE else 0,
                diagonal=int(scales.diagonal),
                first=int(t == 0),
                last=int(last and not sums_only),
                mark=int(mark),
                partial=self.shared.states.address + state if several else 0,
                kept=self.shared.kept.address + state if mark else 0,
                **result,
            )
        )
        if mode == MaskMode.GENERATE:
            self.builder.emit(StoreMasks(**fields, slot=slot))

    def _result(self, head: int, epilogue: AttendEpilogue) -> dict[str, int]:
        d, width = self.shape.head_dim, self.shape.width
        fields = {"dram": self.shared.attention_out.address + head * d, "stride": width}
        if epilogue in (AttendEpilogue.ADD, AttendEpilogue.KEEP):
            size = sizes.sharing_bytes(self.config)
            fields["residual"] = self.buffers.residual.address + head * d * size
            fields["residual_stride"] = width * size
        return fields

    # -- MLP -----------------------------------------------------------------------------------

    def mlp(self, kind: StepKind) -> None:
        """LayerNorm, modulation and the MLP, gated into the residual stream."""
        d, hidden, config, b = self.shape.width, self.shape.hidden, self.config, self.buffers
        words = sizes.words(d, config)
        room = room_for_rows(config, words, "width")
        row_tiles, row_places = split(kind.rows, room.most), Places(room.bases)
        banks = hidden_room(config, d, hidden).bases
        tiles, places = hidden_tiles(config, d, hidden), Places(range(len(banks)))
        if kind.hot != MaskMode.DENSE and len(tiles) > config.memory.query_rows:
            raise ValueError(
                f"hidden: {len(tiles)} tiles need a mask row each, memory.query_rows is "
                f"{config.memory.query_rows} in configuration {config.name!r}"
            )
        self.builder.emit(LoadTable(dram=b.gelu.address))
        if kind.hot == MaskMode.MASKED:
            for t, tile in enumerate(tiles):
                self.builder.emit(LoadMasks(**self._hot(t, tiles), columns=tile.count))
        fill = self._norm(b.mlp, self.scalars.mlp_epsilon)
        threshold = min(self.scalars.hot_threshold or 0, 255)
        weight_bytes = 2 * hidden * d
        for r, t in visits(row_tiles, len(tiles), kind.rows * 2 * d, weight_bytes):
            tile, rows = tiles[t], row_tiles[r]
            length = sizes.groups(tile.count, config) * words
            place = places.get(t, partial(self._hidden, tile, banks))
            buffer = self._list(rows)
            base = row_places.get(r, partial(fill, buffer, rows.count))
            last = t == len(tiles) - 1
            sums = rows.first * d * sizes.accumulator_bytes(config)
            self.builder.emit(
                Mlp(
                    list=buffer,
                    rows=rows.count,
                    row_base=base,
                    width=d,
                    columns=tile.count,
                    dot_base=banks[place],
                    axpy_base=banks[place] + length,
                    out_width=d,
                    constants=place * config.columns_per_bank,
                    mode=kind.hot,
                    slot=t if kind.hot != MaskMode.DENSE else 0,
                    fresh=int(kind.hot == MaskMode.GENERATE and r == 0),
                    threshold=threshold if kind.hot == MaskMode.GENERATE else 0,
                    first=int(t == 0),
                    last=int(last),
                    partial=self.shared.sums.address + sums if len(tiles) > 1 else 0,
                    bias=b.down_bias.address,
                    gate=b.mlp_gate.address,
                    dram=self.shared.x.address,
                    stride=d * sizes.RESIDUAL_BYTES,
                )
            )
        if kind.hot == MaskMode.GENERATE:
            for t, tile in enumerate(tiles):
                self.builder.emit(StoreMasks(**self._hot(t, tiles), columns=tile.count))

    def _hot(self, t: int, tiles: Sequence[Tile]) -> dict[str, int]:
        length = sizes.mask_row_bytes(tiles[0].count, self.config)
        dram = self.buffers.hot.address + t * length
        return {"list": 0, "rows": 1, "dram": dram, "slot": t, "single": 1}

    def _hidden(self, tile: Tile, banks: Sequence[int], place: int) -> None:
        d, b = self.shape.width, self.buffers
        length = sizes.groups(tile.count, self.config) * sizes.words(d, self.config)
        self._columns(b.up.address + tile.first * d, d, tile.count, d, banks[place])
        self._columns(b.down.address + tile.first * d, d, tile.count, d, banks[place] + length)
        self._constants(b.up_constants, tile.first, tile.count, place)


def _epilogue(mode: MaskMode, share: bool) -> AttendEpilogue:
    if mode == MaskMode.DENSE:
        return AttendEpilogue.PLAIN
    if mode == MaskMode.MASKED:
        return AttendEpilogue.ADD if share else AttendEpilogue.PLAIN
    return AttendEpilogue.KEEP if share else AttendEpilogue.MASKED
