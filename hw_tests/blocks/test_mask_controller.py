"""Mask controller and bank scanners: what is listed, in which order, and how long it takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from disc.config import CoreConfig
from disc.hashing import BankHash
from hw_tests import sim
from hw_tests.blocks.configs import CONFIGS, hashes
from hw_tests.blocks.harness import simulator

MASKS = ("sparse", "half", "dense", "ones", "one bit", "no bit", "empty words", "one bank")


@dataclass
class Case:
    """A hash, a number of columns and a mask for each of some slots."""

    config: CoreConfig
    hash: BankHash
    columns: int
    masked: bool
    slots: np.ndarray
    """In the order in which they are listed."""
    masks: np.ndarray
    """[slots, columns], in the same order."""

    def bank_bits(self) -> np.ndarray:
        """Return kept flags [slots, B, words * word bits]."""
        bits = self.hash.to_bank_order(self.masks if self.masked else np.ones_like(self.masks))
        return np.pad(
            bits, ((0, 0), (0, 0), (0, -bits.shape[2] % self.config.memory.mask_word_bits))
        )

    def lines(self, rng: np.random.Generator) -> np.ndarray:
        """Return [lines, 1 + B]: address and words, with noise where no column is."""
        config = self.config
        width, words = config.memory.mask_word_bits, config.mask_words_per_row
        bits = rng.random((len(self.slots), config.array.banks, words * width)) < 0.5
        j = np.arange(self.columns)
        bits[:, self.hash.bank(j), self.hash.local(j)] = self.masks
        packed = bits.reshape(*bits.shape[:2], words, width) @ (np.int64(1) << np.arange(width))
        address = self.slots[:, None] * words + np.arange(words)
        lines = np.concatenate([address[..., None], packed.transpose(0, 2, 1)], axis=2)
        return lines.reshape(-1, 1 + config.array.banks)

    def cycles(self) -> np.ndarray:
        """Return the documented cycles from accepting each row to `done`."""
        bits = self.bank_bits()
        count = bits.reshape(*bits.shape[:2], -1, self.config.memory.mask_word_bits).sum(axis=3)
        count[..., :-1] = np.maximum(count[..., :-1], 1)
        return 2 + count.sum(axis=2).max(axis=1)


def random_mask(case: Case, kind: str, rng: np.random.Generator) -> np.ndarray:
    columns = case.columns
    mask = np.zeros(columns, dtype=bool)
    match kind:
        case "sparse" | "half" | "dense":
            mask = rng.random(columns) < {"sparse": 0.05, "half": 0.5, "dense": 0.95}[kind]
        case "ones":
            mask[:] = True
        case "one bit":
            mask[rng.integers(columns)] = True
        case "empty words":
            local = case.hash.local(np.arange(columns)) // case.config.memory.mask_word_bits
            mask = (local == rng.integers(local.max() + 1)) & (rng.random(columns) < 0.4)
        case "one bank":
            bank = case.hash.bank(np.arange(columns))
            mask = (bank == rng.integers(case.config.array.banks)) & (rng.random(columns) < 0.7)
    return mask


def random_cases(config: CoreConfig, rng: np.random.Generator) -> list[Case]:
    B, most = config.array.banks, config.memory.columns
    sizes = [most, most - 1, int(rng.integers(1, most + 1)), 1, B, min(B + 1, most)]
    cases = []
    for i, columns in enumerate(sizes):
        hash_ = hashes(config, 2, int(rng.integers(1 << 30)))[i % 4]
        slots = rng.permutation(config.memory.query_rows)[: len(MASKS)]
        empty = np.zeros((len(slots), columns), dtype=bool)
        case = Case(config, hash_, columns, bool(i != 2), slots, empty)
        kinds = rng.permutation(MASKS)[: len(slots)]
        case.masks = np.array([random_mask(case, kind, rng) for kind in kinds])
        cases.append(case)
    # The case without masks has them in memory all the same.
    return cases


def check(config: CoreConfig, pause: str, seed: int) -> list[tuple[Case, dict[str, np.ndarray]]]:
    rng = np.random.default_rng(seed)
    cases = random_cases(config, rng)
    given: dict[str, object] = {}
    for n, case in enumerate(cases):
        lines = rng.permutation(case.lines(rng))
        # Slots of the second half may arrive while the first ones are listed, if in time: they
        # take as many cycles as lines, and the rows before them at least three each.
        in_time = np.isin(lines[:, 0] // config.mask_words_per_row, case.slots[-1:])
        late = in_time & (pause == "never") & (len(case.slots) > config.mask_words_per_row)
        given |= {
            f"{n}.hash": np.array(case.hash.rows),
            f"{n}.columns": case.columns,
            f"{n}.masked": int(case.masked),
            f"{n}.slots": case.slots,
            f"{n}.reads": rng.choice(lines[~late, 0], 60) if (~late).any() else lines[:0, 0],
            f"{n}.early": lines[~late],
            f"{n}.late": lines[late],
        }
    result = sim.run(
        simulator(config),
        "hw_tests.blocks.mask_bench",
        testcase="controller",
        seed=seed,
        inputs={"config": config.to_toml(), "pause": pause, "cases": len(cases), **given},
    )
    names = ("lines", "accepted", "offered", "taken", "slots", "kept")
    names += ("read", "read_meanwhile", "word_taken", "words")
    got = [{name: result.outputs[f"{n}.{name}"] for name in names} for n in range(len(cases))]
    for n, (case, one) in enumerate(zip(cases, got, strict=True)):
        what = f"{config.name}, {case.columns} columns, masked {case.masked}, hash {case.hash}"
        assert np.array_equal(one["slots"], case.slots), what
        bits = case.bank_bits()
        listed = 0
        for i, (begin, end) in enumerate(zip(one["accepted"], one["offered"], strict=True)):
            mine = one["kept"][(one["kept"][:, 0] > begin) & (one["kept"][:, 0] < end)]
            listed += len(mine)
            for b in range(config.array.banks):
                order = mine[mine[:, 1] == b, 2]
                assert np.array_equal(order, np.flatnonzero(bits[i, b])), (
                    f"{what}, row {i} bank {b}"
                )
        assert listed == len(one["kept"]), f"{what}: columns listed while no row was"
        loaded = {line[0]: line for line in given[f"{n}.early"].tolist()}
        wanted = [loaded[address] for address in given[f"{n}.reads"].tolist()]
        assert one["words"].tolist() == wanted, f"{what}: lines read"
        assert np.array_equal(one["offered"] - one["accepted"], case.cycles()), what
        assert (one["accepted"][1:] > one["taken"][:-1]).all(), what
    return list(zip(cases, got, strict=True))


@pytest.mark.parametrize("name", CONFIGS)
def test_rows_without_stalls(name):
    for _, got in check(CONFIGS[name], "never", sim.choose_seed()):
        assert np.array_equal(got["taken"], got["offered"])
        assert np.array_equal(got["accepted"][1:], got["taken"][:-1] + 1)
        early = got["lines"][got["lines"] < got["accepted"][0]]
        assert (np.diff(early) == 1).all(), "a line a cycle"


@pytest.mark.parametrize("name", CONFIGS)
def test_a_line_is_read_in_every_cycle_in_which_no_scanner_wants_the_memory(name):
    for case, got in check(CONFIGS[name], "never", sim.choose_seed()):
        read = got["read"]
        assert (got["word_taken"] == read + 2).all(), "two cycles"
        end = got["taken"][-1]
        free = read[read > end] if case.masked else read
        assert (np.diff(free) == 1).all(), "a line a cycle"
        if case.masked:
            # At least one between any two rows, so that a reader is never shut out.
            between = np.searchsorted(got["taken"], read[read <= end])
            assert set(between.tolist()) == set(range(between.max() + 1))


@pytest.mark.parametrize("pause", ["bernoulli", "mostly_stalled"])
@pytest.mark.parametrize("name", CONFIGS)
def test_rows_with_stalls(name, pause):
    check(CONFIGS[name], pause, sim.choose_seed())
