"""Constants of columns: exact placement, and when they can be read."""

from __future__ import annotations

import numpy as np
import pytest

from disc.tables import MULTIPLIER_BITS, SHIFT_BITS
from hw.array.column_constants import constant_entries
from hw_tests import sim
from hw_tests.blocks.configs import CONFIGS, hashes
from hw_tests.blocks.vectors import drive

VISIBLE = 2
"""A read this many cycles after a column was accepted sees it."""


@pytest.mark.parametrize("name", CONFIGS)
def test_two_tiles_beside_their_banks(name):
    """Write the columns of two tiles in random order, then read every entry of every bank."""
    config, seed = CONFIGS[name], sim.choose_seed()
    rng = np.random.default_rng(seed)
    B, columns = config.array.banks, config.memory.columns
    entries = constant_entries(config)
    hash_ = hashes(config, 1, seed)[2]

    order = rng.permutation(2 * columns)
    column, offset = order % columns, order // columns * config.columns_per_bank
    cycles = len(order) + VISIBLE + entries + 1
    write, read = np.arange(len(order)), len(order) + VISIBLE + np.arange(entries)
    limit = 1 << (config.number.accumulator_bits - 1)
    constants = {
        "bias": rng.integers(-limit, limit, cycles),
        "multiplier": rng.integers(0, 1 << MULTIPLIER_BITS, cycles),
        "shift": rng.integers(0, 1 << SHIFT_BITS, cycles),
    }
    payload = {
        "column": rng.integers(0, columns, cycles),
        "offset": rng.integers(0, entries, cycles),
        "constants": constants,
    }
    payload["column"][write], payload["offset"][write] = column, offset
    address = np.tile(np.arange(cycles)[:, None] % entries, (1, B))
    address[read] = np.stack([rng.permutation(entries) for _ in range(B)], axis=1)
    got = drive(
        config,
        "constants",
        {
            "matrix": np.tile(hash_.rows, (cycles, 1)),
            "i__valid": np.isin(np.arange(cycles), write),
            "i__payload": payload,
            "en": np.isin(np.arange(cycles), read),
            "address": address,
        },
        ["i__ready", "constants"],
        seed=seed,
    )
    assert got["i__ready"].all()
    bank, entry = hash_.bank(column), offset + hash_.local(column)
    assert len(set(zip(bank.tolist(), entry.tolist(), strict=True))) == len(order)
    for field, values in constants.items():
        image = np.empty((entries, B), dtype=np.int64)
        image[address[read], np.arange(B)] = got["constants"][field][read + 1]
        assert np.array_equal(image[entry, bank], values[write]), field
