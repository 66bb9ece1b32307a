"""Mask generator against the golden core's threshold."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from disc.config import CoreConfig
from disc.hashing import BankHash
from disc.tables import THRESHOLD_BITS
from golden.integer.new_mask import new_mask
from golden.integer.softmax import threshold_numerator
from hw.vector.words import total_bits
from hw_tests import sim
from hw_tests.blocks.configs import CONFIGS, hashes
from hw_tests.blocks.harness import simulator


@dataclass
class Case:
    """A command's constants and its rows."""

    config: CoreConfig
    hash: BankHash
    columns: int
    threshold: int
    diagonal: bool
    slots: np.ndarray
    tokens: np.ndarray
    numerators: np.ndarray
    """[rows, columns]"""
    outside: np.ndarray
    """[rows], the own column is in another key tile."""
    elsewhere: np.ndarray
    """[rows], what other key tiles add to the total."""
    pairs: bool = False
    """Rows are handed over two at a time."""
    fill: bool = False

    @property
    def totals(self) -> np.ndarray:
        return self.numerators.sum(axis=1) + self.elsewhere

    @property
    def groups(self) -> int:
        return -(-self.columns // self.config.array.banks)

    @property
    def words(self) -> int:
        """Lines of a row."""
        return -(-self.groups // self.config.memory.mask_word_bits)

    @property
    def cycles(self) -> int:
        """Of a row."""
        return self.groups + 3 + (self.groups + 1 if self.fill else 0)

    def in_banks(self, rng: np.random.Generator) -> np.ndarray:
        """Return numerators [rows, B, groups], noise where no column is."""
        top = 1 << self.config.number.numerator_bits
        values = rng.integers(0, top, (len(self.slots), self.config.array.banks, self.groups))
        j = np.arange(self.columns)
        values[:, self.hash.bank(j), self.hash.local(j)] = self.numerators
        return values

    def lines(self) -> np.ndarray:
        """Return the expected lines [rows * words, 1 + B]."""
        own = np.where(self.outside, -1, self.tokens) if self.diagonal else None
        fill = self.hash if self.fill else None
        keep = new_mask(self.numerators, self.totals, self.threshold, own, fill)
        bits, width = self.hash.to_bank_order(keep), self.config.memory.mask_word_bits
        bits = np.pad(bits, ((0, 0), (0, 0), (0, -bits.shape[2] % width)))
        weights = np.int64(1) << np.arange(width)
        packed = bits.reshape(*bits.shape[:2], self.words, width) @ weights
        address = self.slots[:, None] * self.config.mask_words_per_row + np.arange(self.words)
        lines = np.concatenate([address[..., None], packed.transpose(0, 2, 1)], axis=2)
        return lines.reshape(-1, 1 + self.config.array.banks)


def random_numerators(config: CoreConfig, rng, rows: int, columns: int) -> np.ndarray:
    """Rows as softmax makes them: one column near the top; some flat, some with one peak."""
    top = (1 << config.number.numerator_bits) - 1
    steep = rng.choice([0.0, 2.0, 6.0, 50.0], rows)[:, None]
    values = np.floor(top * np.exp2(-steep * rng.random((rows, columns)))).astype(np.int64)
    values[np.arange(rows), rng.integers(0, columns, rows)] = top
    return values


def random_cases(config: CoreConfig, rng: np.random.Generator) -> list[Case]:
    B, most = config.array.banks, config.memory.columns
    one = 1 << THRESHOLD_BITS
    plan = [
        (most, round(0.7 / most * one), True),
        (most - 1, round(1.5 / most * one), False),
        (max(1, most // 3), 0, False),  # everything
        (most, one, True),  # nothing but a certain column, and the diagonal
        (most - B + 1, one, False),
        (most, 1, True),
        (int(rng.integers(1, most + 1)), int(rng.integers(0, one >> 3)), True),
        (1, one, False),
    ]
    cases = []
    for i, (columns, threshold, diagonal) in enumerate(plan):
        rows = min(6, config.memory.query_rows)
        numerators = random_numerators(config, rng, rows, columns)
        if threshold == one:
            numerators[0] = 0  # with one column above zero, that one is certain
            numerators[0, rng.integers(columns)] = 1
        tokens = rng.integers(0, 1 << config.column_bits, rows)  # some beyond the last column
        tokens[:2] = rng.integers(0, columns, 2)
        slots = rng.permutation(config.memory.query_rows)[:rows]
        hash_ = hashes(config, 2, int(rng.integers(1 << 30)))[i % 4]
        outside = rng.random(rows) < 0.3
        elsewhere = np.zeros(rows, dtype=np.int64)
        if i == 6:
            room = 1 << total_bits(config)
            elsewhere = rng.integers(0, room - numerators.sum(axis=1))
            elsewhere >>= rng.integers(0, 20, rows)
        cases.append(
            Case(
                config,
                hash_,
                columns,
                threshold,
                diagonal,
                slots,
                tokens,
                numerators,
                outside,
                elsewhere,
                fill=bool(rng.integers(2)),
            )
        )
    return cases


def tie_case(config: CoreConfig, rng: np.random.Generator, *, fill: bool) -> Case:
    """Numerators at the threshold, one below and one above, of totals that just give it.

    With `fill` three of four are so at half the threshold.
    """
    case = replace(random_cases(config, rng)[0], fill=fill, diagonal=False)
    columns, rows = case.columns, len(case.slots)
    one, top = 1 << THRESHOLD_BITS, 1 << config.number.numerator_bits
    case.threshold = int(rng.integers(one // columns // 4, one // columns // 2))
    least = rng.integers(8, top - 1, (rows, 1))
    low = rng.random((rows, columns)) < 0.75 * fill
    middle = np.where(low, (least + 1) >> 1, least)
    case.numerators = middle + rng.integers(-1, 2, (rows, columns))
    smallest, largest = (least - 1) * one // case.threshold + 1, least * one // case.threshold
    total = np.where(rng.random((rows, 1)) < 0.5, smallest, largest)[:, 0]
    case.elsewhere = total - case.numerators.sum(axis=1)
    assert (case.elsewhere >= 0).all()
    assert np.array_equal(threshold_numerator(case.totals, case.threshold), least[:, 0])
    return case


def check(config, cases: list[Case], pause_in: str, pause_out: str, seed: int):
    rng = np.random.default_rng(seed)
    given: dict[str, object] = {}
    for n, case in enumerate(cases):
        exists = case.hash.to_bank_order(np.ones(case.columns, dtype=bool))
        given |= {
            f"{n}.hash": np.array(case.hash.rows),
            f"{n}.columns": case.columns,
            f"{n}.threshold": case.threshold,
            f"{n}.diagonal": int(case.diagonal),
            f"{n}.fill": int(case.fill),
            f"{n}.pairs": int(case.pairs),
            f"{n}.words": case.words,
            f"{n}.rows": np.stack([case.slots, case.tokens, case.outside, case.totals], axis=1),
            f"{n}.numerators": case.in_banks(rng),
            f"{n}.exists": exists.astype(np.int64),
        }
    result = sim.run(
        simulator(config),
        "hw_tests.blocks.mask_bench",
        testcase="generator",
        seed=seed,
        inputs={
            "config": config.to_toml(),
            "pause_in": pause_in,
            "pause_out": pause_out,
            "cases": len(cases),
            **given,
        },
    )
    names = ("accepted", "transfers", "lines", "busy", "claims", "free", "end")
    got = [{name: result.outputs[f"{n}.{name}"] for name in names} for n in range(len(cases))]
    for case, one in zip(cases, got, strict=True):
        what = f"{config.name}, {case.columns} columns, threshold {case.threshold}"
        expected = case.lines()
        wrong = np.flatnonzero((one["lines"] != expected).any(axis=1))
        assert not len(wrong), (
            f"{what}: line {wrong[0]}: expected {expected[wrong[0]]}, got {one['lines'][wrong[0]]}"
        )
        check_flags(case, one, what)
    return got


def check_flags(case: Case, got: dict[str, np.ndarray], what: str) -> None:
    """A half is taken from its claim until it has been read; busy spans every row."""
    begin = got["free"][0, 0]
    free = got["free"][:, 1]
    for row, (claim, accepted) in enumerate(zip(got["claims"], got["accepted"], strict=True)):
        half = row % 2
        taken = free[claim + 1 - begin : accepted + case.cycles - 1 - begin] >> half & 1
        assert not taken.any(), f"{what}: half {half} free before row {row} was read"
        last = got["transfers"][(row + 1) * case.words - 1]
        spell = np.arange(accepted + 1, last)
        assert np.isin(spell, got["busy"]).all(), f"{what}: not busy in row {row}"
    assert free[-1] == 0b11, f"{what}: a half stays taken"
    assert got["end"] not in got["busy"], f"{what}: busy for ever"


@pytest.mark.parametrize(
    ("pause_in", "pause_out"),
    [("never", "never"), ("bernoulli", "bernoulli"), ("never", "mostly_stalled")],
)
@pytest.mark.parametrize("name", CONFIGS)
def test_masks(name, pause_in, pause_out):
    config, seed = CONFIGS[name], sim.choose_seed()
    rng = np.random.default_rng(seed)
    cases = random_cases(config, rng)
    cases += [replace(case, fill=not case.fill) for case in (cases[0], cases[3], cases[6])]
    cases += [tie_case(config, rng, fill=fill) for fill in (False, True)]
    assert cases[2].lines().any()
    for case in (next(c for c in (cases[0], cases[8]) if c.fill), cases[-1]):
        assert (case.lines() != replace(case, fill=False).lines()).any(), "something is filled up"
    check(config, cases, pause_in, pause_out, seed)


@pytest.mark.parametrize("name", CONFIGS)
def test_latency_and_throughput(name):
    config, seed = CONFIGS[name], sim.choose_seed()
    cases = random_cases(config, np.random.default_rng(seed))
    for case in cases:
        case.pairs = True
    for case, got in zip(cases, check(config, cases, "never", "never", seed), strict=True):
        first = got["transfers"][:: case.words] - got["accepted"]
        again = case.groups + 1 if case.fill else 0
        assert (first == 3 + again + min(config.memory.mask_word_bits, case.groups)).all()
        pairs = got["accepted"].reshape(-1, 2)
        assert (np.diff(pairs, axis=1) == case.cycles).all()
