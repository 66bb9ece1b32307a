# amaranth: UnusedElaboratable=no
"""The load unit and the list buffers against the golden executor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from disc.config import CoreConfig
from disc.hashing import BankHash
from disc.program import Command, LoadColumns, LoadConstants, LoadList, LoadRows, LoadTable, sizes
from disc.program.encoding import WORD_BYTES, pack
from disc.tables import SHIFT_BITS
from golden.executor.machine import step
from golden.executor.memory import Memory
from hw.memory.load import LoadUnit
from hw_tests import sim
from hw_tests.blocks.configs import CONFIGS
from hw_tests.blocks.vectors import from_bytes
from hw_tests.control.harness import BUSES, Loading, simulator
from hw_tests.control.loads import KINDS, Loads
from hw_tests.lib.codec import width

STREAMS = ("operands", "constants", "table", "rows", "masks")
STALLS = (
    ("never", "never"),
    ("bernoulli", "bernoulli"),
    ("never", "mostly_stalled"),
    ("mostly_stalled", "never"),
    ("bursts", "bursts"),
)
IMAGE = 8192


@dataclass
class Case:
    loads: Loads
    commands: list[Command]
    pauses: tuple[str, str] = ("never", "never")
    latency: tuple[int, int] = (1, 1)


class Core:
    """The memories of a core, filled by the words that the load unit gives."""

    def __init__(self, config: CoreConfig, hash_: BankHash) -> None:
        self.golden = Memory(config, hash_, np.zeros(0, np.uint8))
        self.hash = hash_
        self.banks, self.rows = self.golden._banks.copy(), self.golden._rows.copy()
        self.constants, self.table = self.golden._constants.copy(), self.golden._table.copy()
        lines = config.mask_lines, sizes.mask_line_bytes(config)
        self.masks = np.zeros(lines, np.uint8)

    def take(self, stream: str, words: dict[str, np.ndarray]) -> None:
        column = words.get("column")
        if stream == "operands":
            where = self.hash.bank(column), words["offset"] + self.hash.local(column)
            for bank, word, data in zip(*where, words["data"], strict=True):
                self.banks[bank, word] = data
        elif stream == "constants":
            where = self.hash.bank(column), words["offset"] + self.hash.local(column)
            values = [words["constants"][name] for name in ("bias", "multiplier", "shift")]
            self.constants[where] = np.stack(values, axis=1)
        elif stream == "table":
            self.table[words["index"] + len(self.table) // 2] = words["value"]
        elif stream == "rows":
            self.rows[words["address"]] = words["data"]
        else:
            bits = words["bits"].reshape(len(words["bits"]), -1).astype(np.uint64)
            per_bank = 8 * self.masks.shape[1] // bits.shape[1]
            single = (bits[:, :, None] >> np.arange(per_bank, dtype=np.uint64)) & np.uint64(1)
            flat = single.reshape(len(bits), -1).astype(np.uint8)
            self.masks[words["address"]] = np.packbits(flat, axis=1, bitorder="little")

    def require(self, golden: Memory, where: str) -> None:
        number = golden.config.number
        for name in ("banks", "table", "rows"):
            wanted = _low(getattr(golden, f"_{name}"), number.operand_bits)
            assert np.array_equal(getattr(self, name), wanted), (where, name)
        bias, multiplier, shift = np.moveaxis(golden._constants, 2, 0)
        bias, shift = _low(bias, number.accumulator_bits), shift % (1 << SHIFT_BITS)
        wanted = np.stack([bias, multiplier, shift], axis=2)
        assert np.array_equal(self.constants, wanted), (where, "constants")
        assert np.array_equal(self.masks.reshape(golden._mask.shape), golden._mask), (where, "mask")


def _low(values: np.ndarray, bits: int) -> np.ndarray:
    """Numbers of a format that is narrower than its bytes: those of any bytes are cut to it."""
    half = 1 << (bits - 1)
    return (values + half) % (2 * half) - half


def run(config: CoreConfig, cases: list[Case], seed: int) -> dict[str, Any]:
    """Execute cases on RTL and, command by command, in the golden executor."""
    bus = BUSES[config.name]
    members = Loading(config, bus).signature.members
    shapes = {name: members[name].signature.members["payload"].shape for name in STREAMS}
    given: dict[str, Any] = {
        "bus": bus.model_dump_json(),
        "streams": np.array(STREAMS),
        "widths": np.array([width(shape) for shape in shapes.values()]),
        "cases": len(cases),
    }
    for n, case in enumerate(cases):
        raw = b"".join(pack(c, config).to_bytes(WORD_BYTES, "little") for c in case.commands)
        lists = [c.list if isinstance(c, LoadList) else -1 for c in case.commands]
        given |= {
            f"{n}.image": case.loads.image,
            f"{n}.commands": np.frombuffer(raw, np.uint8).reshape(-1, WORD_BYTES),
            f"{n}.lists": np.array(lists),
            f"{n}.pauses": np.array(case.pauses),
            f"{n}.latency": np.array(case.latency),
        }
    module = "hw_tests.control.load_bench"
    got = sim.run(simulator(config), module, seed=seed, inputs=given).outputs
    for n, case in enumerate(cases):
        hash_ = BankHash.random_gf2(config.array.banks, config.local_bits, seed=seed + n)
        core, golden = Core(config, hash_), Memory(config, hash_, case.loads.image.copy())
        before = dict.fromkeys(STREAMS, 0)
        for i, command in enumerate(case.commands):
            where = f"{config.name}, case {n}, command {i}: {command}, seed {seed}"
            for stream, count in zip(STREAMS, got[f"{n}.counts"][i], strict=True):
                part = got[f"{n}.{stream}"][before[stream] : count]
                before[stream] = count
                if len(part):
                    core.take(stream, _values(shapes[stream], part))
            try:
                step(command, golden)
            except ValueError:
                assert isinstance(command, LoadList), where
                assert got[f"{n}.failed"][i], where
                continue
            assert not got[f"{n}.failed"][i], where
            core.require(golden, where)
            if isinstance(command, LoadList):
                tokens = golden._lists[command.list]
                assert np.array_equal(got[f"{n}.list.{i}"], tokens), where
        for stream, count in before.items():
            assert count == len(got[f"{n}.{stream}"]), f"{stream}: words behind the last command"
    return got


def _values(shape: Any, words: np.ndarray) -> dict[str, np.ndarray]:
    return from_bytes(shape, words)


@pytest.mark.parametrize("name", CONFIGS)
def test_random_commands(name):
    config, seed = CONFIGS[name], sim.choose_seed()
    rng = np.random.default_rng(seed)
    cases = []
    for pauses in STALLS:
        loads = Loads(config, rng, IMAGE)
        commands = loads.lists()
        kinds = [*KINDS, *KINDS]
        if "mostly_stalled" in pauses:
            kinds = list(KINDS)
        commands += [loads.draw(kinds[i]) for i in rng.permutation(len(kinds))]
        latency = 1, int(rng.integers(1, 40))
        cases.append(Case(loads, commands, pauses, latency))
    run(config, cases, seed)


@pytest.mark.parametrize("name", CONFIGS)
def test_cycles(name):
    """Nothing stalls: the bus is never idle in a command, or a word leaves in every cycle."""
    config, seed, bus = CONFIGS[name], sim.choose_seed(), BUSES[name]
    rng = np.random.default_rng(seed)
    loads = Loads(config, rng, IMAGE)
    width = config.max_beats * config.array.lanes
    if name == "tiny":
        width = 29  # several words, the last one not full
    columns = min(config.memory.columns, 24)
    commands: list[Command] = [
        *loads.lists(),
        loads.draw(LoadColumns, columns=columns, width=width, stride=width + 3),
        loads.draw(LoadConstants, columns=columns),
        LoadTable(dram=16 * 17),
        loads.draw(LoadRows, width=width, stride=2 * width),
    ]
    got = run(config, [Case(loads, commands)], seed)
    starts, ends, memory = got["0.starts"], got["0.ends"], got["0.memory"]
    for i, stream in ((4, "operands"), (5, "constants"), (6, "table"), (7, "rows")):
        cycles = got[f"0.cycles.{stream}"]
        if not len(cycles):
            continue  # an empty list
        assert ends[i] == cycles[-1] + 2, stream
        mine = memory[(memory > starts[i]) & (memory < ends[i])]
        wide = {"operands": config.array.lanes, "rows": config.array.lanes, "constants": 8}
        if wide.get(stream, 0) >= bus.word_bytes:
            assert (np.diff(mine) == 1).all(), stream
        if stream == "table":
            assert cycles[0] - starts[i] == LoadUnit.LATENCY
            assert (np.diff(cycles) == 1).all()


@pytest.mark.parametrize("name", CONFIGS)
def test_lists(name):
    """Windows at, across and behind the end of a list; an entry that is too large fails."""
    config, seed = CONFIGS[name], sim.choose_seed()
    rng = np.random.default_rng(seed)
    loads = Loads(config, rng, IMAGE)
    most = config.memory.query_rows
    ends = {0, 1, loads.entries - 1, loads.entries, loads.entries + 1, loads.tokens - 1}
    commands = loads.lists()
    commands += [
        LoadList(list=first % 4, dram=loads.list, first=first, rows=rows, tokens=loads.tokens)
        for first in sorted(one for one in ends if 0 <= one < loads.tokens)
        for rows in (1, most)
    ]
    commands += [LoadRows(list=b, rows=most, dram=512, stride=5, width=4, base=0) for b in range(4)]
    long = Loads(config, rng, IMAGE)
    long.image[long.list : long.list + 4] = 255  # 2**32 - 1 entries
    long.image[long.list + 4 : long.list + 4 * most + 4].view("<u4")[:] = np.arange(most)[::-1]
    whole = LoadList(list=2, dram=long.list, first=0, rows=most, tokens=most)
    beyond = whole.replace(dram=long.list + 4 * most + 64, tokens=2)  # more than N entries
    long.image[beyond.dram :][: 4 * 4] = np.array([3, 1, 0, 9], "<u4").view(np.uint8)
    bad = Loads(config, rng, IMAGE)
    high = bad.image[bad.list + 4 :][:4].view("<u4")
    high[0] = bad.tokens + (1 << 20)  # equal to a token in its low bits
    worse = LoadList(list=1, dram=bad.list, first=0, rows=most, tokens=bad.tokens)
    edge = worse.replace(tokens=1 << 20)
    cases = [Case(loads, commands), Case(long, [whole, beyond]), Case(bad, [worse, edge, worse])]
    got = run(config, cases, seed)
    assert got["2.failed"].tolist() == [1, 1, 1]
    assert got["1.list.0"].tolist() == list(range(most))[::-1]


def test_query_rows_are_checked():
    from disc.config import build
    from hw.memory.lists import ListBuffers

    fields = CONFIGS["tiny"].model_dump()
    fields["memory"] |= {"query_rows": 2048, "head_dim": 8}
    with pytest.raises(ValueError, match=r"memory.query_rows: must be at most 1024 for 4 list"):
        ListBuffers(build(fields), 1)
