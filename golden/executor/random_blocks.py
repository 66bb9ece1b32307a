"""Random quantised blocks and small configurations, for comparing executors of programs.

A `Case` is a block with its state.  A step of it is lowered to a program and an image; whoever
executes the program, `Case.require` compares what it left with the integer golden core's result.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from disc.config import CoreConfig, NumberConfig, build, preset
from disc.hashing import BankHash
from disc.lower.layout import Image
from disc.lower.plan import BlockPlan
from disc.lower.shape import BlockShape
from disc.program import FuseCommand, MaskMode, Program
from golden.executor.block import (
    put_constants,
    put_rows,
    put_state,
    put_vectors,
    scalars,
    state_of,
    step_kind,
)
from golden.integer.block import BlockConstants, BlockState, BlockVectors, Sparsity
from golden.integer.layernorm import Modulation
from golden.integer.linear import Gate, Linear, Requantisation
from golden.integer.parameters import gelu_table

Int = np.ndarray


def config_of(
    name: str,
    banks: int,
    lanes: int,
    words: int,
    rows: int,
    columns: int,
    head_dim: int,
    **number: int,
) -> CoreConfig:
    """Return a configuration with one element a word of the vector unit."""
    return build(
        {
            "name": name,
            "cores": 1,
            "clock_mhz": 100.0,
            "array": {"banks": banks, "lanes": lanes},
            "memory": {
                "bank_words": words,
                "query_rows": rows,
                "columns": columns,
                "head_dim": head_dim,
                "mask_word_bits": 8,
            },
            "number": number,
            "vector": {"lanes": 1},
            "dram": {"kind": "LPDDR5-6400", "channels": 1},
        }
    )


TINY = preset("tiny")
SIX = config_of("six", 8, 6, 96, 16, 64, 18)
"""Lanes are no power of two; several row, weight and hidden tiles."""
WIDE = config_of("wide", 16, 12, 32, 24, 128, 24)
FORMATS = config_of(
    "formats",
    4,
    5,
    96,
    24,
    64,
    20,
    accumulator_bits=40,
    numerator_bits=10,
    score_bits=18,
    score_fraction_bits=7,
    sharing_bits=16,
    sharing_guard_bits=4,
)
"""Sums and residuals take more bytes than elsewhere."""
SCARCE = config_of("scarce", 2, 6, 32, 24, 16, 12)
"""Banks hold 16 keys of 12 elements."""


def random_block(
    shape: BlockShape, rng: np.random.Generator, *, hot: bool
) -> tuple[BlockConstants, BlockVectors]:
    """Operands of full range; scales under which results spread over theirs."""
    d, hidden = shape.width, shape.hidden

    def linear(out: int, wide: int, dead: float = 0.0) -> Linear:
        bias = rng.integers(-3000, 3000, out)
        bias[rng.random(out) < dead] = -(1 << 24)  # far below where GELU is anything but 0
        return Linear(rng.integers(-127, 128, (out, wide)), bias)

    def requantisation(out: int, wide: int) -> Requantisation:
        # Products of operands of about 50 by 73, summed; a third of the range is wanted.
        shift = 15 + round(np.log2(50 * 73 * np.sqrt(wide) / 40))
        return Requantisation(rng.integers(1 << 15, 1 << 16, out), np.full(out, shift))

    def modulation() -> Modulation:
        both = rng.integers(-4000, 4000, (2, d))
        return Modulation(both[0], both[1], 16)

    def gate() -> Gate:
        return Gate(rng.integers(-30000, 30000, d), int(rng.integers(20, 24)))

    heads = tuple(
        FuseCommand(
            mode=MaskMode.DENSE,
            columns=shape.tokens,
            beats=1,
            dot_base=0,
            axpy_base=1,
            score_multiplier=int(rng.integers(1 << 15, 1 << 16)),
            score_shift=19,
            output_multiplier=int(rng.integers(1 << 15, 1 << 16)),
            output_shift=15,
            diagonal=True,
        )
        for _ in range(shape.heads)
    )
    constants = BlockConstants(
        heads=heads,
        attention_epsilon=12345,
        qkv=linear(3 * d, d),
        qkv_scale=requantisation(3 * d, d),
        proj=linear(d, d),
        mlp_epsilon=999,
        up=linear(hidden, d, dead=0.5 if hot else 0.0),
        up_scale=requantisation(hidden, d),
        gelu=gelu_table(0.05, 0.05, NumberConfig()),
        down=linear(d, hidden),
        hot_threshold=40 if hot else None,
    )
    return constants, BlockVectors(modulation(), gate(), modulation(), gate())


@dataclass
class Case:
    """A block with its state, which `program` and `golden` steps read and bring up to date."""

    plan: BlockPlan
    constants: BlockConstants
    vectors: BlockVectors
    state: BlockState
    x: Int

    @staticmethod
    def random(config: CoreConfig, shape: BlockShape, seed: int, *, hot: bool = False) -> Case:
        """Draw a block, caches of an earlier step, and a residual stream [N, D]."""
        rng = np.random.default_rng(seed)
        hash_ = BankHash.random_gf2(config.array.banks, config.local_bits, seed=seed)
        constants, vectors = random_block(shape, rng, hot=hot)
        state = BlockState.empty(shape.heads, shape.tokens, shape.head_dim)
        state.k = rng.integers(-127, 128, state.k.shape)
        state.v = rng.integers(-127, 128, state.v.shape)
        x = rng.integers(-12000, 12000, (shape.tokens, shape.width))
        return Case(BlockPlan(config, shape, hash_=hash_), constants, vectors, state, x)

    def lowered(self, sparsity: Sparsity, tokens: Int, *, rows: int | None = None) -> Program:
        """Return the program of a step for as many rows as there are tokens, or for `rows`."""
        kind = step_kind(self.constants, sparsity, rows or len(tokens))
        return self.plan.program(scalars(self.constants), kind)

    def image(self, tokens: Int) -> Image:
        """Return DRAM ahead of a step that computes the tokens."""
        image = Image(self.plan.layout, seed=len(tokens))
        put_constants(self.plan, image, self.constants)
        put_vectors(self.plan, image, self.vectors)
        put_state(self.plan, image, self.state)
        put_rows(self.plan, image, self.x, tokens)
        return image

    def require(self, dram: np.ndarray, x: Int, tokens: Int) -> None:
        """Compare an image with the golden result x [R, D] of the rows, and with the state."""
        image = Image(self.plan.layout)
        image.data = dram
        expected = self.x.copy()
        expected[tokens] = x
        assert np.array_equal(self.plan.x(image), expected)
        found = state_of(self.plan, image)
        for name in ("k", "v", "mask", "residual"):
            assert np.array_equal(getattr(found, name), getattr(self.state, name)), name
        if self.state.hot is not None:
            assert np.array_equal(found.hot, self.state.hot)
        self.x = expected


def steps(tokens: int, fill: BankHash, *, hot: bool) -> list[tuple[str, Sparsity, float]]:
    """Steps of a run: refresh with masks, both methods, masks alone, row lists alone, dense.

    The last one makes masks that are filled up under the hash `fill`.
    """
    threshold = round(1.0 / tokens * (1 << 20))
    use = Sparsity(mode=MaskMode.MASKED, make_hot=not hot)
    return [
        ("refresh", Sparsity(mode=MaskMode.GENERATE, threshold=threshold), 1.0),
        ("both", use, 0.4),
        ("ST only", use, 1.0),
        ("CTR only", Sparsity(make_hot=not hot), 0.3),
        ("dense", Sparsity(make_hot=not hot), 1.0),
        (
            "refresh, nothing shared",
            Sparsity(mode=MaskMode.GENERATE, threshold=2 * threshold, share_residual=False),
            1.0,
        ),
        ("nothing added", Sparsity(MaskMode.MASKED, 0, False, make_hot=not hot), 0.5),
        (
            "refresh, filled",
            Sparsity(mode=MaskMode.GENERATE, threshold=2 * threshold, fill=fill),
            0.8,
        ),
    ]


def draw_rows(tokens: int, fraction: float, rng: np.random.Generator) -> Int:
    """Draw the tokens of a step, ascending."""
    return np.sort(rng.permutation(tokens)[: max(1, round(fraction * tokens))])
