"""Random programs of loads and array commands only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from disc.config import CoreConfig
from disc.hashing import BankHash
from disc.lower.layout import Image
from disc.lower.random_programs import RandomProgram
from disc.lower.random_programs.scenes import Scenes
from disc.program import Attend, AttendEpilogue, LoadRows, MaskMode, Mlp, Norm, Queue, StoreMasks
from disc.program.build import Builder

__all__ = ["SCENES", "ArrayScenes", "array_program", "directed_program"]

SCENES = ("projection", "attention", "tiled_attention", "mlp")


class ArrayScenes(Scenes):
    """Scenes of random programs, in which rows are loaded where they would be normalised.

    What becomes of masks shows in a command that is repeated under the mask that it made.
    """

    def __init__(self, config: CoreConfig, rng: np.random.Generator) -> None:
        super().__init__(config, rng)
        self.again = self.noise("again", self.tokens * config.memory.head_dim, "activations")

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
                fields = {"epilogue": AttendEpilogue.PLAIN, "mark": 0, "first": 1, "last": 1}
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
