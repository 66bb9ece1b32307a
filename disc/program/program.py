"""A program: commands in fetch order, and the names of what lies in DRAM."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from itertools import pairwise

from disc.config import CoreConfig
from disc.hashing import BankHash
from disc.program.fields import ADDRESS_BITS, Command

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


class BufferKind(Enum):
    """What a buffer holds before the program runs, and whether it matters behind it."""

    INPUT = "input"
    """Written by the host."""
    CONSTANT = "constant"
    """Weights, constants, tables."""
    STATE = "state"
    """Left by an earlier program, or by the host before the first."""
    SCRATCH = "scratch"
    """Nothing; a program writes it before it reads it."""
    OUTPUT = "output"
    """Nothing; the host reads it."""

    @property
    def defined(self) -> bool:
        """Whether it may be read at once."""
        return self in (BufferKind.INPUT, BufferKind.CONSTANT, BufferKind.STATE)


@dataclass(frozen=True)
class Buffer:
    """A named range of DRAM."""

    name: str
    address: int
    size: int
    """Bytes."""
    kind: BufferKind

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ValueError(f"buffer: name must match {NAME.pattern}, got {self.name!r}")
        limit = 1 << ADDRESS_BITS
        if self.size < 1 or not 0 <= self.address <= limit - self.size:
            raise ValueError(
                f"buffer {self.name}: must lie in [0, {limit}), got address {self.address}, "
                f"size {self.size}"
            )

    @property
    def end(self) -> int:
        """First byte behind it."""
        return self.address + self.size


@dataclass(frozen=True)
class Program:
    """Commands, buffers and hash; equal programs do the same."""

    commands: tuple[Command, ...]
    buffers: tuple[Buffer, ...] = ()
    """By ascending address, apart from each other."""
    hash_rows: tuple[int, ...] | None = field(default=None)
    """The matrix H of the bank hash, see `BankHash`; None is modulo."""

    def __post_init__(self) -> None:
        for before, after in pairwise(self.buffers):
            if before.end > after.address:
                raise ValueError(
                    f"buffer {after.name}: at {after.address:#x}, but {before.name} ends at "
                    f"{before.end:#x}"
                )
        if len({b.name for b in self.buffers}) != len(self.buffers):
            raise ValueError("buffers: two have the same name")

    def bank_hash(self, config: CoreConfig) -> BankHash:
        """The hash of columns to banks."""
        if self.hash_rows is None:
            return BankHash.modulo(config.array.banks, config.local_bits)
        return BankHash(config.bank_bits, config.local_bits, self.hash_rows)

    def validate(self, config: CoreConfig) -> None:
        """Raise ValueError that names command index, field and range."""
        self.bank_hash(config)
        for index, command in enumerate(self.commands):
            try:
                command.validate(config)
            except ValueError as error:
                raise ValueError(f"command {index} ({command.NAME}): {error}") from None

    @cached_property
    def _addresses(self) -> list[int]:
        return [b.address for b in self.buffers]

    @cached_property
    def by_name(self) -> dict[str, Buffer]:
        """Buffers by name."""
        return {b.name: b for b in self.buffers}

    def buffer_at(self, address: int) -> Buffer | None:
        """Buffer that holds a byte."""
        index = bisect_right(self._addresses, address) - 1
        if index >= 0 and address < self.buffers[index].end:
            return self.buffers[index]
        return None
