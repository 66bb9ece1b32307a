"""What the data of a program decide about the work of its commands."""

from __future__ import annotations

import numpy as np

from disc.config import CoreConfig
from disc.program import Attend, Command, LoadList, MaskMode, Mlp, Program
from disc.program.load import RowCommand
from disc.program.work import CommandWork
from golden.executor.machine import step
from golden.executor.memory import Bytes, Memory

__all__ = ["observe"]


def observe(program: Program, config: CoreConfig, dram: Bytes) -> list[CommandWork]:
    """Execute a program and return the work of each command.

    Raises
    ------
    ValueError
        As `execute` does.
    """
    program.validate(config)
    memory = Memory(config, program.bank_hash(config), np.array(dram, dtype=np.uint8))
    return [_observed(command, memory, i) for i, command in enumerate(program.commands)]


def _observed(command: Command, memory: Memory, index: int) -> CommandWork:
    tokens = np.zeros(0, np.int64)
    if isinstance(command, RowCommand) and not getattr(command, "single", False):
        tokens = memory.tokens(command.list)
    used = made = None
    if isinstance(command, Attend | Mlp) and command.mode == MaskMode.MASKED:
        rows = len(tokens) if isinstance(command, Attend) else 1
        used = memory.masks(command.slot, rows, command.columns)
    step(command, memory, index)
    if isinstance(command, LoadList):
        tokens = memory.tokens(command.list)
    if isinstance(command, Attend) and command.mode == MaskMode.GENERATE:
        made = memory.masks(command.slot, len(tokens), command.columns)
    return CommandWork(tokens, used, made)
