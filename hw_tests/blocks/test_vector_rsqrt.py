# amaranth: UnusedElaboratable=no
"""Pipelined reciprocal square root against the golden core."""

from __future__ import annotations

import numpy as np
import pytest

from disc.tables import RSQRT_BITS, RSQRT_INDEX_BITS
from golden.integer.layernorm import rsqrt
from hw.vector.rsqrt import Rsqrt
from hw_tests import sim
from hw_tests.blocks.vector_configs import CONFIGS
from hw_tests.blocks.vector_harness import vectors

MOST = (1 << 63) - 1
"""Largest V of the golden core."""


def check(block: str, v: np.ndarray, seed: int) -> np.ndarray:
    padded = np.concatenate([v, np.zeros(Rsqrt.LATENCY, np.int64)])
    got = vectors(CONFIGS["tiny"], block, {"v": padded}, ["y", "n"], seed=seed)
    y, n = rsqrt(v)
    for name, wanted in (("y", y), ("n", n)):
        wrong = np.flatnonzero(got[name][Rsqrt.LATENCY :] != wanted)
        assert not len(wrong), f"{name} of {v[wrong[0]]}: {len(wrong)} wrong"
    return y


def test_every_table_entry_at_both_ends_and_every_exponent():
    seed = sim.choose_seed()
    rng = np.random.default_rng(seed)
    entries = 1 << (RSQRT_INDEX_BITS - 1)
    low = (entries + np.arange(entries)) << (RSQRT_BITS - RSQRT_INDEX_BITS + 1)
    high = low + (1 << (RSQRT_BITS - RSQRT_INDEX_BITS + 1)) - 1
    mantissa = np.concatenate([low, high])  # [1, 2) with 16 fraction bits, each entry's ends
    every = np.concatenate([mantissa << e >> RSQRT_BITS for e in range(47)])
    wide = np.concatenate([mantissa << e for e in range(47)])
    random = np.exp2(rng.uniform(0, 62.9, 3000)).astype(np.int64)
    v = np.concatenate([every, wide, random, np.arange(300), [MOST, MOST - 1, 0, 1]])
    y = check("rsqrt", rng.permutation(v), seed)
    assert y.max() <= 1 << RSQRT_BITS


def test_three_bits():
    check("small_rsqrt", np.arange(8), sim.choose_seed())


def test_width_is_checked():
    with pytest.raises(ValueError, match="width: must be at least 1, got 0"):
        Rsqrt(0)
