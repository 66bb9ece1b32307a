"""Orders in which queues and tokens allow the commands of a program to be executed."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

import numpy as np

from disc.program import Command, Fence, Queue


def random_order(commands: Sequence[Command], rng: np.random.Generator) -> list[int]:
    """Draw a legal order; some queues run far ahead, others lag.

    Raises
    ------
    ValueError
        The tokens deadlock.
    """
    order: list[int] = []
    tokens: Counter[tuple[Queue, Queue]] = Counter()
    start = 0
    for end in [*(i for i, c in enumerate(commands) if isinstance(c, Fence)), len(commands)]:
        order += _segment(commands, range(start, end), tokens, rng)
        if end < len(commands):
            order.append(end)
        start = end + 1
    return order


def _segment(
    commands: Sequence[Command],
    indices: range,
    tokens: Counter[tuple[Queue, Queue]],
    rng: np.random.Generator,
) -> list[int]:
    queues = {queue: deque(i for i in indices if queue == commands[i].QUEUE) for queue in Queue}
    order: list[int] = []
    while any(queues.values()):
        ready = [
            q for q, waiting in queues.items() if waiting and _ready(commands[waiting[0]], tokens)
        ]
        if not ready:
            heads = [waiting[0] for waiting in queues.values() if waiting]
            raise ValueError(f"tokens: deadlock at commands {heads}")
        weights = rng.dirichlet(np.full(len(ready), 0.4))
        queue = ready[int(rng.choice(len(ready), p=weights))]
        for _ in range(int(rng.integers(1, 6))):
            waiting = queues[queue]
            if not waiting or not _ready(commands[waiting[0]], tokens):
                break
            command = commands[waiting[0]]
            order.append(waiting.popleft())
            tokens.subtract((other, queue) for other in _queues(command.wait))
            tokens.update((queue, other) for other in _queues(command.signal))
    return order


def _queues(mask: int) -> list[Queue]:
    return [queue for queue in Queue if mask & queue.bit]


def _ready(command: Command, tokens: Counter[tuple[Queue, Queue]]) -> bool:
    return all(tokens[other, command.QUEUE] > 0 for other in _queues(command.wait))
