"""Queues, tokens and the port to DRAM: when the commands of a program start and end."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from disc.config import CoreConfig
from disc.program import Fence, Program, Queue
from disc.program.encoding import WORD_BYTES
from disc.program.work import CommandWork
from sim_models.core.commands import Cost, CostModel
from sim_models.engine import EngineModel

__all__ = ["Prediction", "predict"]

QUEUE_DEPTH = 4
"""Commands that wait in front of a unit: `hw.control.sequencer`."""
AHEAD = 2
"""Commands on their way from DRAM: `hw.control.fetch`."""
NEXT = 1
"""From a command's end to the start of one that waited for it."""
FETCH = 8
"""Cycles from a command's place being free to the command being decoded, less memory's latency."""


@dataclass(frozen=True)
class Prediction:
    """What a program takes."""

    cycles: float
    """From start to the last command's end."""
    spans: NDArray[np.float64]
    """[commands, 2] start and end of each command; nan for a fence."""
    costs: tuple[Cost, ...]
    """Of each command alone."""

    def busy(self, program: Program) -> dict[str, float]:
        """Return the share of the cycles in which each queue has a command in progress."""
        length = np.nan_to_num(self.spans[:, 1] - self.spans[:, 0])
        queues = np.array([command.QUEUE for command in program.commands])
        return {q.name.lower(): float(length[queues == q].sum()) / self.cycles for q in Queue}


def predict(
    program: Program,
    config: CoreConfig,
    work: Sequence[CommandWork],
    engine: EngineModel,
    *,
    latency: int = 20,
) -> Prediction:
    """Return when each command starts and ends.

    Every queue takes its commands in order, one at a time; a command starts when the tokens that it
    waits for have come.  Commands in progress share the words of the port to DRAM, reads and writes
    apart: each gets what it could use, or an even share.

    Parameters
    ----------
    program
        Valid, and free of deadlock: `disc.program.check`.
    config
        Of the core.
    work
        Of each command: `golden.executor.observe`.
    engine
        Cycles of the engine, calibrated on this configuration.
    latency
        Cycles of memory.

    Raises
    ------
    ValueError
        The program waits for a token that nobody gives, or `work` has another length.
    """
    if len(work) != len(program.commands):
        raise ValueError(
            f"work: want one entry for each of {len(program.commands)} commands, got {len(work)}"
        )
    model = CostModel(config, engine, program.bank_hash(config), latency)
    costs = tuple(
        Cost(0, 0, 0) if isinstance(command, Fence) else model.cost(command, mine)
        for command, mine in zip(program.commands, work, strict=True)
    )
    return _Run(program, config, costs, latency).run()


class _Run:
    def __init__(
        self, program: Program, config: CoreConfig, costs: tuple[Cost, ...], latency: int
    ) -> None:
        self.program, self.costs = program, costs
        self.fetch = FETCH + latency + -(-WORD_BYTES // config.bus.word_bytes)
        self.spans = np.full((len(costs), 2), np.nan)
        self.time = 0.0
        self.waiting: dict[Queue, deque[int]] = {queue: deque() for queue in Queue}
        self.running: dict[Queue, tuple[int, float]] = {}
        """Command, and the part of it that is left."""
        self.tokens = np.zeros((len(Queue), len(Queue)), int)
        """From queue to queue."""
        self.next = 0
        self.decoded = [0.0] * len(costs)

    def run(self) -> Prediction:
        while True:
            while self._decode() or self._start():
                pass
            if not self.running:
                if self.next < len(self.costs) and self._arrival() > self.time:
                    self.time = self._arrival()
                    continue
                break
            self._advance()
        if self.next < len(self.costs) or any(self.waiting.values()):
            raise ValueError("program: waits for a token that no command gives")
        return Prediction(self.time, self.spans, self.costs)

    # -- events ------------------------------------------------------------------------------------

    def _arrival(self) -> float:
        """When the next command has come from DRAM."""
        free = self.decoded[self.next - AHEAD] if self.next >= AHEAD else 0.0
        return free + self.fetch

    def _decode(self) -> bool:
        if self.next == len(self.costs) or self._arrival() > self.time:
            return False
        command = self.program.commands[self.next]
        if isinstance(command, Fence):
            if self.running or any(self.waiting.values()):
                return False
        elif len(self.waiting[command.QUEUE]) == QUEUE_DEPTH:
            return False
        else:
            self.waiting[command.QUEUE].append(self.next)
        self.decoded[self.next] = self.time
        self.next += 1
        return True

    def _start(self) -> bool:
        started = False
        for queue in Queue:
            if queue in self.running or not self.waiting[queue]:
                continue
            index = self.waiting[queue][0]
            needed = [other for other in Queue if self.program.commands[index].wait & other.bit]
            if all(self.tokens[other, queue] for other in needed):
                for other in needed:
                    self.tokens[other, queue] -= 1
                self.waiting[queue].popleft()
                self.spans[index, 0] = self.time
                self.running[queue] = (index, 1.0)
                started = True
        return started

    def _length(self, index: int) -> float:
        return self.costs[index].cycles + NEXT

    def _rates(self) -> dict[Queue, float]:
        """Speed of each command in progress, 1 where the port to DRAM does not limit it."""
        rates = dict.fromkeys(self.running, 1.0)
        for kind in ("read", "written"):
            wanted = {
                queue: getattr(self.costs[index], kind) / self._length(index)
                for queue, (index, _) in self.running.items()
            }
            for queue, share in _shares(wanted).items():
                if wanted[queue]:
                    rates[queue] = min(rates[queue], share / wanted[queue])
        return rates

    def _advance(self) -> None:
        """Go on to the next end of a command, or arrival of one."""
        rates = self._rates()
        left = {
            queue: part * self._length(index) / rates[queue]
            for queue, (index, part) in self.running.items()
        }
        step = min(left.values())
        if self.next < len(self.costs) and self._arrival() > self.time:
            step = min(step, self._arrival() - self.time)
        self.time += step
        for queue, (index, part) in list(self.running.items()):
            if left[queue] <= step + 1e-9:
                del self.running[queue]
                self.spans[index, 1] = self.time - NEXT
                for other in Queue:
                    if self.program.commands[index].signal & other.bit:
                        self.tokens[queue, other] += 1
            else:
                done = step * rates[queue] / self._length(index)
                self.running[queue] = (index, part - done)


def _shares(wanted: dict[Queue, float]) -> dict[Queue, float]:
    """Split one word a cycle: no one gets more than he wants, no one less than an even share."""
    shares, left = {}, 1.0
    for n, queue in enumerate(sorted(wanted, key=wanted.__getitem__)):
        shares[queue] = min(wanted[queue], left / (len(wanted) - n))
        left -= shares[queue]
    return shares
