"""Bank distributor: exact placement, and when a word can be read, against a model of its banks."""

from __future__ import annotations

import numpy as np
import pytest

from hw_tests import sim
from hw_tests.blocks.configs import CONFIGS, hashes
from hw_tests.blocks.vectors import drive

VISIBLE = 2
"""A read this many cycles after a word was accepted sees it; an earlier one does not."""


def random_words(config, rng, n: int) -> np.ndarray:
    low = -(1 << (config.number.operand_bits - 1))
    return rng.integers(low, -low, (n, config.array.lanes))


@pytest.mark.parametrize("pause", [0.0, 0.5])
@pytest.mark.parametrize("name", CONFIGS)
def test_every_column_lands_in_its_place(name, pause):
    """Write all beats of all columns in random order, then read every word of every bank."""
    config, seed = CONFIGS[name], sim.choose_seed()
    rng = np.random.default_rng(seed)
    B, depth = config.array.banks, config.memory.bank_words
    columns = config.memory.columns - 3  # the last group of B columns is incomplete
    groups = -(-columns // B)
    beats = min(config.max_beats, depth // groups)
    base = int(rng.integers(0, depth - groups * beats + 1))
    hash_ = hashes(config, 1, seed)[2]

    # [columns * beats] writes in any order, in the cycles that have no pause.
    order = rng.permutation(columns * beats)
    column, beat = order % columns, order // columns
    words = random_words(config, rng, len(order))
    valid = np.zeros(int(len(order) / (1 - pause) * 1.5) if pause else len(order), dtype=bool)
    valid[np.sort(rng.choice(len(valid), len(order), replace=False))] = True
    cycles = len(valid) + VISIBLE + depth + 1
    write = np.flatnonzero(valid)
    read = len(valid) + VISIBLE + np.arange(depth)

    low = -(1 << (config.number.operand_bits - 1))
    payload = {
        "column": rng.integers(0, config.memory.columns, cycles),
        "offset": rng.integers(0, depth, cycles),
        "data": rng.integers(low, -low, (cycles, config.array.lanes)),
    }
    payload["column"][write] = column
    payload["offset"][write] = base + groups * beat
    payload["data"][write] = words
    # Each bank is read in an order of its own.
    address = rng.integers(0, depth, (cycles, B))
    address[read] = np.stack([rng.permutation(depth) for _ in range(B)], axis=1)
    en = np.zeros(cycles, dtype=bool)
    en[read] = True
    got = drive(
        config,
        "distributor",
        {
            "matrix": np.tile(hash_.rows, (cycles, 1)),
            "i__valid": np.isin(np.arange(cycles), write),
            "i__payload": payload,
            "address": address,
            "en": en,
        },
        ["i__ready", "word"],
        seed=seed,
    )
    assert got["i__ready"].all()
    image = np.empty((depth, B, config.array.lanes), dtype=np.int64)
    image[address[read], np.arange(B)] = got["word"][read + 1]
    bank, local = hash_.bank(column), hash_.local(column)
    assert np.array_equal(image[base + groups * beat + local, bank], words)


@pytest.mark.parametrize("name", CONFIGS)
def test_reads_while_writing(name):
    """Random writes and reads at once, on few addresses so that they meet in time."""
    config, seed = CONFIGS[name], sim.choose_seed()
    rng = np.random.default_rng(seed)
    B, L, cycles = config.array.banks, config.array.lanes, 1500
    hash_ = hashes(config, 1, seed)[2]
    few = min(4, 1 << config.local_bits)
    column = rng.integers(0, few * B, cycles)
    offset = rng.choice([0, 1, config.memory.bank_words - few], cycles)
    valid, words = rng.random(cycles) < 0.7, random_words(config, rng, cycles)
    bank, local = hash_.bank(column), hash_.local(column)
    # Mostly the address written one, two or three cycles ago.
    target = offset + local
    address = np.stack([np.roll(target, int(back)) for back in rng.integers(0, 4, B)], axis=1)
    en = rng.random(cycles) < 0.8
    got = drive(
        config,
        "distributor",
        {
            "matrix": np.tile(hash_.rows, (cycles, 1)),
            "i__valid": valid,
            "i__payload": {"column": column, "offset": offset, "data": words},
            "address": address,
            "en": en,
        },
        ["i__ready", "word"],
        seed=seed,
    )
    assert got["i__ready"].all()

    image: dict[tuple[int, int], np.ndarray] = {}
    shown: list[np.ndarray | None] = [None] * B  # unknown until something known is read
    compared = 0
    for cycle in range(cycles):
        for b in range(B):
            if shown[b] is not None:
                assert np.array_equal(got["word"][cycle, b], shown[b]), f"bank {b}, cycle {cycle}"
                compared += 1
        written = cycle - VISIBLE
        if written >= 0 and valid[written]:
            image[bank[written], target[written]] = words[written]
        if en[cycle]:
            shown = [image.get((b, int(address[cycle, b]))) for b in range(B)]
    assert got["word"].shape == (cycles, B, L)
    assert compared > cycles
