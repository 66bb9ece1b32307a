# amaranth: UnusedElaboratable=no
"""Requantised columns in column order, and the aligner alone, against the golden core."""

from __future__ import annotations

import numpy as np
import pytest

from disc.config import CoreConfig
from disc.hashing import BankHash
from disc.program.access import constant_entries
from disc.tables import MULTIPLIER_BITS
from golden.integer.linear import Requantisation, requantise
from hw.vector.aligner import Aligner
from hw.vector.requantise import (
    WIDE_BITS,
    ColumnRequantiser,
    ColumnResult,
)
from hw_tests import sim
from hw_tests.blocks.configs import hashes
from hw_tests.blocks.vector_configs import CONFIGS
from hw_tests.blocks.vector_harness import Case, run, stalled, to_rows, to_words

TOP = (1 << MULTIPLIER_BITS) - 1


def sum_limit(config: CoreConfig) -> int:
    """Largest magnitude of a sum that the golden core's 63 bits can multiply."""
    return 1 << (min(config.number.accumulator_bits, 46) - 1)


def result_bits(config: CoreConfig, result: ColumnResult) -> int:
    """Bits to which a column is requantised; SUM leaves its scale alone."""
    return config.number.operand_bits if result == ColumnResult.OPERAND else WIDE_BITS


