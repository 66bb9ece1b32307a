"""The complete core against the golden executor and the integer golden core, to the bit."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest

from disc.config import CoreConfig
from disc.hashing import BankHash, bank_loads
from disc.lower.buffers import list_bytes
from disc.lower.layout import Image, Layout
from disc.lower.random_programs import COVERAGE, coverage, random_program
from disc.lower.shape import BlockShape
from disc.program import (
    Attend,
    LoadColumns,
    LoadConstants,
    LoadList,
    LoadMasks,
    LoadRows,
    MaskMode,
    Norm,
    Program,
    Project,
    ProjectEpilogue,
    Queue,
    Select,
    sizes,
)
from disc.program.build import Builder
from disc.program.encoding import WORD_BYTES
from disc.program.masks import pack_masks
from disc.program.program import BufferKind
from golden.executor import execute
from golden.executor.observe import observe
from golden.executor.random_blocks import Case, draw_rows, steps
from golden.integer.block import block
from hw.control.layouts import ProgramError
from hw_tests.core.configs import CORES
from hw_tests.core.simulate import CoreJob, CoreResult, simulate
from hw_tests.core.trained import KINDS, trained_step
from hw_tests.core.utilisation import array_cycles, by_command, queue_cycles
from hw_tests.sim import choose_seed
from sim_models.core import Prediction, predict
from sim_models.engine import EngineModel, shipped_calibration

TRAFFIC = (
    {"latency": 1},
    {"latency": 20, "spread": 31, "stall": 0.3},
    {"latency": 60},
    {"latency": 3, "stall": 0.8},
)
"""How DRAM behaves: at once, unsteady, far away, hardly ever ready."""


def require_equal(got: CoreResult, want: np.ndarray, where: str) -> None:
    assert got.error == ProgramError.NONE, f"{where}: {got.error.name} at {got.error_index}"
    wrong = np.flatnonzero(got.dram != want)
    assert not len(wrong), f"{where}: {len(wrong)} bytes differ, the first at {wrong[0]:#x}"


def run_random_programs(name: str, seeds: range) -> set[str]:
    config = CORES[name]
    seed = choose_seed()
    programs = [random_program(config, seed + i) for i in seeds]
    jobs = [
        CoreJob(found.program, found.image, **TRAFFIC[i % len(TRAFFIC)])
        for i, found in enumerate(programs)
    ]
    results = simulate(config, jobs, seed=seed)
    seen: set[str] = set()
    for i, (found, got) in enumerate(zip(programs, results, strict=True)):
        want = execute(found.program, config, found.image)
        require_equal(got, want, f"{name}, program {seed + seeds[i]}")
        seen |= coverage(found, config)
    return seen


@pytest.mark.parametrize("name", CORES)
def test_random_programs(name: str) -> None:
    run_random_programs(name, range(16))


@pytest.mark.full
@pytest.mark.parametrize("name", CORES)
def test_thousands_of_random_programs(name: str) -> None:
    """A thousand on each configuration; together they exercise everything there is."""
    seen: set[str] = set()
    for start in range(0, 1000, 100):
        seen |= run_random_programs(name, range(start, start + 100))
    assert COVERAGE - seen == set()


SHAPES = {
    "tiny": BlockShape(tokens=80, width=40, heads=2, hidden=96),
    "six": BlockShape(tokens=50, width=36, heads=2, hidden=70),
    "wide": BlockShape(tokens=30, width=40, heads=2, hidden=60),
}


@pytest.mark.parametrize("hot", [False, True], ids=["all columns", "hot columns"])
@pytest.mark.parametrize("name", SHAPES)
def test_blocks(name: str, hot: bool) -> None:
    """A whole block, step after step: masks made and used, rows left out, all of it, none."""
    config, seed = CORES[name], choose_seed()
    rng = np.random.default_rng(seed)
    case = Case.random(config, SHAPES[name], seed=seed, hot=hot)
    jobs, wants = [], []
    plan = case.plan
    for i, (kind, sparsity, fraction) in enumerate(steps(plan.shape.tokens, plan.hash, hot=hot)):
        tokens = draw_rows(plan.shape.tokens, fraction, rng)
        program, image = case.lowered(sparsity, tokens), case.image(tokens)
        jobs.append(CoreJob(program, image.data, **TRAFFIC[i % len(TRAFFIC)]))
        want = execute(program, config, image.data)
        result = block(
            case.x[tokens],
            tokens,
            case.constants,
            case.vectors,
            case.state,
            sparsity,
            config.number,
        )
        case.require(want, result.x, tokens)
        wants.append((kind, want))
    for got, (kind, want) in zip(simulate(config, jobs, seed=seed), wants, strict=True):
        require_equal(got, want, f"{name}, {kind}")


def test_many_more_keys_than_the_banks_hold() -> None:
    """The banks of `scarce` hold 16 keys: five tiles, the last one incomplete."""
    config, seed = CORES["scarce"], choose_seed()
    rng = np.random.default_rng(seed)
    shape = BlockShape(tokens=75, width=24, heads=2, hidden=20)
    case = Case.random(config, shape, seed=seed, hot=True)
    assert shape.tokens >= 4 * config.memory.columns
    jobs, wants, seen = [], [], set()
    for i, (kind, sparsity, fraction) in enumerate(steps(shape.tokens, case.plan.hash, hot=True)):
        rows = draw_rows(shape.tokens, fraction, rng)
        program, image = case.lowered(sparsity, rows), case.image(rows)
        attends = [c for c in program.commands if isinstance(c, Attend)]
        seen |= {(c.mode.name, c.epilogue.name, c.first, c.last, c.mark) for c in attends}
        jobs.append(CoreJob(program, image.data, **TRAFFIC[i % len(TRAFFIC)]))
        wants.append((kind, execute(program, config, image.data)))
    assert {first for _, _, first, *_ in seen} == {last for *_, last, _ in seen} == {0, 1}
    assert {mark for *_, mark in seen} == {0, 1}
    for got, (kind, want) in zip(simulate(config, jobs, seed=seed), wants, strict=True):
        require_equal(got, want, kind)


def run_trained(name: str, kinds: dict[str, bool], layers: slice = slice(2, 3)) -> None:
    """Steps of the trained model, each by its kind and with hot columns or without."""
    config, seed = CORES[name], choose_seed()
    found = [
        trained_step(config, kind, layers=layers, hot=hot, seed=seed % 1000)
        for kind, hot in kinds.items()
    ]
    jobs = [
        CoreJob(step.program, step.dram, **TRAFFIC[i % len(TRAFFIC)])
        for i, step in enumerate(found)
    ]
    for kind, step, got in zip(
        kinds, found, simulate(config, jobs, seed=seed, most_cycles=1 << 30), strict=True
    ):
        assert got.error == ProgramError.NONE, kind
        step.require(got.dram)


@pytest.mark.parametrize("name", SHAPES)
def test_a_block_of_the_trained_model(name: str) -> None:
    run_trained(name, {"both": True} if name == "tiny" else {"both": True, "ctr": False})


def test_a_step_of_the_trained_model() -> None:
    """All six blocks, rows left out and masks used, with branch sums and final layer."""
    run_trained("wide", {"both": False}, slice(None))


@pytest.mark.full
@pytest.mark.parametrize("hot", [False, True], ids=["all columns", "hot columns"])
@pytest.mark.parametrize("name", SHAPES)
def test_every_kind_of_step_of_the_trained_model(name: str, hot: bool) -> None:
    run_trained(name, dict.fromkeys(KINDS, hot), slice(None))


def predicted(config: CoreConfig, job: CoreJob) -> Prediction:
    engine = EngineModel.calibrated(config, shipped_calibration(config))
    work = observe(job.program, config, job.dram)
    return predict(job.program, config, work, engine, latency=job.latency)


@pytest.mark.parametrize("latency", [1, 60])
def test_predicted_cycles(latency: int) -> None:
    """A block within half a per cent, the engine exactly; short programs within ten on average."""
    config, seed = CORES["tiny"], choose_seed()
    step = trained_step(config, "both", layers=slice(2, 3), seed=seed % 1000)
    drawn = [random_program(config, seed + i) for i in range(16)]
    jobs = [
        CoreJob(step.program, step.dram, latency),
        *(CoreJob(one.program, one.image, latency) for one in drawn),
    ]
    results = simulate(config, jobs, seed=seed, most_cycles=1 << 30)
    found, got = predicted(config, jobs[0]), results[0]
    assert found.cycles == pytest.approx(got.counters["cycles"], rel=0.005)
    fetched = len(step.program.commands) * WORD_BYTES // config.bus.word_bytes
    read = fetched + sum(cost.read for cost in found.costs)
    assert read == pytest.approx(got.counters["read_words"], rel=0.001)
    assert sum(cost.written for cost in found.costs) == got.counters["write_words"]
    for index, cost in enumerate(found.costs):
        if cost.engine:
            # A row is late or leaves late only where memory is.
            assert 0 <= got.engine[index]["cycles"] - cost.engine <= 2 + latency
    ratios = [
        predicted(config, job).cycles / got.counters["cycles"]
        for job, got in zip(jobs[1:], results[1:], strict=True)
    ]
    assert abs(np.mean(ratios) - 1) < 0.1
    assert 0.7 < min(ratios) <= max(ratios) < 1.1


def _given_list(program: Program) -> int | None:
    """Index of a command that loads two entries or more of a list no command writes."""
    written = {
        place for c in program.commands if isinstance(c, Select) for place in (c.selected, c.reused)
    }
    for index, command in enumerate(program.commands):
        given = isinstance(command, LoadList) and command.dram not in written
        if given and min(command.rows, command.tokens) > 1:
            return index
    return None


def test_a_wrong_list_stops_the_program() -> None:
    """The error names the command; what is ahead of it is complete; the next program runs."""
    config, seed = CORES["six"], choose_seed()
    drawn = (random_program(config, seed + i) for i in range(100))
    found, index = next((one, i) for one in drawn if (i := _given_list(one.program)) is not None)
    commands = list(found.program.commands)
    bad = found.image.copy()
    place = commands[index].dram
    bad[place : place + 12].view("<u4")[:] = [2, 0, 1 << 20]
    commands[index] = commands[index].replace(first=0)
    wrong = replace(found.program, commands=tuple(commands))
    jobs = [CoreJob(wrong, bad), CoreJob(found.program, found.image)]
    stopped, fine = simulate(config, jobs, seed=seed)
    assert stopped.error == ProgramError.FAILED
    assert commands[stopped.error_index].NAME == "load_list"
    require_equal(fine, execute(found.program, config, found.image), "behind it")


def test_rows_are_loaded_while_others_are_normalised() -> None:
    """Both write the row buffer at the same time, word by word in turn; no word is lost."""
    config, rng = CORES["six"], np.random.default_rng(6)
    tokens, few, width, columns = 31, 16, 4 * config.array.lanes, config.array.banks
    layout = Layout()
    kinds = {
        "list": list_bytes(tokens),
        "x": tokens * 2 * width,
        "rows": tokens * width,
        "weights": columns * width,
        "constants": columns * sizes.CONSTANT_BYTES,
        "vectors": sizes.HEADER_BYTES + 2 * width * sizes.VECTOR_BYTES,
    }
    buffers = {
        name: layout.add(name, size, BufferKind.INPUT, "all") for name, size in kinds.items()
    }
    for name in ("normalised", "loaded"):
        buffers[name] = layout.add(name, tokens * columns, BufferKind.OUTPUT, "all")
    places = {name: buffer.address for name, buffer in buffers.items()}
    builder = Builder(config, layout.buffers)
    own = {"normalised": {"list": 0, "rows": few}, "loaded": {"list": 1, "rows": tokens}}
    base = {"normalised": 0, "loaded": 4 * few}
    project = {"width": width, "columns": columns, "dot_base": 0, "constants": 0}
    commands = [
        *(LoadList(**one, dram=places["list"], first=0, tokens=tokens) for one in own.values()),
        LoadRows(
            **own["loaded"],
            dram=places["rows"],
            stride=width,
            width=width,
            base=base["loaded"],
        ),
        Norm(
            **own["normalised"],
            dram=places["x"],
            stride=2 * width,
            width=width,
            vectors=places["vectors"],
            epsilon=1000,
            base=base["normalised"],
        ),
        LoadColumns(dram=places["weights"], stride=width, columns=columns, width=width, base=0),
        LoadConstants(dram=places["constants"], columns=columns, base=0),
        *(
            Project(
                **own[name],
                **project,
                row_base=base[name],
                epilogue=ProjectEpilogue.OPERAND,
                first_column=0,
                dram=places[name],
                stride=columns,
            )
            for name in own
        ),
    ]
    for command in commands:
        builder.emit(command)
    image = Image(layout)
    image.put_list(buffers["list"], rng.permutation(tokens))
    image.put(buffers["x"], rng.integers(-9999, 9999, (tokens, width)), "<i2")
    image.put(buffers["rows"], rng.integers(-127, 128, (tokens, width)), "<i1")
    image.put(buffers["weights"], rng.integers(-127, 128, (columns, width)), "<i1")
    # Results that spread over their range, so that every operand matters.
    flat = np.full(columns, 1 << 15)
    image.put_constants(buffers["constants"], np.zeros(columns, int), flat, np.full(columns, 24))
    image.put_vectors(buffers["vectors"], 16, rng.integers(-4000, 4000, 2 * width))
    program = builder.program()
    (got,) = simulate(config, [CoreJob(program, image.data, latency=1)])
    require_equal(got, execute(program, config, image.data), "rows of both")
    load, norm = (
        next(got.spans[i] for i, c in enumerate(program.commands) if isinstance(c, kind))
        for kind in (LoadRows, Norm)
    )
    assert min(load[1], norm[1]) - max(load[0], norm[0]) > 60, "they must overlap"


def touched(address: np.ndarray, length: int, config: CoreConfig) -> int:
    """Words of the bus that rows of bytes touch."""
    size = config.bus.word_bytes
    return int(((address + length - 1) // size - address // size + 1).sum())


def test_counters_by_hand() -> None:
    """One masked head: every count of work follows from the mask and from where things lie."""
    config, rng = CORES["six"], np.random.default_rng(5)
    banks, lanes = config.array.banks, config.array.lanes
    n, width, rows = 44, 2 * lanes, np.array([3, 17, 40])
    mask = rng.random((n, n)) < 0.4
    hash_ = BankHash.xor_fold(banks, config.local_bits)
    layout = Layout()
    kinds = {"list": 4 + 4 * len(rows), "q": n * width, "kv": n * 2 * width}
    line = sizes.mask_row_bytes(n, config)
    buffers = {
        name: layout.add(name, size, BufferKind.INPUT, "all")
        for name, size in (kinds | {"masks": n * line}).items()
    }
    buffers["out"] = layout.add("out", n * width, BufferKind.OUTPUT, "all")
    places = {name: buffer.address for name, buffer in buffers.items()}
    builder = Builder(config, layout.buffers, hash_rows=hash_.rows)
    count, half = len(rows), config.memory.bank_words // 2
    listed = {"list": 1, "rows": count}
    keys = {"stride": 2 * width, "columns": n, "width": width}
    commands = [
        LoadList(list=1, dram=places["list"], first=0, rows=count, tokens=n),
        LoadRows(**listed, dram=places["q"], stride=width, width=width, base=4),
        LoadColumns(dram=places["kv"], base=0, **keys),
        LoadColumns(dram=places["kv"] + width, base=half, **keys),
        LoadMasks(**listed, dram=places["masks"], stride=line, columns=n, slot=2),
        Attend(
            **listed,
            row_base=4,
            width=width,
            columns=n,
            dot_base=0,
            axpy_base=half,
            mode=MaskMode.MASKED,
            slot=2,
            score_multiplier=40000,
            score_shift=20,
            output_multiplier=40000,
            output_shift=16,
            dram=places["out"],
            stride=width,
        ),
    ]
    for command in commands:
        builder.emit(command)
    image = Image(layout)
    image.put_list(buffers["list"], rows)
    image.put(buffers["q"], rng.integers(-127, 128, (n, width)), "<i1")
    image.put(buffers["kv"], rng.integers(-127, 128, (n, 2 * width)), "<i1")
    image.put(buffers["masks"], pack_masks(mask, hash_, config), "u1")
    program = builder.program()
    # Twice, so that what the first run counted must be gone in the second.
    first, got = simulate(config, [CoreJob(program, image.data, latency=1)] * 2)
    for result in (first, got):
        require_equal(result, execute(program, config, image.data), "a masked head")
    assert first.counters == got.counters, "counters begin anew with every program"

    fullest = bank_loads(mask[rows], hash_.bank(np.arange(n)), banks).max(axis=1)
    engine, found = got.counters["engine"], got.counters
    assert engine["rows"] == count
    assert engine["kept"] == mask[rows].sum()
    assert engine["imbalance"] == banks * fullest.sum() - mask[rows].sum()
    assert engine["dot"] == engine["axpy"] == 2 * fullest.sum()
    assert engine["no_room"] == 0, "DRAM takes a word a cycle, rows are longer than that"
    assert engine["cycles"] == sum(engine[k] for k in ("dot", "axpy", "no_room", "no_row"))

    # The report leaves no cycle out and gives none twice.
    assert array_cycles(found).total == pytest.approx(found["cycles"])
    for queue in Queue:
        parts = asdict(queue_cycles(found, queue))
        assert sum(parts.values()) == found["cycles"]
        assert min(parts.values()) >= 0, parts
    assert by_command(got, program)["attend, MASKED"]["kept"] == mask[rows].sum()

    # Every bus word that a row touches is read once for it.
    reads = [
        touched(np.array([places["list"]]), 4, config),
        touched(np.array([places["list"] + 4]), 4 * count, config),
        touched(places["q"] + rows * width, width, config),
        touched(places["kv"] + np.arange(n) * 2 * width, width, config),
        touched(places["kv"] + width + np.arange(n) * 2 * width, width, config),
        touched(places["masks"] + rows * line, line, config),
        len(commands) * WORD_BYTES // config.bus.word_bytes,
    ]
    assert found["read_words"] == sum(reads)
    assert found["write_words"] == touched(places["out"] + rows * width, width, config)

    # What can be seen from outside.
    assert [found[q.name.lower()]["commands"] for q in Queue] == [5, 0, 1, 0]
    spent = got.spans[:, 1] - got.spans[:, 0]
    assert found["load"]["busy"] == spent[:5].sum()
    assert found["array"]["busy"] == spent[5]
    assert found["load"]["blocked"] == found["vector"]["busy"] == found["store"]["busy"] == 0
    # The array waits from when its command is decoded until the masks are there.
    assert 0 < found["array"]["blocked"] < got.spans[5, 0]
    assert got.spans[5, 0] - got.spans[4, 1] == 1, "in the cycle after the last token"
    assert found["cycles"] - found["array"]["busy"] - found["array"]["blocked"] < 80, "fetching"
