"""What data decide about the work of a command, and what it moves over the bus."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from disc.config import CoreConfig
from disc.program.access import LISTS, Access, ListState, Space, Window
from disc.program.array import Mlp
from disc.program.attend import Attend
from disc.program.fields import Command
from disc.program.fuse import MaskMode
from disc.program.load import LoadList, RowCommand
from disc.program.program import Program

__all__ = ["CommandWork", "dram_accesses", "nominal_work", "row_words"]


@dataclass(frozen=True)
class CommandWork:
    """What a command finds when its turn comes."""

    tokens: NDArray[np.int64]
    """Entries of its list buffer; none for a command without rows."""
    used: NDArray[np.bool_] | None = None
    """`attend`, `mlp` MASKED: [rows, columns] that the array takes; `mlp` has one row."""
    made: NDArray[np.bool_] | None = None
    """`attend` GENERATE: the masks made [rows, columns]."""


def row_words(access: Access, tokens: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Return the bus words of `size` bytes that each row of a DRAM access touches, [rows]."""
    rows = tokens if access.window else np.arange(access.rows)
    if access.per_row:
        rows = rows[: len(tokens)]
    start = access.start + rows * access.stride
    return (start + access.length - 1) // size - start // size + 1


def dram_accesses(command: Command, config: CoreConfig, work: CommandWork) -> list[Access]:
    """Return the regions of DRAM that a command touches; windows stand for `work.tokens`."""
    window = Window(0, 0, 0, len(work.tokens), int(work.tokens.max(initial=0)) + 1)
    accesses = command.accesses(config, dict.fromkeys(range(LISTS), window))
    return [access for access in accesses if access.space is Space.DRAM]


def nominal_work(
    program: Program, config: CoreConfig, *, density: float = 1.0, seed: int = 0
) -> list[CommandWork]:
    """Return the work of a program without its data: full lists in order, random masks.

    Parameters
    ----------
    program
        Valid for the configuration.
    config
        Of the core.
    density
        Share of the columns in a mask, in (0, 1]; each row, or the hot columns, has its own.
    seed
        Of the masks.

    Raises
    ------
    ValueError
        `density` is out of range, or a list buffer is read before it is loaded.
    """
    if not 0 < density <= 1:
        raise ValueError(f"density: must be in (0, 1], got {density}")
    rng = np.random.default_rng(seed)
    lists, found = ListState(), []
    for command in program.commands:
        tokens = np.zeros(0, np.int64)
        if isinstance(command, RowCommand) and not command.values().get("single"):
            window = command.window(lists.windows)
            tokens = window.first + np.arange(window.rows)
        command.follow(lists)
        if isinstance(command, LoadList):
            window = lists.windows[command.list]
            tokens = window.first + np.arange(window.rows)
        used = made = None
        if isinstance(command, Attend | Mlp) and command.mode != MaskMode.DENSE:
            rows = len(tokens) if isinstance(command, Attend) else 1
            mask = rng.random((rows, command.columns)) < density
            if command.mode == MaskMode.MASKED:
                used = mask
            elif isinstance(command, Attend):
                made = mask
        found.append(CommandWork(tokens, used, made))
    return found
