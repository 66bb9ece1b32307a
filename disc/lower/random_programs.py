"""Random legal programs, for comparing executors of programs with each other.

A program is a row of scenes that share the residual stream, the row lists and the core's memories:
each loads to random places what a random command needs, so that scenes collide everywhere and only
tokens keep them apart.  `coverage` names what a program exercises; `COVERAGE` is what many together
must.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from disc.config import CoreConfig
from disc.hashing import BankHash
from disc.lower.buffers import list_bytes
from disc.lower.layout import Image, Layout
from disc.program import (
    Attend,
    AttendEpilogue,
    Change,
    Fence,
    Forecast,
    LoadColumns,
    LoadConstants,
    LoadList,
    LoadMasks,
    LoadRows,
    LoadTable,
    MaskMode,
    Mlp,
    Norm,
    Program,
    Project,
    ProjectEpilogue,
    Record,
    Select,
    StoreMasks,
    sizes,
)
from disc.program.access import LISTS
from disc.program.build import Builder
from disc.program.fields import Flag
from disc.program.program import Buffer, BufferKind
from disc.tables import DISTANCE_BITS, step_ratio_table

Fill = Callable[[Image], None]
Emit = Callable[[Builder], None]


@dataclass(frozen=True)
class RandomProgram:
    """A program with the memory that it starts from."""

    program: Program
    image: NDArray[np.uint8]
    layout: Layout


def random_program(config: CoreConfig, seed: int, *, scenes: int = 6) -> RandomProgram:
    """Draw a program; equal arguments give equal programs."""
    maker = _Maker(config, np.random.default_rng(seed))
    emits: list[Emit] = []
    for _ in range(scenes):
        draw = maker.pick(
            [
                maker.projection,
                maker.projection,
                maker.attention,
                maker.attention,
                maker.tiled_attention,
                maker.mlp,
                maker.mlp,
                maker.branches,
                maker.moved_masks,
                maker.selection,
            ]
        )
        emits.append(draw())
    hash_ = BankHash.random_gf2(config.array.banks, config.local_bits, seed=seed)
    builder = Builder(config, maker.layout.buffers, hash_rows=hash_.rows)
    for emit in emits:
        emit(builder)
        if maker.chance(0.1):
            builder.emit(Fence())
    image = Image(maker.layout, seed=seed)
    for fill in maker.fills:
        fill(image)
    return RandomProgram(builder.program(), image.data, maker.layout)


@dataclass(frozen=True)
class _Rows:
    """A window of a list in a list buffer."""

    buffer: int
    rows: int


class _Maker:
    """Draws scenes.  A scene's buffers are laid out at once, its commands emitted later."""

    def __init__(self, config: CoreConfig, rng: np.random.Generator) -> None:
        self.config, self.rng = config, rng
        self.layout, self.fills = Layout(), list[Fill]()
        self._count = 0
        self.tokens = self.integer(4, 30)
        most = config.query_words * config.array.lanes // 2
        self.width = self.integer(2, min(48, most))
        n, d = self.tokens, self.width
        self.x = self.noise("x", n * d * 2, "residual stream")
        self.lists = [self._list(f"list{i}") for i in range(2)]

    # -- drawing -------------------------------------------------------------------------------

    def integer(self, low: int, high: int) -> int:
        """Uniform in [low, high], both ends more likely."""
        if self.chance(0.15):
            return low
        return high if self.chance(0.15) else int(self.rng.integers(low, high + 1))

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def pick(self, choices: Any) -> Any:
        options = list(choices)
        return options[int(self.rng.integers(len(options)))]

    def place(self, size: int, length: int) -> int:
        """Where `length` units may begin in a memory."""
        return self.integer(0, size - length)

    # -- buffers -------------------------------------------------------------------------------

    def add(self, name: str, size: int, kind: BufferKind, group: str) -> Buffer:
        self._count += 1
        return self.layout.add(f"{name}.{self._count}", size, kind, group)

    def noise(self, name: str, size: int, group: str) -> Buffer:
        """A buffer of random bytes, which may be read and written."""
        buffer = self.add(name, size, BufferKind.STATE, group)
        values = self.rng.integers(0, 256, size)
        self.fills.append(lambda image: image.put(buffer, values, "u1"))
        return buffer

    def put(self, name: str, values: Any, kind: str, group: str) -> Buffer:
        array = np.asarray(values)
        size = array.size * np.dtype(kind).itemsize
        buffer = self.add(name, size, BufferKind.INPUT, group)
        self.fills.append(lambda image: image.put(buffer, array, kind))
        return buffer

    def _list(self, name: str) -> Buffer:
        buffer = self.add(name, list_bytes(self.tokens), BufferKind.INPUT, "lists")
        count = self.integer(0, self.tokens)
        entries = self.rng.permutation(self.tokens)[:count]
        self.fills.append(lambda image: image.put_list(buffer, entries.tolist()))
        return buffer

    def vectors(self, count: int, width: int) -> Buffer:
        """Vectors with a shift."""
        size = sizes.HEADER_BYTES + count * width * sizes.VECTOR_BYTES
        buffer = self.add("vectors", size, BufferKind.INPUT, "vectors")
        shift = self.pick([0, self.integer(4, 24), self.integer(0, 63)])
        values = self.rng.integers(-(1 << 15), 1 << 15, count * width)
        self.fills.append(lambda image: image.put_vectors(buffer, shift, values))
        return buffer

    def column_constants(self, columns: int) -> Buffer:
        buffer = self.add(
            "constants", columns * sizes.CONSTANT_BYTES, BufferKind.CONSTANT, "constants"
        )
        bias = self.rng.integers(-(1 << 12), 1 << 12, columns)
        multiplier = self.rng.integers(0, 1 << 16, columns)
        shift = self.rng.integers(self.integer(0, 20), 30, columns)
        self.fills.append(lambda image: image.put_constants(buffer, bias, multiplier, shift))
        return buffer

    # -- what several scenes need --------------------------------------------------------------

    def window(self, most: int) -> tuple[_Rows, LoadList]:
        """A window of a list, and the command that loads it."""
        rows = self.integer(1, max(1, min(most, self.config.memory.query_rows, self.tokens)))
        first = self.integer(0, self.tokens - 1)
        buffer = self.integer(0, LISTS - 1)
        load = LoadList(
            list=buffer,
            dram=self.pick(self.lists).address,
            first=first,
            rows=rows,
            tokens=self.tokens,
        )
        return _Rows(buffer, min(rows, self.tokens - first)), load

    def fit_width(self, most: int) -> int:
        """Elements of a row that the row buffer can hold."""
        return self.integer(1, min(most, self.config.query_words * self.config.array.lanes))

    def fit_columns(self, words: int) -> int:
        """Columns of `words` words that the banks can hold."""
        groups = min(self.config.memory.bank_words // words, self.config.columns_per_bank)
        return self.integer(1, groups * self.config.array.banks)

    def row_room(self, width: int) -> int:
        """Rows that the row buffer can hold."""
        return self.config.query_words // sizes.words(width, self.config)

    def operand_rows(self, rows: _Rows, width: int) -> tuple[int, LoadRows]:
        """Rows in the row buffer: where, and the command that loads them."""
        source = self.noise("operands", self.tokens * width, "activations")
        base = self.place(self.config.query_words, rows.rows * sizes.words(width, self.config))
        load = LoadRows(
            list=rows.buffer,
            rows=rows.rows,
            dram=source.address,
            stride=width,
            width=width,
            base=base,
        )
        return base, load

    def columns(self, count: int, width: int, base: int) -> LoadColumns:
        """Loads a random matrix."""
        source = self.noise("matrix", count * width, "weights")
        return LoadColumns(dram=source.address, stride=width, columns=count, width=width, base=base)

    def two_bases(self, count: int, widths: tuple[int, int]) -> tuple[int, int]:
        """Where two images of the same columns lie in the banks."""
        groups = sizes.groups(count, self.config)
        first, second = (groups * sizes.words(w, self.config) for w in widths)
        start = self.place(self.config.memory.bank_words, first + second)
        return (start, start + first) if self.chance(0.5) else (start + second, start)

    def constants(self, count: int) -> tuple[int, LoadConstants]:
        """Constants of columns: where, and the command that loads them."""
        groups = sizes.groups(count, self.config)
        base = self.place(sizes.constant_entries(self.config), groups)
        return base, LoadConstants(
            dram=self.column_constants(count).address, columns=count, base=base
        )

    # -- scenes --------------------------------------------------------------------------------

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
        return _emit(load_list, weights, load_constants, fill, command)

    def _attend_fields(self, rows: _Rows, width: int) -> dict[str, Any]:
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

    def _head(self) -> tuple[int, _Rows, LoadList, int, LoadRows]:
        width = self.integer(1, min(self.config.memory.head_dim, self.width))
        rows, load_list = self.window(self.row_room(width))
        base, load = self.operand_rows(rows, width)
        return width, rows, load_list, base, load

    def _keys(self, count: int, width: int) -> tuple[LoadColumns, LoadColumns]:
        dot, axpy = self.two_bases(count, (width, width))
        return self.columns(count, width, dot), self.columns(count, width, axpy)

    def _masks(self, rows: _Rows, columns: int) -> dict[str, Any]:
        length = sizes.mask_row_bytes(columns, self.config)
        buffer = self.noise("masks", self.tokens * length, "masks")
        slot = self.place(self.config.memory.query_rows, rows.rows)
        fields = {"list": rows.buffer, "rows": rows.rows, "columns": columns}
        return fields | {"dram": buffer.address, "stride": length, "slot": slot}

    def _result(self, width: int, epilogue: AttendEpilogue) -> dict[str, int]:
        out = self.noise("out", self.tokens * width, "activations")
        found = {"dram": out.address, "stride": width}
        if epilogue in (AttendEpilogue.ADD, AttendEpilogue.KEEP):
            size = sizes.sharing_bytes(self.config)
            kept = self.noise("residual", self.tokens * width * size, "shared residual")
            found |= {"residual": kept.address, "residual_stride": width * size}
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
        )
        before: list[Any] = [load_list, k, v, load_rows]
        after: list[Any] = []
        if mode == MaskMode.MASKED:
            before.append(LoadMasks(**masks))
        if mode == MaskMode.GENERATE:
            after.append(StoreMasks(**masks))
        return _emit(*before, command, *after)

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
        threshold = self.integer(0, 1 << 18)
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
                        partial=partial.address,
                        kept=kept.address if mark else 0,
                    )
                )
                if mark:
                    commands.append(StoreMasks(**masks))
                first_column += counts[t]
        return _emit(*commands)

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
        return _emit(*commands)

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
        return _emit(*commands)

    def moved_masks(self) -> Emit:
        """Masks read and written back elsewhere."""
        rows, load_list = self.window(self.config.memory.query_rows)
        columns = self.integer(1, self.config.memory.columns)
        single = int(self.chance(0.4))
        masks = self._masks(rows, columns) | {"single": single}
        if single:
            masks |= {"rows": 1}
        other = self._masks(rows, columns)["dram"]
        return _emit(load_list, LoadMasks(**masks), StoreMasks(**masks | {"dram": other}))

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
        return _emit(command, load, gather)


