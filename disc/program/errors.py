"""What is wrong with a program."""

from __future__ import annotations

from collections.abc import Sequence

from disc.program.fields import Command


class ProgramError(ValueError):
    """What is wrong with a program, and where.

    Parameters
    ----------
    index
        Of the command at which it shows.
    message
        Why.
    other
        The other command of a race.
    """

    def __init__(self, index: int, message: str, other: int | None = None) -> None:
        super().__init__(message)
        self.index, self.other = index, other


def place(commands: Sequence[Command], index: int) -> str:
    """Name a command by index, kind and queue."""
    command = commands[index]
    return f"command {index} ({command.NAME}, queue {command.QUEUE.name.lower()})"


def failure(
    commands: Sequence[Command], index: int, why: str, other: int | None = None
) -> ProgramError:
    """Return the error, whose message begins with the command."""
    return ProgramError(index, f"{place(commands, index)}: {why}", other)
