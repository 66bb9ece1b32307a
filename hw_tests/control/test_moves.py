# amaranth: UnusedElaboratable=no
"""Readers, writers and arbiters against slices of an image."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from amaranth.hdl import Shape

from disc.config import BusConfig
from hw.memory.packer import ByteWord
from hw.memory.reader import RowReader
from hw.memory.writer import RowWriter
from hw_tests import sim
from hw_tests.blocks.configs import CONFIGS
from hw_tests.blocks.vectors import to_bytes
from hw_tests.control.harness import BUSES, Addressing, Sharing, simulator, sizes_of
from hw_tests.lib import PAUSES

IMAGE = 4096
STALLS = (
    ("bernoulli", "bernoulli", "bernoulli"),
    ("bursts", "never", "mostly_stalled"),
    ("never", "mostly_stalled", "never"),
    ("mostly_stalled", "never", "bursts"),
)
NONE = ("never", "never", "never")


@dataclass
class Move:
    """Rows of one reader or writer in one case, [R, 2] of address and length."""

    rows: np.ndarray
    words: np.ndarray | None = None


@dataclass
class Case:
    moves: dict[str, Move]
    pauses: tuple[str, str, str] = NONE
    latency: tuple[int, int] = (1, 1)
    size: int = 0
    fields: dict[str, Any] = field(default_factory=dict)


def random_rows(
    rng: np.random.Generator, bus: BusConfig, count: int, low: int = 0, high: int = IMAGE
):
    """Rows of any length at any place; some fill bus words or bursts exactly, some are a byte."""
    length = rng.integers(1, 6 * bus.word_bytes, count)
    length = np.where(rng.random(count) < 0.2, 1, length)
    long = bus.word_bytes * rng.integers(1, 2 * bus.burst, count)
    length = np.where(rng.random(count) < 0.15, np.minimum(long, (high - low) // 2), length)
    address = low + rng.integers(0, high - low - length + 1)
    aligned = address // bus.word_bytes * bus.word_bytes
    address = np.where((rng.random(count) < 0.3) & (aligned >= low), aligned, address)
    return np.stack([address, length], axis=1)


def few(rows: np.ndarray, size: int, words: int = 120) -> np.ndarray:
    """Cut rows off so that about that many words are left, for cases that are slow."""
    total = np.cumsum(-(-rows[:, 1] // size))
    return rows[: 1 + int((total <= words).sum())]


def cut(image: np.ndarray, rows: np.ndarray, size: int, width: int) -> dict[str, np.ndarray]:
    """Return the words of rows, `ByteWord` of `width` bytes."""
    data, first, last = [], [], []
    for address, length in rows.tolist():
        count = -(-length // size)
        padded = np.zeros(count * size, np.uint8)
        padded[:length] = image[address : address + length]
        words = np.zeros((count, width), np.int64)
        words[:, :size] = padded.reshape(count, size)
        data.append(words)
        first += [1] + [0] * (count - 1)
        last += [0] * (count - 1) + [1]
    return {"data": np.concatenate(data), "first": np.array(first), "last": np.array(last)}


def run(name: str, cases: list[Case], image: np.ndarray, *, seed: int, ports, sizes) -> dict:
    """Run cases; what readers must give is checked, and what the image becomes."""
    bus = BUSES[name]
    readers = [one for one in sizes if "reader" in one]
    writers = [one for one in sizes if "writer" in one]
    given: dict[str, Any] = {
        "bus": bus.model_dump_json(),
        "image": image,
        "readers": np.array(readers, dtype=np.str_),
        "writers": np.array(writers, dtype=np.str_),
        "read": np.array(ports[0], dtype=np.str_),
        "write": np.array(ports[1], dtype=np.str_),
        "cases": len(cases),
        **{f"sizes.{one}": max(s) for one, s in sizes.items()},
    }
    expected, after = {}, image.copy()
    for n, case in enumerate(cases):
        given |= {f"{n}.pauses": np.array(case.pauses), f"{n}.latency": np.array(case.latency)}
        if "reader" in sizes:
            given[f"{n}.size"] = case.size
        for one, move in case.moves.items():
            given[f"{n}.rows.{one}"] = move.rows
            if one in readers:
                width = max(sizes[one])
                words = cut(image, move.rows, sizes[one][case.size], width)
                expected[n, one] = to_bytes(ByteWord(width), words)
                given[f"{n}.count.{one}"] = len(words["first"])
            else:
                size = sizes[one][case.size if len(sizes[one]) > 1 else 0]
                given[f"{n}.words.{one}"] = move.words
                if len(sizes[one]) > 1:
                    given[f"{n}.size.{one}"] = case.size
                at = 0
                for address, length in move.rows.tolist():
                    count = -(-length // size)
                    row = move.words[at : at + count, :size].ravel()[:length]
                    after[address : address + length] = row
                    at += count
    got = sim.run(
        simulator(CONFIGS[name]), "hw_tests.control.moves_bench", seed=seed, inputs=given
    ).outputs
    for (n, one), words in expected.items():
        found, where = got[f"{n}.{one}"], f"{name} {one}, case {n}, seed {seed}"
        assert len(found) == len(words), f"{where}: {len(words)} words wanted, got {len(found)}"
        wrong = np.flatnonzero((found != words).any(axis=1))
        assert not len(wrong), f"{where}: word {wrong[0]}: {found[wrong[0]]}, {words[wrong[0]]}"
    wrong = np.flatnonzero(got["image"] != after)
    assert not len(wrong), f"{name}: bytes {wrong[:8]} differ, seed {seed}"
    return got


def bus_words(rows: np.ndarray, bus: BusConfig) -> np.ndarray:
    """How many bus words each row touches."""
    return (rows[:, 0] % bus.word_bytes + rows[:, 1] + bus.word_bytes - 1) // bus.word_bytes


@pytest.mark.parametrize("name", CONFIGS)
def test_reader(name):
    bus, seed = BUSES[name], sim.choose_seed()
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 256, IMAGE).astype(np.uint8)
    sizes = sizes_of(bus)
    depth = RowReader(bus, sizes).depth
    cases = []
    for size in range(len(sizes)):
        for pauses in STALLS:
            rows = few(random_rows(rng, bus, int(rng.integers(1, 20))), sizes[size])
            latency = 1, int(rng.integers(1, 40))
            cases.append(Case({"reader": Move(rows)}, pauses, latency, size))
        # Nothing stalls and memory answers as late as is allowed.
        far = depth - bus.burst - 3
        rows = few(random_rows(rng, bus, 30), sizes[size], 400)
        cases.append(Case({"reader": Move(rows)}, NONE, (far, far), size))
        one = np.array([[bus.word_bytes * 7, 1]])
        cases.append(Case({"reader": Move(one)}, size=size))
    got = run(name, cases, image, seed=seed, ports=(["reader__read"], []), sizes={"reader": sizes})
    for size, width in enumerate(sizes):
        n = size * (len(STALLS) + 2) + len(STALLS)
        memory, words = got[f"{n}.cycles.memory"], got[f"{n}.cycles.reader"]
        if width >= bus.word_bytes:
            assert len(memory) == bus_words(cases[n].moves["reader"].rows, bus).sum()
            assert (np.diff(memory) == 1).all(), "the bus is never idle"
        else:
            # Small words wait for the bus only where a row ends in a word that is not full.
            assert (np.diff(words) == 1).mean() > 0.9
        latency = got[f"{n + 1}.cycles.reader"][0] - got[f"{n + 1}.taken.reader"][0]
        assert latency == RowReader.LATENCY


def writer_cycles(rows: np.ndarray, size: int, most: int) -> list[int]:
    """Cycles in which words are taken: while at most one complete bus word waits."""
    found, cycle, held = [], 0, 0
    for address, length in rows.tolist():
        place, left = address % most, length
        while left > 0:
            held -= most if held >= most else 0
            if held <= most:
                held += place + min(left, size)
                place, left = 0, left - size
                if left <= 0:
                    held = -(-held // most) * most
                found.append(cycle)
            cycle += 1
    return found


@pytest.mark.parametrize("name", CONFIGS)
def test_writers(name):
    """Rows that share bus words and overlap, in order."""
    bus, seed = BUSES[name], sim.choose_seed()
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 256, IMAGE).astype(np.uint8)
    sizes = {f"writer_{n}": (size,) for n, size in enumerate(sizes_of(bus))}
    sizes["writer_any"] = sizes_of(bus)

    def case(pauses, latency, count: int, size: int) -> Case:
        moves = {}
        for n, (one, choice) in enumerate(sizes.items()):
            part, used = IMAGE // len(sizes), choice[size if len(choice) > 1 else 0]
            rows = few(random_rows(rng, bus, count, n * part, (n + 1) * part), used)
            words = rng.integers(0, 256, (int((-(-rows[:, 1] // used)).sum()), max(choice)))
            moves[one] = Move(rows, words.astype(np.uint8))
        return Case(moves, pauses, latency, size)

    cases = [
        case(pauses, (1, 30), int(rng.integers(1, 20)), n % len(sizes_of(bus)))
        for n, pauses in enumerate(STALLS)
    ]
    free = [case(NONE, (3, 3), 20, size) for size in range(len(sizes_of(bus)))]
    ports = [f"{one}__write" for one in sizes]
    got = run(name, [*cases, *free], image, seed=seed, ports=([], ports), sizes=sizes)
    for n, last in enumerate(free, len(cases)):
        for one, choice in sizes.items():
            used = choice[last.size if len(choice) > 1 else 0]
            cycles = got[f"{n}.cycles.{one}"]
            wanted = writer_cycles(last.moves[one].rows, used, bus.word_bytes)
            assert (cycles - cycles[0]).tolist() == wanted, (one, last.size)


@pytest.mark.parametrize("name", CONFIGS)
def test_arbiters(name):
    """Three readers and two writers at once; reads and writes in halves of their own."""
    bus, seed = BUSES[name], sim.choose_seed()
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 256, IMAGE).astype(np.uint8)
    sizes = {f"sharing__reader_{n}": (5 + 4 * n,) for n in range(Sharing.READERS)}
    sizes |= {f"sharing__writer_{n}": (7 - 2 * n,) for n in range(Sharing.WRITERS)}

    def case(pauses, latency, count: int) -> Case:
        moves = {}
        for n, (one, (size,)) in enumerate(sizes.items()):
            if "reader" in one:
                rows = few(random_rows(rng, bus, count, 0, IMAGE // 2), size)
                moves[one] = Move(rows)
                continue
            low = IMAGE // 2 + (n - Sharing.READERS) * IMAGE // 4
            rows = few(random_rows(rng, bus, count, low, low + IMAGE // 4), size)
            words = rng.integers(0, 256, (int((-(-rows[:, 1] // size)).sum()), size))
            moves[one] = Move(rows, words.astype(np.uint8))
        return Case(moves, pauses, latency)

    cases = [case(pauses, (1, 30), int(rng.integers(1, 20))) for pauses in STALLS]
    # As many short rows for all.
    even = case(NONE, (1, 1), 9)
    for one in even.moves:
        if "reader" in one:
            even.moves[one].rows = np.tile([64, bus.word_bytes], (40, 1))
    cases.append(even)
    ports = (["sharing__read"], ["sharing__write"])
    got = run(name, cases, image, seed=seed, ports=ports, sizes=sizes)
    ends = [got[f"{len(cases) - 1}.taken.sharing__reader_{n}"][-1] for n in range(3)]
    assert max(ends) - min(ends) < 40, "requesters take turns"


def test_addresses_of_runs_that_follow_each_other():
    """Counted and gathered rows, runs without any; one row a cycle, from run to run."""
    seed = sim.choose_seed()
    rng = np.random.default_rng(seed)
    parts = Addressing().signature.members
    shapes = {name: parts[name].signature.members["payload"].shape for name in ("run", "rows")}
    given: dict[str, Any] = {
        "block": "addressing",
        "sources": np.array(["run"]),
        "sinks": np.array(["rows"]),
        "widths": np.array([Shape.cast(shape).width for shape in shapes.values()]),
        "cases": 1 + len(PAUSES),
    }
    wanted = []
    for n, pause in enumerate((*PAUSES, "never")):
        count, least = 25, int(n == len(PAUSES))
        run = {
            "rows": rng.integers(least, 12, count),
            "base": rng.integers(0, 1 << 40, count),
            "stride": rng.integers(0, 1 << 24, count),
            "length": rng.integers(1, 1 << 16, count),
            "gather": rng.integers(0, 2, count),
        }
        row = np.concatenate([np.arange(rows) for rows in run["rows"]])
        of = np.repeat(np.arange(count), run["rows"])
        token = np.where(run["gather"][of], 7 * row + 3, row)
        address = (run["base"][of] + token * run["stride"][of]) % (1 << 40)
        wanted.append(to_bytes(shapes["rows"], {"address": address, "length": run["length"][of]}))
        given |= {f"{n}.pause_in": pause, f"{n}.pause_out": pause}
        given |= {f"{n}.in.run": to_bytes(shapes["run"], run), f"{n}.count.rows": len(row)}
    module = "hw_tests.blocks.vector_bench"
    got = sim.run(simulator(CONFIGS["tiny"]), module, seed=seed, inputs=given).outputs
    for n, words in enumerate(wanted):
        assert np.array_equal(got[f"{n}.out.rows"], words), f"case {n}, seed {seed}"
    cycles = got[f"{len(PAUSES)}.cycles.rows"]
    assert (np.diff(cycles) == 1).all()
    assert cycles[0] - got[f"{len(PAUSES)}.cycles.run"][0] == 4


def test_sizes_are_checked():
    with pytest.raises(ValueError, match="depth: must be at least 16, got 8"):
        RowReader(BusConfig(), (4,), 8)
    with pytest.raises(ValueError, match=r"sizes: must be at least 1, got \[0\]"):
        RowReader(BusConfig(), (0,))
    with pytest.raises(ValueError, match="size: must be at least 1, got 0"):
        RowWriter(BusConfig(), 0)
    with pytest.raises(ValueError, match=r"size: must be at least 1, got \[4, 0\]"):
        RowWriter(BusConfig(), [4, 0])