def _emit(*commands: Any) -> Emit:
    def emit(builder: Builder) -> None:
        for command in commands:
            builder.emit(command)

    return emit


# -- coverage ------------------------------------------------------------------------------------


def coverage(found: RandomProgram, config: CoreConfig) -> set[str]:
    """What a program exercises."""
    seen: set[str] = set()
    lengths: dict[int, tuple[int, int]] = {}
    for command in found.program.commands:
        name, fields = command.NAME, command.values()
        seen.add(name)
        for field in ("mode", "epilogue"):
            if field in fields:
                seen.add(f"{name} {field} {getattr(command, field).name}")
        seen |= {f"{name} {s.name} {fields[s.name]}" for s in command.specs() if s.choices is Flag}
        if "columns" in fields:
            groups = "incomplete" if fields["columns"] % config.array.banks else "complete"
            seen.add(f"{name} {groups} last group")
        if "width" in fields and name not in ("forecast", "record"):
            words = "incomplete" if fields["width"] % config.array.lanes else "complete"
            seen.add(f"{name} {words} last word")
        if isinstance(command, LoadList):
            lengths[command.list] = _list_state(found, command)
        elif "list" in fields and not fields.get("single"):
            rows, held = lengths[fields["list"]]
            kind = "no rows" if not held else "all rows" if held == rows else "fewer rows"
            seen.add(f"{name} {kind}")
    return seen


