"""Programs as the sequencer sees them, and what it must make of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from disc.config import CoreConfig
from disc.program import COMMANDS, Command, Fence, Queue
from disc.program.encoding import WORD_BYTES, pack
from disc.program.tokens import MAX_TOKENS

__all__ = ["ProgramCase", "Rules", "random_commands"]

Pair = tuple[int, int]


@dataclass
class ProgramCase:
    """A program, how its surroundings behave, and how it must end."""

    words: list[int]
    queues: list[int]
    """Of each command; -1 for a fence."""
    waits: list[int]
    signals: list[int]
    busy: tuple[int, int] = (1, 1)
    """Least and most cycles that a unit takes for a command."""
    latency: tuple[int, int] = (1, 1)
    """Of memory."""
    pause: str = "never"
    """Of memory and of the units' readiness."""
    address: int = 0
    error: tuple[int, int] = (0, 0)
    """Code and index."""
    complete: int = -1
    """So many commands must be executed, and no others; -1: any that may."""
    fails: list[int] = field(default_factory=list)
    """Commands that their unit cannot execute."""

    @staticmethod
    def of(commands: Sequence[Command], config: CoreConfig, **fields) -> ProgramCase:
        fences = [isinstance(command, Fence) for command in commands]
        return ProgramCase(
            words=[pack(command, config) for command in commands],
            queues=[-1 if f else int(c.QUEUE) for f, c in zip(fences, commands, strict=True)],
            waits=[command.wait for command in commands],
            signals=[command.signal for command in commands],
            complete=fields.pop("complete", len(commands)),
            **fields,
        )

    def inputs(self, n: int) -> dict:
        """As `hw_tests.sim.run` takes them."""
        data = b"".join(word.to_bytes(WORD_BYTES, "little") for word in self.words)
        found = {name: value for name, value in vars(self).items() if name != "words"}
        return {f"{n}.{name}": value for name, value in found.items()} | {
            f"{n}.words": np.frombuffer(data, np.uint8),
            f"{n}.fails": np.array(self.fails, np.int64),
        }


class Rules:
    """Asserts that every command starts when `docs/program.md` allows it and not before."""

    def __init__(self, words: list[int], queues, waits, signals) -> None:
        self.words, self.waits, self.signals = words, waits, signals
        self.queues = list(queues)
        self.order = {q: [i for i, own in enumerate(queues) if own == q] for q in Queue}
        self.fences = [i for i, own in enumerate(queues) if own < 0]
        self.started: dict[int, int | None] = dict.fromkeys(Queue)
        """Command in progress, by queue."""
        self.tokens: Counter[Pair] = Counter()
        self.complete: list[int] = []
        self._ahead = 0

    def start(self, queue: Queue, raw: int, bits: int) -> int:
        """A unit takes a command; return its index."""
        assert self.started[queue] is None, f"{queue.name}: two commands at a time"
        assert self.order[queue], f"{queue.name}: a command too many, {raw:#x}"
        index = self.order[queue].pop(0)
        where = f"command {index} ({queue.name})"
        wanted = self.words[index] & ((1 << bits) - 1)
        assert raw == wanted, f"{where}: expected {wanted:#x}, got {raw:#x}"
        for giver in Queue:
            if self.waits[index] & giver.bit:
                assert self.tokens[giver, queue] > 0, f"{where}: no token from {giver.name}"
                self.tokens[giver, queue] -= 1
        fence = max((f for f in self.fences if f < index), default=-1)
        done = set(self.complete)
        late = [i for i in range(fence) if self.queues[i] >= 0 and i not in done]
        assert not late, f"{where}: fence {fence} passed, {late} not complete"
        self.started[queue] = index
        return index

    def done(self, queue: Queue, *, failed: bool = False) -> None:
        """A unit is done."""
        index = self.started[queue]
        assert index is not None
        self.started[queue] = None
        if failed:
            return
        self.complete.append(index)
        for taker in Queue:
            if self.signals[index] & taker.bit:
                self.tokens[queue, taker] = min(self.tokens[queue, taker] + 1, MAX_TOKENS)


def random_commands(config: CoreConfig, rng: np.random.Generator, count: int) -> list[Command]:
    """Draw commands of any kind with any field values and legal tokens.

    Queues come in runs, tokens pile up for long, waits take whatever there is.
    """
    tokens: Counter[Pair] = Counter()
    found: list[Command] = []
    favourite = rng.dirichlet(np.full(len(COMMANDS), 0.5))
    eager, waiting = rng.random(2)
    for _ in range(count):
        kind = COMMANDS[int(rng.choice(len(COMMANDS), p=favourite))]
        if kind is Fence and rng.random() < 0.7:
            kind = COMMANDS[int(rng.integers(len(COMMANDS) - 1))]
        values = {}
        for spec in kind.specs():
            value = int(rng.integers(0, 1 << 62)) << 62 | int(rng.integers(0, 1 << 62))
            values[spec.name] = value & ((1 << spec.bits(config)) - 1)
            if spec.choices:
                values[spec.name] = int(rng.choice([int(c) for c in spec.choices]))
        wait = signal = 0
        for other in Queue:
            if other is kind.QUEUE or kind is Fence:
                continue
            if tokens[other, kind.QUEUE] and rng.random() < waiting:
                wait |= other.bit
                tokens[other, kind.QUEUE] -= 1
            if tokens[kind.QUEUE, other] < MAX_TOKENS and rng.random() < eager:
                signal |= other.bit
                tokens[kind.QUEUE, other] += 1
        found.append(kind.from_values(values | {"wait": wait, "signal": signal}))
    return found
