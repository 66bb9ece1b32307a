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
from hw.memory.reader import RowReader
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
    run(config, random_cases(config, seed, 3, values), seed)


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


def test_values_beyond_the_format_fail():
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


def _pieces(command: Select, start: int) -> np.ndarray:
    """First and last byte of every piece of a latent [pieces, 2], by pixel row of the image."""
    length = command.patch * command.channels * sizes.LATENT_BYTES
    count = command.grid_rows * command.patch * command.grid_columns
    return start + length * np.arange(count)[:, None] + [0, length - 1]


def _bus_words(config: CoreConfig, pieces: np.ndarray) -> np.ndarray:
    """Bus words that each piece touches."""
    words = pieces // config.bus.word_bytes
    return words[:, 1] - words[:, 0] + 1


def _words_left(config: CoreConfig, place: int, count: int) -> int:
    """How often a list in DRAM goes on in the next word of the bus."""
    size = config.bus.word_bytes
    return (place + sizes.LIST_HEADER_BYTES + count * sizes.ENTRY_BYTES - 1) // size - place // size


@pytest.mark.parametrize("name", CONFIGS)
def test_cycles_of_select(name):
    """Memory answers at once: a selector word a cycle, then a cycle a token or piece."""
    config, seed = CONFIGS[name], sim.choose_seed()
    case = Case(config, np.random.default_rng(seed))
    for patch, channels in ((2, 4), (1, 3), (4, 4)):
        for mode, update in ((0, 0), (1, 0), (0, 1)):
            shape = {"rows": 3, "columns": 7, "patch": patch, "channels": channels}
            case.select(0, mode=Change(mode), update=update, align=64, **shape)
    got = run(config, [case], seed)
    for i, command in enumerate(case.commands):
        where = f"{name}: {command}"
        cycles = got["0.ends"][i] - got["0.starts"][i] - StoreUnit.SELECT_LATENCY
        cycles -= _beats(config, command)
        length = got["0.images"][i][command.selected :][:4].view("<u4")[0]
        selected = got["0.images"][i][command.selected + 4 :][: 4 * length].view("<u4")
        words = _bus_words(config, _pieces(command, command.latent))
        if not (command.update and len(selected)):
            whole = command.patch * command.channels % config.selector.pixels == 0
            most = 0 if whole else 2 * int((words > 1).sum())
            assert 0 <= cycles <= most, where
            continue
        row, column = np.divmod(selected.astype(np.int64), command.grid_columns)
        lines = row[:, None] * command.patch + np.arange(command.patch)
        copied = words[(lines * command.grid_columns + column[:, None]).ravel()]
        passed = int(selected[-1]) + 1 - len(selected)
        cycles -= StoreUnit.COPY_LATENCY + passed
        full = 0
        if config.bus.word_bytes == 64:  # on narrower ones lists never hold up the patches
            lists = (command.selected, length), (command.reused, 3 * 7 - length)
            full = sum(_words_left(config, place, count) for place, count in lists)
        assert len(copied) <= cycles <= copied.sum() + 1 + full, where


@pytest.mark.parametrize("name", CONFIGS)
def test_cycles_of_store_masks(name):
    """Memory answers at once: a line a cycle, or a bus word a cycle."""
    config, seed = CONFIGS[name], sim.choose_seed()
    case = Case(config, np.random.default_rng(seed))
    most, word = config.memory.query_rows, config.bus.word_bytes
    for columns in (config.memory.columns, 1, config.memory.columns // 2):
        stride = -(-sizes.mask_row_bytes(columns, config) // word) * word
        fixed = {"rows": most, "list": 2, "slot": 0, "single": 0}
        case.store_masks(columns=columns, stride=stride, align=word, **fixed)
    got = run(config, [case], seed)
    for i, command in enumerate(case.commands):
        lines, words = _lines(config, command), command.stride // word
        cycles = got["0.ends"][i] - got["0.starts"][i] - StoreUnit.MASKS_LATENCY
        # The first word may have been collected before its address is known.
        assert 0 <= most * max(lines, words) - cycles <= (lines > words), command


@pytest.mark.parametrize("name", ["narrow", "odd"])
@pytest.mark.parametrize("slow", ["reads", "writes", "masks"])
def test_waiting(name, slow):
    """Every cycle but a constant number takes a word, or waits."""
    config, seed = CONFIGS[name], sim.choose_seed()
    pauses = {n: "mostly_stalled" if n == slow else "never" for n in ("reads", "writes", "masks")}
    case = Case(config, np.random.default_rng(seed), tuple(pauses.values()))
    fixed = {"rows": 3, "columns": 5, "patch": 2, "channels": 4, "align": 64}
    case.store_masks(list=2, single=0)
    case.select(0, update=0, **fixed)
    case.select(0, update=1, threshold=ALL, **fixed)
    got = run(config, [case], seed)
    masks, select, update = case.commands
    words = _rows(case, masks) * -(
        -_lines(config, masks) * sizes.mask_line_bytes(config) // config.bus.word_bytes
    )
    pieces = len(_pieces(update, update.latent))
    taken = [
        words,
        _beats(config, select),
        _beats(config, update) + pieces * -(-2 * 4 * 2 // config.bus.word_bytes),
    ]
    cycles = got["0.ends"] - got["0.starts"]
    rest = cycles - taken - got["0.data"] - got["0.space"]
    # While a list's word waits the lists' lengths may already be on their way.
    least = (5, 14, 17) if slow == "writes" else (5, 18, 20)
    assert (least <= rest).all(), rest
    assert (rest <= (7, 18, 24)).all(), rest
    reading = got["0.data"][1] - RowReader.LATENCY
    assert reading > 0 if slow == "reads" else reading == 0
    if slow != "writes":
        assert got["0.space"][1:].tolist() == [0, 0]
    elif name == "narrow":
        assert got["0.space"][2] > 20
