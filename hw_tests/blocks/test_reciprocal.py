# amaranth: UnusedElaboratable=no
"""Pipelined reciprocal against the golden core."""

from __future__ import annotations

import numpy as np
import pytest

from golden.integer.softmax import reciprocal
from hw.masks.generator import total_bits
from hw.softmax.reciprocal import Reciprocal
from hw_tests import sim
from hw_tests.blocks.configs import CONFIGS
from hw_tests.blocks.harness import WIDEST_TOTAL
from hw_tests.blocks.vectors import drive

BENCHES = [(name, "reciprocal", total_bits(config)) for name, config in CONFIGS.items()]
BENCHES += [("tiny", "wide_reciprocal", WIDEST_TOTAL), ("tiny", "one_bit_reciprocal", 1)]


@pytest.mark.parametrize(("name", "block", "width"), BENCHES)
def test_totals(name, block, width):
    seed = sim.choose_seed()
    rng = np.random.default_rng(seed)
    limit = 1 << width
    powers = 1 << np.arange(width + 1)
    # Uniform in the exponent, so that short totals come as often as long ones.
    spread = np.exp2(rng.uniform(0, width, 3000)).astype(np.int64)
    total = np.concatenate([np.arange(min(limit, 1 << 12)), powers - 1, powers, powers + 1, spread])
    total = rng.permutation(total[total < limit])
    got = drive(CONFIGS[name], block, {"total": total}, ["y", "n"], seed=seed)
    late, y, n = Reciprocal.LATENCY, *reciprocal(total)
    for port, expected in (("y", y), ("n", n)):
        wrong = np.flatnonzero(got[port][late:] != expected[:-late])
        assert not len(wrong), f"{port}: {len(wrong)} wrong, first for total {total[wrong[0]]}"


@pytest.mark.parametrize("width", [0, -1])
def test_width_is_checked(width):
    with pytest.raises(ValueError, match="width: must be at least 1"):
        Reciprocal(width)