def in_banks(rows: np.ndarray, bank_hash: BankHash, rng: np.random.Generator) -> np.ndarray:
    """Return groups [R * G, B] of the rows [R, N]; banks without a column hold anything."""
    count, columns = rows.shape
    column = np.arange(columns)
    groups = -(-columns // bank_hash.banks)
    out = rng.choice(rows.ravel(), (count, groups, bank_hash.banks))
    out[:, bank_hash.local(column), bank_hash.bank(column)] = rows
    return out.reshape(-1, bank_hash.banks)


def case(
    config: CoreConfig,
    rng: np.random.Generator,
    total: np.ndarray,
    scale: Requantisation,
    bank_hash: BankHash,
    result: ColumnResult,
) -> Case:
    """A case whose sums with bias are `total`; the bias is anything."""
    bits, columns = config.number.accumulator_bits, total.shape[1]
    limit = 1 << (bits - 1)
    groups = -(-columns // config.array.banks)
    base = int(rng.integers(constant_entries(config) - groups + 1))
    bias = rng.integers(-limit, limit, columns)
    acc = (total - bias + limit) % (2 * limit) - limit
    order = rng.permutation(columns)
    load = {
        "column": order,
        "base": np.full(columns, base),
        "constants": {
            "bias": bias[order],
            "multiplier": scale.multiplier[order],
            "shift": scale.shift[order],
        },
    }
    out = total
    if result != ColumnResult.SUM:
        out = requantise(total, scale, result_bits(config, result))
    matrix = sum(row << (n * config.local_bits) for n, row in enumerate(bank_hash.rows))
    return Case(
        set={"matrix": matrix, "columns": columns, "result": result.value, "base": base},
        load={"load": load},
        inputs={"i": in_banks(acc, bank_hash, rng)},
        expected={"o": to_rows(out, config.vector.lanes)},
        what=f"N {columns}, rows {len(total)}, {result.name}, H {bank_hash}",
    )


def random_case(
    config: CoreConfig,
    rng: np.random.Generator,
    rows: int,
    columns: int,
    bank_hash: BankHash,
    result: ColumnResult,
) -> Case:
    limit = sum_limit(config)
    total = rng.normal(0, limit / 8, (rows, columns))
    total = np.clip(np.rint(total), -limit, limit - 1).astype(np.int64)
    typical = limit.bit_length() - 4 + MULTIPLIER_BITS - result_bits(config, result)
    shift = np.clip(typical + rng.integers(0, 4, columns), 0, 63)
    scale = Requantisation(rng.integers(1 << (MULTIPLIER_BITS - 1), TOP + 1, columns), shift)
    return case(config, rng, total, scale, bank_hash, result)


def random_cases(config: CoreConfig, rng: np.random.Generator, rows: int) -> list[Case]:
    """Rows of a single column, of a group less and more one, of full and partial groups."""
    B = config.array.banks
    columns = [1, B, B - 1, B + 1, 3 * B, 2 * B + 3]
    choices = hashes(config, len(columns) - 2, seed=int(rng.integers(1 << 31)))
    return [
        random_case(config, rng, rows, n, bank_hash, result)
        for n, bank_hash, result in zip(
            rng.permutation(columns).tolist(), choices, 2 * list(ColumnResult), strict=True
        )
    ]


def directed_cases(config: CoreConfig, rng: np.random.Generator) -> list[Case]:
    limit = sum_limit(config)
    sums = [-limit, limit - 1, -1, 0, 1, *rng.integers(-limit, limit, 3).tolist()]
    columns = config.memory.columns
    total = np.resize(np.array(sums), (3, columns))
    multiplier = rng.choice([0, 1, TOP, 1 << (MULTIPLIER_BITS - 1)], columns)
    random_hash = hashes(config, 1, seed=int(rng.integers(1 << 31)))[2]
    cases = []
    for result in ColumnResult:
        for choices in ([0], [63], [0, 1, 16, 31, 62, 63]):
            scale = Requantisation(multiplier, rng.choice(choices, columns))
            cases.append(case(config, rng, total[:, ::-1], scale, random_hash, result))
    return cases


def cycles_of_rows(got: np.ndarray, rows: int, per_row: int) -> bool:
    """Whether the last words of rows leave exactly `per_row` cycles apart."""
    ends = got.reshape(rows, -1)[:, -1]
    return bool((np.diff(ends) == per_row).all())


@pytest.mark.parametrize("name", CONFIGS)
def test_rows_without_and_with_stalls(name):
    config, seed = CONFIGS[name], sim.choose_seed()
    rng = np.random.default_rng(seed)
    free = [*directed_cases(config, rng), *random_cases(config, rng, rows=12)]
    slow = stalled(lambda: random_cases(config, rng, rows=int(rng.integers(1, 5))))
    for one, got in zip(free, run(config, "requantise", [*free, *slow], seed=seed), strict=False):
        B, V, columns = config.array.banks, config.vector.lanes, one.set["columns"]
        groups, words = -(-columns // B), -(-columns // V)
        rows = len(one.inputs["i"]) // groups
        assert cycles_of_rows(got.cycles["o"], rows, max(groups, words)), one.what
        needed = -(-min(V, columns) // B)  # groups that complete the first word
        latency = got.cycles["o"][0] - got.cycles["i"][needed - 1]
        assert latency == ColumnRequantiser.LATENCY, one.what


def groups_of(rows: np.ndarray, size: int) -> dict[str, np.ndarray]:
    """Return the `Group`s of rows [R, N]."""
    words = to_words(rows, size)
    count = np.full((len(rows), len(words) // len(rows)), size)
    count[:, -1] = (rows.shape[1] - 1) % size + 1
    return {"data": words, "count": count.ravel(), "last": to_rows(rows, size)["last"]}


def aligner_case(config: CoreConfig, rng: np.random.Generator, columns: int, rows: int) -> Case:
    values = rng.integers(-(1 << (WIDE_BITS - 1)), 1 << (WIDE_BITS - 1), (rows, columns))
    return Case(
        set={},
        inputs={"i": groups_of(values, config.array.banks)},
        expected={"o": to_rows(values, config.array.lanes)},
        what=f"N {columns}",
    )


@pytest.mark.parametrize("name", CONFIGS)
def test_aligner_into_words_of_the_array(name):
    config, seed = CONFIGS[name], sim.choose_seed()
    rng = np.random.default_rng(seed)
    B, L = config.array.banks, config.array.lanes
    lengths = sorted({1, B, L, L + 1, L - 1, 2 * B + 1, 3 * L, *rng.integers(1, 5 * L, 4).tolist()})
    free = [aligner_case(config, rng, n, rows=8) for n in lengths]
    slow = stalled(lambda: [aligner_case(config, rng, n, rows=3) for n in lengths])
    for one, got in zip(free, run(config, "aligner", [*free, *slow], seed=seed), strict=False):
        groups, words = (len(x) // 8 for x in (got.cycles["i"], got.cycles["o"]))
        assert cycles_of_rows(got.cycles["o"], 8, max(groups, words)), one.what


def test_sizes_are_checked():
    with pytest.raises(ValueError, match="lanes: must be at least 1, got 0"):
        Aligner(8, 4, 0)
