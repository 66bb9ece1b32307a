"""Compares what came with what should have come, in order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from typing import Any

__all__ = ["Scoreboard"]


class Scoreboard:
    """In-order comparison with context in the message.

    Parameters
    ----------
    name : str
        What is compared, for example a port.
    context : str
        Configuration and shape, repeated in every failure.
    """

    def __init__(self, name: str, context: str = ""):
        self.name, self.context = name, context
        self.index = 0
        self._expected: deque[Any] = deque()

    def expect(self, values: Iterable[Any]) -> None:
        """Append to what must come."""
        self._expected.extend(values)

    def got(self, value: Any) -> None:
        """Compare the next value; fit as `callback` of a `StreamMonitor`."""
        if not self._expected:
            self._fail(f"unexpected {value!r}")
        wanted = self._expected.popleft()
        if value != wanted:
            self._fail(f"expected {wanted!r}, got {value!r}")
        self.index += 1

    @property
    def done(self) -> bool:
        """Everything expected so far has come."""
        return not self._expected

    def finish(self) -> None:
        """Fail unless everything expected has come."""
        if self._expected:
            self._fail(f"{len(self._expected)} values missing, next {self._expected[0]!r}")

    def _fail(self, what: str) -> None:
        # The seed of the run: cocotb.RANDOM_SEED is a derivative of it for each test.
        seed = os.environ["COCOTB_RANDOM_SEED"]
        raise AssertionError(f"{self.name}[{self.index}]: {what} ({self.context}; seed {seed})")
