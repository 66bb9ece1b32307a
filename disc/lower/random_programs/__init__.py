"""Random legal programs, for comparing executors of programs with each other.

A program is a row of scenes that share the residual stream, the row lists and the core's memories:
each loads to random places what a random command needs, so that scenes collide everywhere and only
tokens keep them apart.  `coverage` names what a program exercises; `COVERAGE` is what many together
must.
"""

from __future__ import annotations

import numpy as np

from disc.config import CoreConfig
from disc.hashing import BankHash
from disc.lower.layout import Image
from disc.lower.random_programs.coverage import COVERAGE, RandomProgram, coverage
from disc.lower.random_programs.maker import Emit
from disc.lower.random_programs.scenes import Scenes
from disc.program import Fence
from disc.program.build import Builder

__all__ = ["COVERAGE", "RandomProgram", "coverage", "random_program"]


def random_program(config: CoreConfig, seed: int, *, scenes: int = 6) -> RandomProgram:
    """Draw a program; equal arguments give equal programs."""
    maker = Scenes(config, np.random.default_rng(seed))
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
