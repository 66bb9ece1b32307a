"""The other scenes."""

from __future__ import annotations

from typing import Any

import numpy as np

from disc.lower.buffers import list_bytes
from disc.lower.random_programs.attention import AttentionScenes
from disc.lower.random_programs.maker import Emit, emit_all
from disc.program import (
    Change,
    Forecast,
    LoadList,
    LoadMasks,
    LoadRows,
    LoadTable,
    MaskMode,
    Mlp,
    Norm,
    Project,
    ProjectEpilogue,
    Record,
    Select,
    StoreMasks,
    sizes,
)
from disc.program.access import LISTS
from disc.program.program import BufferKind
from disc.tables import DISTANCE_BITS, step_ratio_table


class Scenes(AttentionScenes):
    """A scene's buffers are laid out at once, its commands emitted later."""

    def projection(self) -> Emit:
        """Rows from DRAM or normalised, projected to operands, int16 or into the stream."""
        normalise = self.chance(0.5)
        width = self.width if normalise else self.fit_width(40)
        rows, load_list = self.window(self.row_room(width))
        if normalise:
            base = self.place(self.config.query_words, rows.rows * sizes.words(width, self.config))
            fill: Any = Norm(
                list=rows.buffer,
                rows=rows.rows,
                dram=self.x.address,
                stride=2 * width,
                width=width,
                vectors=self.vectors(2, width).address,
                epsilon=self.integer(0, 1 << 30),
                base=base,
            )
        else:
            base, fill = self.operand_rows(rows, width)
        epilogue = self.pick(ProjectEpilogue)
        gate = epilogue == ProjectEpilogue.GATE
        columns = self.fit_columns(sizes.words(width, self.config))
        if gate:
            columns = min(columns, self.width)
        layer = self.width if gate else columns + self.integer(0, 5)
        first = self.integer(0, layer - columns)
        size = 1 if epilogue == ProjectEpilogue.OPERAND else 2
        length = sizes.groups(columns, self.config) * sizes.words(width, self.config)
        weights = self.columns(columns, width, self.place(self.config.memory.bank_words, length))
        constants, load_constants = self.constants(columns)
        out = self.x if gate else self.noise("out", self.tokens * layer * size, "activations")
        command = Project(
            list=rows.buffer,
            rows=rows.rows,
            row_base=base,
            width=width,
            columns=columns,
            dot_base=weights.base,
            constants=constants,
            epilogue=epilogue,
            first_column=first,
            dram=out.address,
            stride=layer * size,
            gate=self.vectors(1, layer).address if gate else 0,
        )
        return emit_all(load_list, weights, load_constants, fill, command)

    def mlp(self) -> Emit:
        """One to three tiles of hidden units, whose hot columns are used or found."""
        width, out = self.width, self.integer(1, self.width)
        rows, load_list = self.window(self.row_room(width))
        base, load_rows = self.operand_rows(rows, width)
        words = sizes.words(width, self.config) + sizes.words(out, self.config)
        mode = self.pick(MaskMode)
        tiles = self.integer(1, 3)
        sums = rows.rows * out * sizes.accumulator_bytes(self.config)
        partial = self.add("sums", sums, BufferKind.SCRATCH, "partial sums")
        half = 1 << (self.config.number.operand_bits - 1)
        table = self.put("gelu", self.rng.integers(-half, half, 2 * half), "<i1", "constants")
        kind = f"<i{sizes.accumulator_bytes(self.config)}"
        bias = self.put("bias", self.rng.integers(-9999, 9999, out), kind, "constants")
        gate = self.vectors(1, out)
        commands: list[Any] = [load_list, load_rows, LoadTable(dram=table.address)]
        for t in range(tiles):
            columns = self.fit_columns(words)
            dot, axpy = self.two_bases(columns, (width, out))
            constants, load_constants = self.constants(columns)
            commands += [
                self.columns(columns, width, dot),
                self.columns(columns, out, axpy),
                load_constants,
            ]
            length = sizes.mask_row_bytes(columns, self.config)
            masks = {
                "list": 0,
                "rows": 1,
                "dram": self.noise("hot", length, "masks").address,
                "columns": columns,
                "slot": self.place(self.config.memory.query_rows, 1),
                "single": 1,
            }
            fresh = mode == MaskMode.GENERATE and self.chance(0.5)
            if mode == MaskMode.MASKED or (mode == MaskMode.GENERATE and not fresh):
                commands.append(LoadMasks(**masks))
            last = t == tiles - 1
            commands.append(
                Mlp(
                    list=rows.buffer,
                    rows=rows.rows,
                    row_base=base,
                    width=width,
                    columns=columns,
                    dot_base=dot,
                    axpy_base=axpy,
                    out_width=out,
                    constants=constants,
                    mode=mode,
                    slot=masks["slot"] if mode != MaskMode.DENSE else 0,
                    fresh=int(fresh),
                    threshold=self.integer(0, 255) if mode == MaskMode.GENERATE else 0,
                    first=int(t == 0),
                    last=int(last),
                    partial=partial.address if tiles > 1 else 0,
                    bias=bias.address,
                    gate=gate.address,
                    dram=self.x.address,
                    stride=2 * self.width,
                )
            )
            if mode == MaskMode.GENERATE:
                commands.append(StoreMasks(**masks))
        return emit_all(*commands)

    def branches(self) -> Emit:
        """Reused tokens forecast, computed ones recorded, in any order."""
        n, d = self.tokens, self.width
        embedding, last, before = (
            self.noise(name, 2 * n * d, "branch sums") for name in ("embedding", "last", "before")
        )
        step = self.integer(2, 60)
        ages = np.empty((n, 2), np.int64)
        ages[:, 0] = self.rng.integers(1, step, n)
        ages[:, 1] = [self.rng.integers(-1, last_step) for last_step in ages[:, 0]]
        size = sizes.HEADER_BYTES + n * sizes.AGE_BYTES
        buffer = self.add("ages", size, BufferKind.STATE, "branch sums")
        self.fills.append(lambda image: image.put(buffer, [step, 0], "<i4"))
        self.fills.append(lambda image: image.put(buffer, ages, "<i2", offset=sizes.HEADER_BYTES))
        ratios = self.put("ratios", step_ratio_table(self.rng.random()), "<u4", "constants")
        assert ratios.size == sizes.RATIO_BYTES << DISTANCE_BITS
        commands: list[Any] = []
        for _ in range(self.integer(1, 3)):
            rows, load_list = self.window(self.config.memory.query_rows)
            fields = {
                "list": rows.buffer,
                "rows": rows.rows,
                "x": self.x.address,
                "embedding": embedding.address,
                "last": last.address,
                "before": before.address,
                "ages": buffer.address,
                "stride": 2 * d,
                "width": d,
            }
            commands.append(load_list)
            if self.chance(0.5):
                commands.append(Record(**fields))
            else:
                hold = int(self.chance(0.3))
                commands.append(Forecast(**fields, ratios=ratios.address, hold=hold))
        return emit_all(*commands)

    def moved_masks(self) -> Emit:
        """Masks read and written back elsewhere."""
        rows, load_list = self.window(self.config.memory.query_rows)
        columns = self.integer(1, self.config.memory.columns)
        single = int(self.chance(0.4))
        masks = self._masks(rows, columns) | {"single": single}
        if single:
            masks |= {"rows": 1}
        other = self._masks(rows, columns)["dram"]
        return emit_all(load_list, LoadMasks(**masks), StoreMasks(**masks | {"dram": other}))

    def selection(self) -> Emit:
        """Tokens chosen by their latents, and rows gathered by the new list."""
        rows, columns = self.integer(1, 4), self.integer(1, 5)
        patch, channels = self.integer(1, 3), self.integer(1, 4)
        tokens = rows * columns
        values = tokens * patch**2 * channels
        latents = [
            self.noise(name, values * 2, "latents") for name in ("latent", "reference", "previous")
        ]
        lists = [
            self.add(name, list_bytes(tokens), BufferKind.OUTPUT, "lists")
            for name in ("selected", "reused")
        ]
        mode = self.pick(Change)
        scores = (2 + mode) * 25000 * patch**2 * channels
        command = Select(
            grid_rows=rows,
            grid_columns=columns,
            patch=patch,
            channels=channels,
            mode=mode,
            threshold=self.integer(0, scores // 2),
            latent=latents[0].address,
            reference=latents[1].address,
            previous=latents[2].address if mode == Change.SECOND_DIFFERENCE else 0,
            update=self.integer(0, 1),
            selected=lists[0].address,
            reused=lists[1].address,
        )
        buffer = self.integer(0, LISTS - 1)
        count = self.integer(1, min(tokens, self.config.memory.query_rows, self.row_room(4)))
        load = LoadList(
            list=buffer, dram=self.pick(lists).address, first=0, rows=count, tokens=tokens
        )
        source = self.noise("operands", tokens * 4, "activations")
        base = self.place(self.config.query_words, count * sizes.words(4, self.config))
        gather = LoadRows(
            list=buffer, rows=count, dram=source.address, stride=4, width=4, base=base
        )
        return emit_all(command, load, gather)
