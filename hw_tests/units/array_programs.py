"""Random programs of loads and array commands only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from disc.config import CoreConfig
from disc.hashing import BankHash
from disc.lower.buffers import list_bytes
from disc.lower.layout import Image
from disc.lower.random_programs import RandomProgram
from disc.lower.random_programs.maker import Emit, Rows, emit_all
from disc.lower.random_programs.scenes import Scenes
from disc.program import (
    Attend,
    AttendEpilogue,
    LoadList,
    LoadMasks,
    LoadRows,
    LoadTable,
    MaskMode,
    Mlp,
    Norm,
    Project,
    ProjectEpilogue,
    Queue,
    StoreMasks,
    sizes,
)
from disc.program.build import Builder
from disc.program.program import Buffer, BufferKind

__all__ = ["SCENES", "ArrayScenes", "array_program", "directed_program"]

SCENES = ("projection", "attention", "tiled_attention", "mlp")


class ArrayScenes(Scenes):
    """Scenes of random programs, in which rows are loaded where they would be normalised.

    What becomes of masks shows in a command that is repeated under the mask that it made.
    """

    def __init__(self, config: CoreConfig, rng: np.random.Generator) -> None:
        super().__init__(config, rng)
        self.again = self.noise("again", self.tokens * config.memory.head_dim, "activations")

    def _list(self, name: str) -> Buffer:
        """A list that is empty less often than in other programs."""
        buffer = self.add(name, list_bytes(self.tokens), BufferKind.INPUT, "lists")
        least = 0 if self.chance(0.15) else self.tokens // 2 + 1
        entries = self.rng.permutation(self.tokens)[: self.integer(least, self.tokens)]
        self.fills.append(lambda image: image.put_list(buffer, entries.tolist()))
        return buffer

    def window(self, most: int) -> tuple[Rows, LoadList]:
        """A window of a list, mostly from its beginning on."""
        rows, load = super().window(most)
        if self.chance(0.8):
            load = load.replace(first=0)
            rows = Rows(rows.buffer, load.rows)
        return rows, load

    def combination(
        self, mode: MaskMode, epilogue: AttendEpilogue, mark: int, first: int, last: int
    ) -> Emit:
        """One key tile of a head, with all states from earlier tiles that it may need."""
        width, rows, load_list, base, load_rows = self._head()
        most = self.fit_columns(2 * sizes.words(width, self.config))
        state = rows.rows * sizes.state_bytes(self.config, width)
        partial, kept = (
            self.add(name, state, BufferKind.SCRATCH, "partial sums") for name in ("sums", "kept")
        )
        result, fields = self._result(width, epilogue), self._attend_fields(rows, width)
        fields |= {"row_base": base, "partial": partial.address}
        commands: list[Any] = [load_list, load_rows]

        counts = [self.integer(1, most) for _ in range(2)]
        keys = [self._keys(n, width) for n in counts]

        def tile(t: int, **own: Any) -> list[Any]:
            k, v = keys[t]
            shared = {"columns": counts[t], "dot_base": k.base, "axpy_base": v.base}
            return [k, v, Attend(**fields, **shared, **own)]

        dense = {"mode": MaskMode.DENSE, "last": 0}
        if mark:
            commands += [c for t in range(2) for c in tile(t, **dense, first=int(t == 0))]
        masks = self._masks(rows, max(counts))
        making = mode == MaskMode.GENERATE
        own = {
            "mode": mode,
            "slot": masks["slot"] if mode != MaskMode.DENSE else 0,
            "mark": mark,
            "kept": kept.address if mark else 0,
            "threshold": self.integer(0, 1 << 18) if making else 0,
            "fill": self.integer(0, 1) if making else 0,
        }
        if not first:
            commands += tile(0, **(own | {"last": 0} if mark else dense))
        if mode == MaskMode.MASKED:
            commands.append(LoadMasks(**masks | {"columns": counts[1]}))
        own |= {"epilogue": epilogue, "first_column": self.integer(0, self.tokens), **result}
        commands += tile(1, **own, first=first, last=last)
        if making:
            commands.append(StoreMasks(**masks | {"columns": counts[1]}))
        return emit_all(*commands)

    def _whole_list(self, buffer: int, rows: int) -> LoadList:
        """The tokens 0 to `rows - 1`, in this order; or none."""
        tokens = self.put("all", [rows, *range(rows)], "<u4", "lists")
        return LoadList(
            list=buffer, dram=tokens.address, first=0, rows=max(1, rows), tokens=max(1, rows)
        )

    def cleared(self) -> Emit:
        """A mask that is made afresh from no rows, and used."""
        width = min(self.width, self.config.array.lanes)
        columns, rows = self.config.array.banks + 1, 3
        source = self.noise("operands", rows * width, "activations")
        masks = {"list": 1, "rows": 1, "columns": columns, "slot": 2, "single": 1}
        masks["dram"] = self.noise("hot", sizes.mask_row_bytes(columns, self.config), "masks")
        masks["dram"] = masks["dram"].address
        loads = {"list": 1, "rows": rows, "dram": source.address, "stride": width, "width": width}
        dot, axpy = self.two_bases(columns, (width, width))
        constants, load_constants = self.constants(columns)
        table = self.put("gelu", self.rng.integers(-128, 128, 256), "<i1", "constants")
        kind = f"<i{sizes.accumulator_bytes(self.config)}"
        # Neither nothing nor saturated: whatever is hot shows.
        gate = self.add("gate", sizes.HEADER_BYTES + 2 * width, BufferKind.INPUT, "vectors")
        multipliers = np.full(width, 1 << 12)
        self.fills.append(lambda image: image.put_vectors(gate, 17, multipliers))
        mlp = {
            "rows": rows,
            "row_base": 0,
            "width": width,
            "columns": columns,
            "dot_base": dot,
            "axpy_base": axpy,
            "out_width": width,
            "constants": constants,
            "slot": 2,
            "bias": self.put("bias", self.rng.integers(-99, 99, width), kind, "constants").address,
            "gate": gate.address,
            "dram": self.x.address,
            "stride": 2 * self.width,
        }
        return emit_all(
            self._whole_list(0, 0),
            self._whole_list(1, rows),
            LoadRows(**loads, base=0),
            self.columns(columns, width, dot),
            self.columns(columns, width, axpy),
            load_constants,
            LoadTable(dram=table.address),
            LoadMasks(**masks),
            Mlp(**mlp, list=1, mode=MaskMode.MASKED),
            Mlp(**mlp, list=0, mode=MaskMode.GENERATE),
            Mlp(**mlp, list=1, mode=MaskMode.MASKED),
            Mlp(**mlp, list=0, mode=MaskMode.GENERATE, fresh=1, threshold=3),
            Mlp(**mlp, list=1, mode=MaskMode.MASKED),
        )

    def even(self, columns: int, width: int, rows: int) -> Emit:
        """Commands of equal work whose results end in every way, on rows that are all there."""
        load_list = self._whole_list(0, rows)
        source = self.noise("operands", rows * width, "activations")
        load_rows = LoadRows(
            list=0, rows=rows, dram=source.address, stride=width, width=width, base=0
        )
        k, v = self._keys(columns, width)
        constants, load_constants = self.constants(columns)
        table = self.put("gelu", self.rng.integers(-128, 128, 256), "<i1", "constants")
        bias = self.noise("bias", width * sizes.accumulator_bytes(self.config), "constants")
        self.fills.append(lambda image: image.put(bias, np.zeros(bias.size), "u1"))
        states = self.noise("states", rows * sizes.state_bytes(self.config, width), "partial sums")
        sums = self.noise("sums", rows * width * 8, "partial sums")
        out = self.noise("out", 2 * rows * max(columns, width), "activations")
        both = {"list": 0, "rows": rows, "row_base": 0, "width": width, "columns": columns}
        both |= {"dot_base": k.base, "dram": out.address, "stride": 2 * max(columns, width)}
        attend = {
            **both,
            "mode": MaskMode.DENSE,
            "axpy_base": v.base,
            "score_multiplier": 1 << 12,
            "score_shift": 20,
            "output_multiplier": 1 << 12,
            "output_shift": 12,
            "partial": states.address,
        }
        mlp = {
            **both,
            "mode": MaskMode.DENSE,
            "axpy_base": v.base,
            "out_width": width,
            "constants": constants,
            "partial": sums.address,
            "bias": bias.address,
            "gate": self.vectors(1, width).address,
        }
        project = {**both, "constants": constants, "first_column": 0}
        gate = self.vectors(1, columns).address
        return emit_all(
            load_list,
            load_rows,
            k,
            v,
            load_constants,
            LoadTable(dram=table.address),
            *(Attend(**attend, first=f, last=n) for f, n in ((1, 1), (1, 0), (0, 0), (0, 1))),
            *(Mlp(**mlp, first=f, last=n) for f, n in ((1, 1), (1, 0), (0, 0), (0, 1))),
            *(Project(**project, epilogue=e, gate=gate) for e in ProjectEpilogue),
        )

    def emit(self, builder: Builder, command: Any) -> None:
        """Emit a command, or what stands for it here."""
        if isinstance(command, Norm):
            names = ("list", "rows", "dram", "stride", "width", "base")
            command = LoadRows(**{name: getattr(command, name) for name in names})
        if isinstance(command, StoreMasks):
            made = builder.commands[-1]
            if isinstance(made, Mlp):
                fields = {"fresh": 0, "first": 1, "last": 1}
            elif isinstance(made, Attend):
                fields = {
                    "epilogue": AttendEpilogue.PLAIN,
                    "mark": 0,
                    "fill": 0,
                    "first": 1,
                    "last": 1,
                }
                fields |= {"dram": self.again.address, "stride": made.width}
            else:
                return
            fields |= {"mode": MaskMode.MASKED, "threshold": 0, "wait": 0, "signal": 0}
            command = made.replace(**fields)
        if command.QUEUE in (Queue.LOAD, Queue.ARRAY):
            builder.emit(command)


class _Emitting:
    """A builder that emits as `ArrayScenes` says."""

    def __init__(self, scenes: ArrayScenes, builder: Builder) -> None:
        self._scenes, self._builder = scenes, builder

    def emit(self, command: Any) -> None:
        self._scenes.emit(self._builder, command)


def directed_program(
    config: CoreConfig, seed: int, make: Callable[[ArrayScenes], Sequence[Any]]
) -> RandomProgram:
    """Return the program of emitters that `make` draws."""
    maker = ArrayScenes(config, np.random.default_rng(seed))
    emits = make(maker)
    hash_ = BankHash.random_gf2(config.array.banks, config.local_bits, seed=seed)
    builder = Builder(config, maker.layout.buffers, hash_rows=hash_.rows)
    for emit in emits:
        emit(_Emitting(maker, builder))
    image = Image(maker.layout, seed=seed)
    for fill in maker.fills:
        fill(image)
    return RandomProgram(builder.program(), image.data, maker.layout)


def array_program(
    config: CoreConfig, seed: int, scenes: int, kinds: Sequence[str] = SCENES
) -> RandomProgram:
    """Draw a program; equal arguments give equal programs."""
    return directed_program(
        config, seed, lambda maker: [getattr(maker, maker.pick(kinds))() for _ in range(scenes)]
    )
