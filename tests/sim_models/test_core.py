"""The cycle model of whole programs; `hw_tests/test_core.py` holds it against RTL."""

from __future__ import annotations

import numpy as np
import pytest

from disc.config import preset
from disc.lower.plan import BlockPlan
from disc.lower.random_programs import random_program
from disc.lower.shape import BlockScalars, BlockShape, StepKind
from disc.program import Attend, Fence, LoadRows, MaskMode, Program, Queue
from disc.program.access import Access, Space
from disc.program.work import nominal_work, row_words
from golden.executor.observe import observe
from sim_models.core import predict
from sim_models.core.queues import _shares
from sim_models.engine import EngineModel, shipped_calibration

CONFIG = preset("tiny")
ENGINE = EngineModel.calibrated(CONFIG, shipped_calibration(CONFIG))
SHAPE = BlockShape(tokens=192, width=64, heads=2, hidden=128)


def lowered(mode: MaskMode = MaskMode.DENSE, **kind) -> Program:
    plan = BlockPlan(CONFIG, SHAPE)
    scalars = BlockScalars.blank(SHAPE)
    return plan.program(scalars, StepKind(kind.pop("rows", SHAPE.tokens), mode, **kind))


@pytest.mark.parametrize("seed", range(12))
def test_queues_are_in_order_and_tokens_are_waited_for(seed):
    found = random_program(CONFIG, seed)
    commands = found.program.commands
    got = predict(found.program, CONFIG, observe(found.program, CONFIG, found.image), ENGINE)
    assert got.cycles >= np.nanmax(got.spans)
    last = dict.fromkeys(Queue, 0.0)
    for command, (start, end) in zip(commands, got.spans, strict=True):
        if isinstance(command, Fence):
            continue
        assert last[command.QUEUE] <= start <= end
        last[command.QUEUE] = end
    for giver in Queue:
        for taker in Queue:
            given = [i for i, c in enumerate(commands) if giver == c.QUEUE and c.signal & taker.bit]
            taken = [i for i, c in enumerate(commands) if taker == c.QUEUE and c.wait & giver.bit]
            for i, j in zip(given, taken, strict=True):
                assert got.spans[i, 1] <= got.spans[j, 0]


def test_far_memory_takes_longer_and_nothing_else():
    program = lowered()
    work = nominal_work(program, CONFIG)
    near, far = (predict(program, CONFIG, work, ENGINE, latency=n) for n in (1, 200))
    assert near.cycles < far.cycles < near.cycles + 2 * 200 * len(program.commands)
    assert [c.engine for c in near.costs] == [c.engine for c in far.costs]


def test_a_dense_block_keeps_the_array_at_work():
    program = lowered()
    got = predict(program, CONFIG, nominal_work(program, CONFIG), ENGINE)
    ideal = sum(command.array_cycles(CONFIG) for command in program.commands)
    assert 0.9 < ideal / got.cycles < 1
    assert max(got.busy(program), key=got.busy(program).__getitem__) == "array"


def test_masks_save_cycles():
    dense, masked = lowered(), lowered(MaskMode.MASKED)
    cycles = [
        predict(dense, CONFIG, nominal_work(dense, CONFIG), ENGINE).cycles,
        *(
            predict(masked, CONFIG, nominal_work(masked, CONFIG, density=d), ENGINE).cycles
            for d in (0.3, 0.1)
        ),
    ]
    assert cycles[0] > cycles[1] > cycles[2]


def test_a_token_that_nobody_gives():
    program = Program((LoadRows(list=0, rows=1, dram=0, stride=8, width=8, base=0, wait=2),))
    work = nominal_work(lowered(), CONFIG)[:1]
    with pytest.raises(ValueError, match="waits for a token that no command gives"):
        predict(program, CONFIG, work, ENGINE)


def test_work_of_another_program():
    program = lowered()
    with pytest.raises(ValueError, match="work: want one entry for each of"):
        predict(program, CONFIG, nominal_work(program, CONFIG)[1:], ENGINE)


def test_nominal_work():
    program = lowered(MaskMode.MASKED, rows=100)
    work = nominal_work(program, CONFIG, density=0.25)
    rows, kept = [], []
    for command, one in zip(program.commands, work, strict=True):
        if isinstance(command, Attend):
            rows.append(len(one.tokens))
            kept.append(one.used.mean())
    assert sum(rows) == 100 * SHAPE.heads
    assert 0.22 < np.mean(kept) < 0.28
    for density in (0, 1.5):
        with pytest.raises(ValueError, match=r"density: must be in \(0, 1\]"):
            nominal_work(program, CONFIG, density=density)


def test_words_of_rows():
    tokens = np.array([0, 3])
    access = Access(Space.DRAM, False, start=10, length=16, stride=20, rows=5)
    assert row_words(access, tokens, 16).tolist() == [2, 2, 2, 2, 2]
    assert row_words(access, tokens, 64).tolist() == [1, 1, 2, 1, 1 + (105 // 64 != 90 // 64)]
    slots = Access(Space.DRAM, False, start=0, length=16, stride=16, rows=5, per_row=True)
    assert row_words(slots, tokens, 16).tolist() == [1, 1]


def test_every_command_moves_words():
    program = lowered()
    got = predict(program, CONFIG, nominal_work(program, CONFIG), ENGINE)
    for command, cost in zip(program.commands, got.costs, strict=True):
        assert cost.read + cost.written > 0, command
        assert cost.cycles >= max(cost.read, cost.written, cost.engine), command


def test_shares_of_the_port():
    queues = list(Queue)
    assert _shares({queues[0]: 0.3, queues[1]: 0.5}) == {queues[0]: 0.3, queues[1]: 0.5}
    shares = _shares({queues[0]: 1.0, queues[1]: 0.2, queues[2]: 0.9})
    assert shares == pytest.approx({queues[1]: 0.2, queues[2]: 0.4, queues[0]: 0.4})