def _list_state(found: RandomProgram, command: LoadList) -> tuple[int, int]:
    """Most rows of a window, and how many there are."""
    most = min(command.rows, command.tokens - command.first)
    length = int(found.image[command.dram : command.dram + 4].view("<u4")[0])
    return most, min(max(length - command.first, 0), most)


def _expected() -> frozenset[str]:
    names = {
        "load_list": "",
        "load_columns": "gw",
        "load_constants": "g",
        "load_table": "",
        "load_rows": "wr",
        "load_masks": "gr",
        "norm": "wr",
        "forecast": "r",
        "record": "r",
        "project": "gwr",
        "mlp": "gwr",
        "attend": "gwr",
        "store_masks": "gr",
        "select": "",
        "fence": "",
    }
    parts = {
        "g": ("complete last group", "incomplete last group"),
        "w": ("complete last word", "incomplete last word"),
        "r": ("no rows", "fewer rows", "all rows"),
    }
    expected = set(names)
    for name, kinds in names.items():
        expected |= {f"{name} {text}" for kind in kinds for text in parts[kind]}
    flags = {
        "attend": ("first", "last", "mark", "diagonal"),
        "mlp": ("first", "last", "fresh"),
        "load_masks": ("single",),
        "store_masks": ("single",),
        "forecast": ("hold",),
        "select": ("update",),
    }
    expected |= {
        f"{name} {flag} {value}"
        for name, group in flags.items()
        for flag in group
        for value in (0, 1)
    }
    choices: dict[str, Any] = {"mode": {"attend": MaskMode, "mlp": MaskMode, "select": Change}}
    choices["epilogue"] = {"attend": AttendEpilogue, "project": ProjectEpilogue}
    for field, kinds_of in choices.items():
        for name, kind in kinds_of.items():
            expected |= {f"{name} {field} {item.name}" for item in kind}
    return frozenset(expected)


COVERAGE = _expected()
"""What many programs together must exercise."""
