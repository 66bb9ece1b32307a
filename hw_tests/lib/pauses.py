"""When a driver holds valid or ready low."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

import cocotb

__all__ = ["PAUSES", "Pause", "bernoulli", "bursts", "rng"]


def rng(name: str) -> Random:
    """Return a random generator for one use, fixed by the seed of the run and the name."""
    return Random(f"{cocotb.RANDOM_SEED}:{name}")


@dataclass(frozen=True)
class Pause:
    """A policy: an endless series of decisions, one a cycle, True to pause."""

    name: str
    decisions: Callable[[Random], Iterator[bool]]


def bernoulli(p: float) -> Pause:
    """Pause each cycle with probability `p`."""

    def decisions(random: Random) -> Iterator[bool]:
        while True:
            yield random.random() < p

    return Pause(f"bernoulli({p:g})", decisions)


def bursts(busy: float, paused: float) -> Pause:
    """Alternate between runs and pauses of geometric lengths with these means, in cycles."""

    def decisions(random: Random) -> Iterator[bool]:
        while True:
            for mean, pause in ((busy, False), (paused, True)):
                yield pause
                while random.random() >= 1 / mean:
                    yield pause

    return Pause(f"bursts({busy:g},{paused:g})", decisions)


def _never(_: Random) -> Iterator[bool]:
    while True:
        yield False


PAUSES = {
    "never": Pause("never", _never),
    "bernoulli": bernoulli(0.4),
    "bursts": bursts(12, 8),
    "mostly_stalled": bernoulli(0.92),
}
"""What every block must pass, on each side: names travel through `inputs`."""
