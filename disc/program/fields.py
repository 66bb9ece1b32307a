"""How a command declares its fields: one table, from which everything else is derived.

A command is a frozen dataclass whose fields are made by `operand`.  Width, range, encoding, text
and reference page come from that declaration and the configuration.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

from disc.config import CoreConfig

if TYPE_CHECKING:
    from disc.program.access import Accesses, ListState, Window

ADDRESS_BITS = 40
"""Bits of a DRAM byte address: 1 TiB."""

STRIDE_BITS = 24
"""Bits of a distance in bytes between the rows of two tokens."""

TOKEN_BITS = 20
"""Bits of a token index in DRAM: a million tokens."""

MAX_CHANNELS = 4096
"""Most elements of a row of the residual stream, and of any operand row."""

Size = int | Callable[[CoreConfig], int]


class Queue(IntEnum):
    """The four in-order queues."""

    LOAD = 0
    VECTOR = 1
    ARRAY = 2
    STORE = 3

    @property
    def bit(self) -> int:
        """Of a token mask."""
        return 1 << self


class Flag(IntEnum):
    """A yes or no."""

    NO = 0
    YES = 1


@dataclass(frozen=True)
class Spec:
    """What is known of a field."""

    name: str
    meaning: str
    high: Size
    """Largest value."""
    low: int
    unit: str
    address: bool
    """Whether it is a DRAM byte address, for which text may use symbols."""
    align: int
    """Values are multiples of it."""
    choices: type[IntEnum] | None
    required: bool
    default: int
    why: str
    """What would have to grow to allow larger values."""

    def most(self, config: CoreConfig) -> int:
        """Largest value under a configuration."""
        return self.high(config) if callable(self.high) else self.high

    def bits(self, config: CoreConfig) -> int:
        """Width in a command word."""
        return max(1, self.most(config).bit_length())

    def check(self, value: int, config: CoreConfig) -> None:
        """Raise ValueError that names field, value and range."""
        most = self.most(config)
        if not self.low <= value <= most:
            grow = f"; {self.why} limits it" if self.why and value > most else ""
            raise ValueError(
                f"{self.name}: must be in [{self.low}, {most}] for configuration "
                f"{config.name!r}, got {value}{grow}"
            )
        if value % self.align:
            raise ValueError(f"{self.name}: must be a multiple of {self.align}, got {value}")


def operand(
    meaning: str,
    high: Size | type[IntEnum] = 0,
    *,
    low: int = 0,
    unit: str = "",
    default: int | None = None,
    align: int = 1,
    address: bool = False,
    why: str = "",
) -> Any:
    """Declare a field of a command, [low, high], or one of the members of an enumeration."""
    choices = None
    if isinstance(high, type) and issubclass(high, IntEnum):
        choices, high = high, max(high)
    metadata = {
        "meaning": meaning,
        "high": (1 << ADDRESS_BITS) - 1 if address else high,
        "low": low,
        "unit": "byte" if address else unit,
        "address": address,
        "align": align,
        "choices": choices,
        "why": why,
    }
    if default is None:
        return dataclasses.field(metadata=metadata)
    value = choices(default) if choices else default
    return dataclasses.field(default=value, metadata=metadata)


def address(meaning: str, *, align: int = 1, default: int | None = None) -> Any:
    """Declare a DRAM byte address."""
    return operand(meaning, address=True, align=align, default=default)


def stride(meaning: str, *, align: int = 1, default: int | None = None) -> Any:
    """Declare a distance in bytes between two rows in DRAM."""
    high = (1 << STRIDE_BITS) - 1
    return operand(meaning, high, unit="byte", align=align, default=default)


def flag(meaning: str, *, default: int = 0) -> Any:
    """Declare a field of one bit."""
    return operand(meaning, Flag, default=default)


_Limits = tuple[tuple[Spec, int, int], ...]
_LIMITS: dict[tuple[type, str], _Limits] = {}


def _limits(kind: type[Command], config: CoreConfig) -> _Limits:
    """Fields with their ranges; kept by digest, since programs have very many commands."""
    key = (kind, config.digest)
    if key not in _LIMITS:
        _LIMITS[key] = tuple((spec, spec.low, spec.most(config)) for spec in kind.specs())
    return _LIMITS[key]


_QUEUES_MASK = (1 << len(Queue)) - 1


@dataclass(frozen=True, kw_only=True)
class Command:
    """Base of all commands.

    A command starts when its queue's earlier commands are complete and, from every queue in
    `wait`, one more token has come; it takes these.  When it is complete it gives one token to
    every queue in `signal`.  Tokens are counted for each pair of queues, so the n-th wait of one
    queue for another is met by the n-th signal: who waits for whom is known before running.
    """

    OPCODE: ClassVar[int]
    QUEUE: ClassVar[Queue]
    NAME: ClassVar[str]

    wait: int = operand(
        "queues of each of which a token is taken, a bit each", _QUEUES_MASK, default=0
    )
    signal: int = operand(
        "queues to each of which a token is given, a bit each", _QUEUES_MASK, default=0
    )

    @classmethod
    @cache
    def specs(cls) -> tuple[Spec, ...]:
        """Field table, in the order of packing."""
        missing = dataclasses.MISSING
        return tuple(
            Spec(
                name=f.name,
                required=f.default is missing,
                default=0 if f.default is missing else int(f.default),
                **f.metadata,
            )
            for f in dataclasses.fields(cls)
        )

    @classmethod
    def widths(cls, config: CoreConfig) -> dict[str, int]:
        """Bits of every field, in the order in which they follow the opcode from bit 0 up."""
        return {spec.name: spec.bits(config) for spec in cls.specs()}

    def validate(self, config: CoreConfig) -> None:
        """Raise ValueError that names the field and its range if the core cannot execute this."""
        for spec, low, most in _limits(type(self), config):
            value = getattr(self, spec.name)
            if not low <= value <= most or (spec.align > 1 and value % spec.align):
                spec.check(int(value), config)
        for name in ("wait", "signal"):
            if getattr(self, name) & self.QUEUE.bit:
                raise ValueError(
                    f"{name}: names its own queue {self.QUEUE.name.lower()}, which is in order"
                )
        self.check(config)

    def check(self, config: CoreConfig) -> None:
        """Raise ValueError if fields do not fit each other."""

    def accesses(self, config: CoreConfig, lists: Mapping[int, Window]) -> Accesses:
        """What the command reads and writes at most; `lists` says what the list buffers hold."""
        raise NotImplementedError

    def follow(self, lists: ListState) -> None:
        """Bring up to date what the list buffers hold behind this command."""

    def array_cycles(self, config: CoreConfig) -> int:
        """Cycles in which the whole array is busy, with rows and columns as many as allowed."""
        return 0

    def values(self) -> dict[str, int]:
        """Fields as plain integers."""
        return {spec.name: int(getattr(self, spec.name)) for spec in self.specs()}

    @classmethod
    def from_values(cls, values: Mapping[str, int]) -> Self:
        """Undo `values`; enumerations are restored."""
        fields: dict[str, Any] = {}
        for spec in cls.specs():
            if spec.name in values:
                value = int(values[spec.name])
                fields[spec.name] = spec.choices(value) if spec.choices else value
        return cls(**fields)

    def replace(self, **changes: int) -> Self:
        """Return a copy with some fields changed."""
        return dataclasses.replace(self, **changes)
