# amaranth: UnusedElaboratable=no
"""The store unit against the golden executor."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from disc.config import CoreConfig
from disc.hashing import BankHash
from disc.program import Change, Select, StoreMasks, sizes
from disc.program.encoding import WORD_BYTES, pack
from disc.program.store import MAX_LATENT_CHANNELS, MAX_PATCH
from golden.executor.machine import step
from golden.executor.memory import Memory
from hw.units.store import StoreUnit
from hw_tests import sim
from hw_tests.units.store_cases import ALL, NONE, Case
from hw_tests.units.store_harness import CONFIGS, simulator

STALLS = (
    ("never", "never", "never"),
    ("bernoulli", "bernoulli", "bernoulli"),
    ("mostly_stalled", "never", "never"),
    ("never", "mostly_stalled", "never"),
    ("never", "never", "mostly_stalled"),
    ("bursts", "bursts", "bursts"),
)
"""Of reads, of writes, of the mask memory."""


def run(config: CoreConfig, cases: list[Case], seed: int) -> dict[str, Any]:
    """Execute cases on RTL and, command by command, in the golden executor."""
    given: dict[str, Any] = {"config": config.model_dump_json(), "cases": len(cases)}
    images = [case.image for case in cases]
    for n, case in enumerate(cases):
        for command in case.commands:
            command.validate(config)
        raw = b"".join(pack(c, config).to_bytes(WORD_BYTES, "little") for c in case.commands)
        given |= {
            f"{n}.image": images[n],
            f"{n}.masks": case.masks.reshape(config.mask_lines, -1),
            **{f"{n}.list.{b}": tokens for b, tokens in enumerate(case.lists)},
            f"{n}.commands": np.frombuffer(raw, np.uint8).reshape(-1, WORD_BYTES),
            f"{n}.pauses": np.array(case.pauses),
            f"{n}.latency": np.array(case.latency),
        }
    module = "hw_tests.units.store_bench"
    got = sim.run(simulator(config), module, seed=seed, inputs=given).outputs
    hash_ = BankHash.random_gf2(config.array.banks, config.local_bits, seed=seed)
    for n, case in enumerate(cases):
        golden = Memory(config, hash_, images[n].copy())
        golden.put_mask_rows(0, case.masks)
        for buffer, tokens in enumerate(case.lists):
            golden.put_list(buffer, tokens)
        for i, command in enumerate(case.commands):
            where = f"{config.name}, case {n}, command {i}: {command}, seed {seed}"
            found = got[f"{n}.images"][i]
            if isinstance(command, StoreMasks):
                # The executor leaves it to the checker that lists are no longer than `rows`.
                tokens = case.lists[command.list][: command.rows]
                golden.put_list(command.list, tokens)
            try:
                step(command, golden)
            except ValueError:
                assert got[f"{n}.failed"][i], where
                golden.dram[:] = found  # undefined
                continue
            assert not got[f"{n}.failed"][i], where
            wrong = np.flatnonzero(found != golden.dram)
            assert not len(wrong), f"byte {wrong[:1]}; {where}"
            lines = got[f"{n}.lines"][i]
            if isinstance(command, Select):
                assert lines == 0, where
            else:
                assert lines == _rows(case, command) * _lines(config, command), where
    return got


def _rows(case: Case, command: StoreMasks) -> int:
    return 1 if command.single else min(command.rows, len(case.lists[command.list]))


def _lines(config: CoreConfig, command: StoreMasks) -> int:
    return sizes.mask_row_bytes(command.columns, config) // sizes.mask_line_bytes(config)


def _beats(config: CoreConfig, command: Select) -> int:
    """Words of the selector."""
    pieces = command.grid_rows * command.patch * command.grid_columns
    return pieces * -(-command.patch * command.channels // config.selector.pixels)


def random_cases(config: CoreConfig, seed: int, commands: int, values: int) -> list[Case]:
    rng = np.random.default_rng(seed)
    cases = []
    for pauses in STALLS:
        latency = (1, int(rng.integers(1, 30))), (1, int(rng.integers(1, 30)))
        case = Case(config, rng, pauses, latency)
        slow = 4 if "mostly_stalled" in pauses else 1
        for _ in range(commands):
            case.store_masks()
            command = case.select(values // slow)
        case.shuffle()
        case.add([command])  # once more, on what it has left
        cases.append(case)
    return cases


@pytest.mark.parametrize("name", CONFIGS)
def test_random_commands(name):
    config, seed = CONFIGS[name], sim.choose_seed()
    values = 150 * config.selector.pixels + 150
    run(config, random_cases(config, seed, 4, values), seed)


@pytest.mark.full
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("more", range(3))
def test_many_random_commands(name, more):
    config, seed = CONFIGS[name], sim.choose_seed()
    values = 1000 * config.selector.pixels + 1000
    run(config, random_cases(config, seed, 12, values), seed)


@pytest.mark.parametrize("name", CONFIGS)
def test_extremes(name):
    """The smallest and the widest images, all, none, and largest scores, both modes."""
    config, seed = CONFIGS[name], sim.choose_seed()
    rng = np.random.default_rng(seed)
    case = Case(config, rng)
    most = config.selector.max_width
    for mode in Change:
        for threshold in (ALL, NONE):
            for update in range(2):
                fixed = {"mode": mode, "threshold": threshold, "update": update}
                case.select(0, rows=1, columns=1, **fixed)
                case.select(0, rows=2, columns=3, patch=2, channels=4, **fixed)
    # Lists of many requests, and many tokens to pass by.
    case.select(0, rows=min(most, 20), columns=min(most, 40), patch=1, channels=1, update=1)
    case.select(0, rows=1, columns=most, patch=1, channels=1, update=1)
    case.select(0, rows=most, columns=1, patch=1, channels=1, update=1)
    large = {"rows": 1, "patch": MAX_PATCH, "channels": MAX_LATENT_CHANNELS}
    bits = config.selector.latent_bits
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    for above in range(2):
        latents = case.latents(1, 2, MAX_PATCH, MAX_LATENT_CHANNELS)
        latents.z[:], latents.reference[:], latents.previous[:] = high, low, high
        threshold = int(latents.scores(Change.SECOND_DIFFERENCE).max()) + above
        mode = Change.SECOND_DIFFERENCE
        case.select(0, latents, columns=2, mode=mode, threshold=threshold, **large)
    columns = config.memory.columns
    for rows in (1, config.memory.query_rows):
        case.store_masks(columns=columns, list=2, rows=rows, slot=0, single=0)
        case.store_masks(columns=1, list=2, rows=rows, slot=0, single=0)
    case.store_masks(single=1, slot=config.memory.query_rows - 1, columns=columns, list=0)
    case.store_masks(list=0, single=0)  # no row
    run(config, [case], seed)


def test_rows_that_take_several_requests():
    """A pixel row of 128 KiB."""
    config, seed = CONFIGS["wide"], sim.choose_seed()
    case = Case(config, np.random.default_rng(seed))
    fixed = {"patch": MAX_PATCH, "channels": MAX_LATENT_CHANNELS, "update": 1}
    case.select(0, rows=1, columns=config.selector.max_width, mode=Change.DIFFERENCE, **fixed)
    run(config, [case], seed)


def test_values_of_too_many_bits_fail():
    config, seed = CONFIGS["odd"], sim.choose_seed()
    rng = np.random.default_rng(seed)
    case = Case(config, rng)
    limit = 1 << (config.selector.latent_bits - 1)
    fails = []
    for name in ("z", "reference", "previous"):
        for mode in Change:
            for value in (limit, limit - 1, -limit, -limit - 1, 8 * limit - 1, -8 * limit):
                latents = case.latents(2, 2, 2, 1)
                getattr(latents, name)[tuple(rng.integers(0, 4, 2))] = value
                case.select(0, latents, rows=2, columns=2, patch=2, channels=1, mode=mode)
                unused = name == "previous" and mode == Change.DIFFERENCE
                fails.append(not (-limit <= value < limit or unused))
    got = run(config, [case], seed)
    assert got["0.failed"].tolist() == fails


@pytest.mark.parametrize("name", CONFIGS)
def test_cycles_of_select(name):
    """Memory answers at once: a selector word a cycle, then a cycle a token or piece."""
    config, seed = CONFIGS[name], sim.choose_seed()
    case = Case(config, np.random.default_rng(seed))
    # Lists end with a bus word and begin with one, so that no incomplete word is written.
    for patch, channels in ((2, 4), (1, 3), (4, 4), (3, 1)):
        for mode in Change:
            for update in range(2):
                shape = {"rows": 3, "columns": 7, "patch": patch, "channels": channels}
                case.select(0, mode=mode, update=update, **shape)
    got = run(config, [case], seed)
    for i, command in enumerate(case.commands):
        cycles = got["0.ends"][i] - got["0.starts"][i]
        scored = StoreUnit.SELECT_LATENCY + _beats(config, command)
        print(name, command.patch, command.channels, command.mode, command.update, cycles - scored)


@pytest.mark.parametrize("name", CONFIGS)
def test_cycles_of_store_masks(name):
    """Memory answers at once: a line a cycle, or a bus word a cycle."""
    config, seed = CONFIGS[name], sim.choose_seed()
    case = Case(config, np.random.default_rng(seed))
    most = config.memory.query_rows
    for columns in (config.memory.columns, 1, config.memory.columns // 2):
        length = sizes.mask_row_bytes(columns, config)
        stride = -(-length // config.bus.word_bytes) * config.bus.word_bytes
        case.store_masks(columns=columns, rows=most, list=2, slot=0, single=0, stride=stride)
    got = run(config, [case], seed)
    for i, command in enumerate(case.commands):
        lines = _lines(config, command) * most
        words = lines * sizes.mask_line_bytes(config) // config.bus.word_bytes
        print(name, columns, lines, words, got["0.ends"][i] - got["0.starts"][i])
