"""Runs the commands of a program one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from disc.config import CoreConfig
from disc.program import (
    Attend,
    Command,
    Fence,
    Forecast,
    LoadColumns,
    LoadConstants,
    LoadList,
    LoadMasks,
    LoadRows,
    LoadTable,
    Mlp,
    Norm,
    Program,
    Project,
    Record,
    Select,
    StoreMasks,
)
from golden.executor import commands, fuse
from golden.executor.memory import Bytes, Memory

MEANING: dict[type[Command], Callable[[Any, Memory], None]] = {
    LoadList: commands.load_list,
    LoadColumns: commands.load_columns,
    LoadConstants: commands.load_constants,
    LoadTable: commands.load_table,
    LoadRows: commands.load_rows,
    LoadMasks: commands.load_masks,
    Norm: commands.norm,
    Forecast: commands.forecast_rows,
    Record: commands.record_rows,
    Project: fuse.project,
    Mlp: fuse.mlp,
    Attend: fuse.attend,
    StoreMasks: commands.store_masks,
    Select: commands.select,
    Fence: lambda command, memory: None,
}


def step(command: Command, memory: Memory, index: int = 0) -> None:
    """Execute one command; errors name its index."""
    try:
        MEANING[type(command)](command, memory)
    except ValueError as error:
        raise ValueError(f"command {index} ({command.NAME}): {error}") from None


def execute(
    program: Program, config: CoreConfig, dram: Bytes, *, order: Iterable[int] | None = None
) -> Bytes:
    """Execute a program.

    Parameters
    ----------
    program
        Valid for the configuration; `disc.program.check` says whether it is race-free.
    config
        Sizes and number formats.
    dram
        Memory image, from address 0.
    order
        Indices of the commands in the order of execution; fetch order by default.

    Returns
    -------
    The image behind the program.

    Raises
    ------
    ValueError
        A command is not valid, touches memory that is not there or was never written, or an operand
        leaves its format; with the command's index.
    """
    program.validate(config)
    memory = Memory(config, program.bank_hash(config), np.array(dram, dtype=np.uint8))
    for index in range(len(program.commands)) if order is None else order:
        step(program.commands[index], memory, index)
    return memory.dram
