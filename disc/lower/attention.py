"""Self-attention of a block: heads, key tiles, row tiles."""

from __future__ import annotations

from functools import partial
from typing import Any

from disc.lower.buffers import Block
from disc.lower.emit import Emitter
from disc.lower.shape import StepKind
from disc.lower.tiles import Places, Tile, key_room, key_tiles, room_for_rows, split
from disc.program import Attend, AttendEpilogue, LoadMasks, MaskMode, StoreMasks, sizes


def lower_attention(emitter: Emitter, block: Block, kind: StepKind) -> None:
    """Emit all heads, each over all key tiles, for the rows of the list."""
    _Attention(emitter, block, kind).lower()


class _Attention:
    def __init__(self, emitter: Emitter, block: Block, kind: StepKind) -> None:
        self.emitter, self.block, self.kind = emitter, block, kind
        self.config, self.shape = emitter.config, block.shape
        query_rows, d = self.config.memory.query_rows, block.shape.head_dim
        slots = query_rows if kind.mode == MaskMode.DENSE else query_rows // 2
        words = sizes.words(d, self.config)
        room = room_for_rows(self.config, words, "head dimension", slots=slots)
        self.row_tiles = split(kind.rows, room.most)
        self.keys = key_tiles(self.config, block.shape.tokens, d)
        self.rows = Places(room.bases)
        self.banks = Places(key_room(self.config, block.shape.tokens, d).bases)
        self.masks = Places((0, query_rows // 2))

    def lower(self) -> None:
        several = len(self.keys) > 1
        two = several and self.kind.mode == MaskMode.GENERATE
        for head in range(self.shape.heads):
            for mark in (False, True) if two else (False,):
                for t, tile in enumerate(self.keys):
                    base = self.banks.get((head, t), partial(self._load_keys, head, tile))
                    for rows in self.row_tiles:
                        # The first of two passes leaves the dense state of the whole row.
                        self._attend(head, t, rows, base, mark, sums_only=two and not mark)

    def _words(self, tile: Tile) -> int:
        return sizes.groups(tile.count, self.config) * sizes.words(self.shape.head_dim, self.config)

    def _load_keys(self, head: int, tile: Tile, base: int) -> None:
        d, width = self.shape.head_dim, self.shape.width
        start = self.block.buffers.kv.address + tile.first * 2 * width + head * d
        columns = self.emitter.columns
        columns(start, 2 * width, tile.count, d, base)
        columns(start + width, 2 * width, tile.count, d, base + self._words(tile))

    def _attend(
        self, head: int, t: int, rows: Tile, base: int, mark: bool, *, sums_only: bool
    ) -> None:
        d, scales = self.shape.head_dim, self.block.scalars.heads[head]
        tile, shared = self.keys[t], self.block.shared
        buffer = self.emitter.list_buffer(self.block.rows(self.kind), rows)
        fill = self.emitter.rows_from(shared.q.address + head * d, self.shape.width, d)
        row_base = self.rows.get((head, rows), partial(fill, buffer, rows.count))
        mode = MaskMode.DENSE if sums_only else self.kind.mode
        epilogue = _epilogue(mode, self.kind.share_residual)
        masks = self._mask_fields(head, t, rows, buffer)
        slot = 0
        if mode != MaskMode.DENSE:
            load = self._load_masks if mode == MaskMode.MASKED else _nothing
            slot = self.masks.get((head, t, rows), partial(load, masks))
        last = t == len(self.keys) - 1 and not sums_only
        state = rows.first * sizes.state_bytes(self.config, d)
        self.emitter.emit(
            Attend(
                list=buffer,
                rows=rows.count,
                row_base=row_base,
                width=d,
                columns=tile.count,
                dot_base=base,
                axpy_base=base + self._words(tile),
                mode=mode,
                epilogue=epilogue,
                slot=slot,
                first_column=tile.first,
                score_multiplier=scales.score_multiplier,
                score_shift=scales.score_shift,
                output_multiplier=scales.output_multiplier,
                output_shift=scales.output_shift,
                threshold=self.kind.threshold if mode == MaskMode.GENERATE else 0,
                diagonal=int(scales.diagonal),
                first=int(t == 0),
                last=int(last),
                mark=int(mark),
                fill=int(self.kind.fill and mode == MaskMode.GENERATE),
                partial=shared.states.address + state if len(self.keys) > 1 else 0,
                kept=shared.kept.address + state if mark else 0,
                **(self._result(head, epilogue) if last else {}),
            )
        )
        if mode == MaskMode.GENERATE:
            self.emitter.emit(StoreMasks(**masks, slot=slot))

    def _mask_fields(self, head: int, t: int, rows: Tile, buffer: int) -> dict[str, Any]:
        length = sizes.mask_row_bytes(self.keys[0].count, self.config)
        index = (head * len(self.keys) + t) * self.shape.tokens
        return {
            "list": buffer,
            "rows": rows.count,
            "dram": self.block.buffers.masks.address + index * length,
            "stride": length,
            "columns": self.keys[t].count,
        }

    def _load_masks(self, fields: dict[str, Any], slot: int) -> None:
        self.emitter.emit(LoadMasks(**fields, slot=slot))

    def _result(self, head: int, epilogue: AttendEpilogue) -> dict[str, int]:
        d, width = self.shape.head_dim, self.shape.width
        fields = {"dram": self.block.shared.attention_out.address + head * d, "stride": width}
        if epilogue in (AttendEpilogue.ADD, AttendEpilogue.KEEP):
            size = sizes.sharing_bytes(self.config)
            fields["residual"] = self.block.buffers.residual.address + head * d * size
            fields["residual_stride"] = width * size
        return fields


def _nothing(fields: dict[str, Any], slot: int) -> None:
    """A new mask needs no loading."""


def _epilogue(mode: MaskMode, share: bool) -> AttendEpilogue:
    if mode == MaskMode.DENSE:
        return AttendEpilogue.PLAIN
    if mode == MaskMode.MASKED:
        return AttendEpilogue.ADD if share else AttendEpilogue.PLAIN
    return AttendEpilogue.KEEP if share else AttendEpilogue.MASKED
