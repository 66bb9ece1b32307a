"""Scenes of attention."""

from __future__ import annotations

from typing import Any

from disc.lower.random_programs.maker import Emit, Maker, Rows, emit_all
from disc.program import (
    Attend,
    AttendEpilogue,
    LoadColumns,
    LoadList,
    LoadMasks,
    LoadRows,
    MaskMode,
    StoreMasks,
    sizes,
)
from disc.program.program import BufferKind


class AttentionScenes(Maker):
    """Heads over one key tile and over several."""

    def _attend_fields(self, rows: Rows, width: int) -> dict[str, Any]:
        return {
            "list": rows.buffer,
            "rows": rows.rows,
            "width": width,
            "score_multiplier": self.integer(1, (1 << 16) - 1),
            "score_shift": self.integer(12, 24),
            "output_multiplier": self.integer(1, (1 << 16) - 1),
            "output_shift": self.integer(self.config.number.sharing_guard_bits, 20),
            "diagonal": self.integer(0, 1),
        }

    def _head(self) -> tuple[int, Rows, LoadList, int, LoadRows]:
        width = self.integer(1, min(self.config.memory.head_dim, self.width))
        rows, load_list = self.window(self.row_room(width))
        base, load = self.operand_rows(rows, width)
        return width, rows, load_list, base, load

    def _keys(self, count: int, width: int) -> tuple[LoadColumns, LoadColumns]:
        dot, axpy = self.two_bases(count, (width, width))
        return self.columns(count, width, dot), self.columns(count, width, axpy)

    def _masks(self, rows: Rows, columns: int) -> dict[str, Any]:
        length = sizes.mask_row_bytes(columns, self.config)
        buffer = self.noise("masks", self.tokens * length, "masks")
        slot = self.place(self.config.memory.query_rows, rows.rows)
        fields = {"list": rows.buffer, "rows": rows.rows, "columns": columns}
        return fields | {"dram": buffer.address, "stride": length, "slot": slot}

    def _result(self, width: int, epilogue: AttendEpilogue) -> dict[str, int]:
        stride = width + self.integer(0, 3)
        out = self.noise("out", self.tokens * stride, "activations")
        found = {"dram": out.address, "stride": stride}
        if epilogue in (AttendEpilogue.ADD, AttendEpilogue.KEEP):
            size = sizes.sharing_bytes(self.config)
            stride = (width + self.integer(0, 3)) * size
            kept = self.noise("residual", self.tokens * stride, "shared residual")
            found |= {"residual": kept.address, "residual_stride": stride}
        return found

    def _epilogue(self, mode: MaskMode) -> AttendEpilogue:
        e = AttendEpilogue
        return self.pick(
            {
                MaskMode.DENSE: [e.PLAIN],
                MaskMode.MASKED: [e.PLAIN, e.ADD],
                MaskMode.GENERATE: [e.PLAIN, e.KEEP, e.MASKED],
            }[mode]
        )

    def attention(self) -> Emit:
        """One head over one key tile."""
        width, rows, load_list, base, load_rows = self._head()
        columns = self.fit_columns(2 * sizes.words(width, self.config))
        k, v = self._keys(columns, width)
        mode = self.pick(MaskMode)
        masks = self._masks(rows, columns)
        epilogue = self._epilogue(mode)
        command = Attend(
            **self._attend_fields(rows, width),
            **self._result(width, epilogue),
            row_base=base,
            columns=columns,
            dot_base=k.base,
            axpy_base=v.base,
            mode=mode,
            epilogue=epilogue,
            slot=masks["slot"] if mode != MaskMode.DENSE else 0,
            first_column=self.integer(0, self.tokens),
            threshold=self.integer(0, 1 << 20) if mode == MaskMode.GENERATE else 0,
            fill=self.integer(0, 1) if mode == MaskMode.GENERATE else 0,
        )
        before: list[Any] = [load_list, k, v, load_rows]
        after: list[Any] = []
        if mode == MaskMode.MASKED:
            before.append(LoadMasks(**masks))
        if mode == MaskMode.GENERATE:
            after.append(StoreMasks(**masks))
        return emit_all(*before, command, *after)

    def tiled_attention(self) -> Emit:
        """One head over several key tiles, with a second pass if masks are made."""
        width, rows, load_list, base, load_rows = self._head()
        mode = self.pick(MaskMode)
        epilogue = self._epilogue(mode)
        most = self.fit_columns(2 * sizes.words(width, self.config))
        counts = [self.integer(1, most) for _ in range(self.integer(2, 3))]
        state = rows.rows * sizes.state_bytes(self.config, width)
        partial, kept = (
            self.add(name, state, BufferKind.SCRATCH, "partial sums") for name in ("sums", "kept")
        )
        fields = self._attend_fields(rows, width)
        tiles = [(self._keys(n, width), self._masks(rows, n)) for n in counts]
        commands: list[Any] = [load_list, load_rows]
        passes = [MaskMode.DENSE, mode] if mode == MaskMode.GENERATE else [mode]
        threshold, fill = self.integer(0, 1 << 18), self.integer(0, 1)
        result = self._result(width, epilogue)
        for one in passes:
            mark = one == MaskMode.GENERATE
            first_column = 0
            for t, ((k, v), masks) in enumerate(tiles):
                ends = t == len(tiles) - 1 and one == mode
                commands += [k, v]
                if one == MaskMode.MASKED:
                    commands.append(LoadMasks(**masks))
                commands.append(
                    Attend(
                        **fields,
                        **(result if ends else {}),
                        row_base=base,
                        columns=counts[t],
                        dot_base=k.base,
                        axpy_base=v.base,
                        mode=one,
                        epilogue=epilogue if one == mode else AttendEpilogue.PLAIN,
                        slot=masks["slot"] if one != MaskMode.DENSE else 0,
                        first_column=first_column,
                        threshold=threshold if mark else 0,
                        first=int(t == 0),
                        last=int(ends),
                        mark=int(mark),
                        fill=fill if mark else 0,
                        partial=partial.address,
                        kept=kept.address if mark else 0,
                    )
                )
                if mark:
                    commands.append(StoreMasks(**masks))
                first_column += counts[t]
        return emit_all(*commands)
