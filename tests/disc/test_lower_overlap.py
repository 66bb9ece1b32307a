"""Tokens and double buffers let the queues overlap: a schedule with simple durations."""

from __future__ import annotations

from collections import defaultdict, deque

import pytest

from disc.config import CoreConfig, preset
from disc.lower.plan import BlockPlan
from disc.lower.shape import BlockScalars, BlockShape, StepKind
from disc.program import Command, Fence, MaskMode, Program, Queue
from disc.program.access import ListState, Space

START = 30
"""Cycles that every command takes besides its work."""


def duration(command: Command, config: CoreConfig, lists: ListState, bandwidth: float) -> float:
    """Array: ideal cycles; vector: elements over lanes; load and store: bytes over bandwidth."""
    if command.QUEUE == Queue.ARRAY:
        return START + command.array_cycles(config)
    if command.QUEUE == Queue.VECTOR:
        fields = command.values()
        return START + fields["rows"] * fields["width"] / config.vector.lanes
    accesses = command.accesses(config, lists.windows)
    return START + sum(a.units for a in accesses if a.space is Space.DRAM) / bandwidth


def busy(program: Program, config: CoreConfig, *, bandwidth: float, depth: int) -> dict[str, float]:
    """Fraction of the whole time in which each queue works; `depth` commands wait in each."""
    lists = ListState()
    tokens: defaultdict[tuple[Queue, Queue], deque[float]] = defaultdict(deque)
    free, work = dict.fromkeys(Queue, 0.0), dict.fromkeys(Queue, 0.0)
    started: dict[Queue, deque[float]] = {queue: deque() for queue in Queue}
    fetched = 0.0
    for command in program.commands:
        assert not isinstance(command, Fence)
        queue = command.QUEUE
        cycles = duration(command, config, lists, bandwidth)
        command.follow(lists)
        if len(started[queue]) == depth:
            fetched = max(fetched, started[queue].popleft())
        begin = max(free[queue], fetched)
        for giver in Queue:
            if command.wait & giver.bit:
                begin = max(begin, tokens[giver, queue].popleft())
        started[queue].append(begin)
        free[queue] = begin + cycles
        work[queue] += cycles
        for taker in Queue:
            if command.signal & taker.bit:
                tokens[queue, taker].append(free[queue])
    whole = max(free.values())
    return {queue.name.lower(): work[queue] / whole for queue in Queue}


@pytest.mark.parametrize("depth", [2, 8])
@pytest.mark.parametrize(
    ("config", "shape", "kind", "bandwidth", "least"),
    [
        ("tiny", BlockShape(256, 128, 4, 512), StepKind(256), 8, 0.99),
        ("tiny", BlockShape(256, 128, 4, 512), StepKind(256, MaskMode.GENERATE), 8, 0.98),
        ("edge", BlockShape(1024, 384, 6, 1536), StepKind(1024), 64, 0.99),
    ],
    ids=["tiny dense", "tiny refresh", "edge dense"],
)
def test_the_array_hardly_waits(
    config: str, shape: BlockShape, kind: StepKind, bandwidth: float, least: float, depth: int
) -> None:
    chosen = preset(config)
    program = BlockPlan(chosen, shape).program(BlockScalars.blank(shape), kind)
    shares = busy(program, chosen, bandwidth=bandwidth, depth=depth)
    assert least < shares["array"] <= 1, shares
    assert shares["load"] < 0.5


def test_a_slow_memory_makes_loads_the_bottleneck() -> None:
    shape = BlockShape(64, 128, 4, 512)
    program = BlockPlan(preset("tiny"), shape).program(BlockScalars.blank(shape), StepKind(64))
    shares = busy(program, preset("tiny"), bandwidth=0.25, depth=8)
    assert shares["load"] > 0.9 > shares["array"]
