"""Who waits for whom: the tokens of a program, followed in fetch order."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from disc.program.errors import failure
from disc.program.fields import Command, Queue
from disc.program.store import Fence

MAX_TOKENS = 255
"""Most tokens of a pair of queues that hardware counts."""

Clock = tuple[int, ...]
"""For each queue, how many of its commands are certainly complete."""


@dataclass
class _Pair:
    """Tokens from one queue to another."""

    given: deque[tuple[Clock, int]] = field(default_factory=deque)
    """Of each signal that has not been taken: clock behind it, and the command's index."""
    signals: int = 0
    waits: list[int] = field(default_factory=list)
    """Position in the taking queue of each wait."""


class TokenClocks:
    """Follows tokens through a program.

    Parameters
    ----------
    commands
        In fetch order; `start` and `finish` are called for one after the other.
    """

    def __init__(self, commands: Sequence[Command]) -> None:
        self.commands = commands
        self.queue = np.array([int(c.QUEUE) for c in commands], np.int64)
        self.position = np.zeros(len(commands), np.int64)
        """Of each command in its queue, from 1 up."""
        self.clocks: list[Clock] = [(0,) * len(Queue) for _ in Queue]
        self.pairs: defaultdict[tuple[Queue, Queue], _Pair] = defaultdict(_Pair)
        self.most = self.waits = 0

    def start(self, index: int, command: Command) -> Clock:
        """Return what is certainly complete in each queue when a command starts.

        Raises ProgramError if it waits for a token that no earlier command gives.
        """
        queue = command.QUEUE
        clock = self.clocks[queue]
        if isinstance(command, Fence):
            clock = tuple(max(c[q] for c in self.clocks) for q in Queue)
        own = clock[queue] + 1
        for giver in Queue:
            if not command.wait & giver.bit:
                continue
            pair = self.pairs[giver, queue]
            if not pair.given:
                raise failure(self.commands, index, self._no_token(index, giver, queue))
            given, _ = pair.given.popleft()
            pair.waits.append(own)
            self.waits += 1
            clock = tuple(map(max, clock, given))
        self.position[index] = own
        return clock

    def _no_token(self, index: int, giver: Queue, taker: Queue) -> str:
        text = f"deadlock: waits for a token of queue {giver.name.lower()}, which no command gives"
        for later in range(index + 1, len(self.commands)):
            command = self.commands[later]
            if giver == command.QUEUE and command.signal & taker.bit:
                return f"{text} ahead of it; command {later} does, behind it in fetch order"
        return text

    def finish(self, index: int, command: Command, clock: Clock) -> None:
        """Take note that a command gives its tokens; `clock` is that of its start.

        Raises ProgramError if more may pile up than hardware counts.
        """
        queue = command.QUEUE
        behind = list(clock)
        behind[queue] = int(self.position[index])
        done = tuple(behind)
        self.clocks[queue] = done
        if isinstance(command, Fence):
            self.clocks = [done for _ in Queue]
        for taker in Queue:
            if not command.signal & taker.bit:
                continue
            pair = self.pairs[queue, taker]
            pair.given.append((done, index))
            pair.signals += 1
            waiting = pair.signals - bisect_right(pair.waits, clock[taker])
            self.most = max(self.most, waiting)
            if waiting > MAX_TOKENS:
                raise failure(
                    self.commands,
                    index,
                    f"{waiting} tokens for queue {taker.name.lower()} may pile up, hardware "
                    f"counts {MAX_TOKENS}",
                )

    def require_none_left(self) -> None:
        """Raise ProgramError if tokens are left, which would let a later program run too early."""
        for (_, taker), pair in self.pairs.items():
            if pair.given:
                text = f"gives a token to queue {taker.name.lower()}, which no command takes"
                raise failure(self.commands, pair.given[0][1], text)
