"""Layouts of commands and of the ports between sequencer and queues."""

from __future__ import annotations

from enum import IntEnum

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from disc.config import CoreConfig
from disc.program import COMMANDS, Command, Fence, Queue, layout

__all__ = ["CommandLayout", "ProgramError", "QueueLayout", "QueuePort"]


class CommandLayout(data.StructLayout):
    """A command of one kind as it lies in its word, the opcode at bit 0."""

    def __init__(self, kind: type[Command], config: CoreConfig):
        super().__init__({name: bits for name, (_, bits) in layout(kind, config).items()})


class QueueLayout(data.UnionLayout):
    """A command of a queue: `header` (opcode, wait, signal), or by the name of its kind."""

    def __init__(self, queue: Queue, config: CoreConfig):
        # A fence has no fields of its own, and never reaches a queue.
        kinds = [kind for kind in COMMANDS if kind.QUEUE is queue and kind is not Fence]
        fields = {kind.NAME: CommandLayout(kind, config) for kind in kinds}
        super().__init__({"header": CommandLayout(Fence, config), **fields})


class QueuePort(wiring.Signature):
    """From the sequencer to the unit that executes a queue.

    A command that is accepted has started.  The next one is offered when the unit says `done`, for
    one cycle; with it `failed` if the command could not be executed, which stops the program.
    """

    def __init__(self, queue: Queue, config: CoreConfig):
        super().__init__(
            {
                "command": Out(stream.Signature(QueueLayout(queue, config))),
                "done": In(1),
                "failed": In(1),
            }
        )


class ProgramError(IntEnum):
    """Why a program stopped."""

    NONE = 0
    """It did not, or it is complete."""
    ADDRESS = 1
    """The program does not lie at a multiple of a command's bytes."""
    ZERO = 2
    """A word of zeros: the program is shorter than was said."""
    OPCODE = 3
    """No command has this opcode."""
    PADDING = 4
    """Bits behind the last field are set, as in a program for another configuration."""
    TOKENS = 5
    """`wait` or `signal` names the command's own queue, or a fence has any."""
    OVERFLOW = 6
    """More than 255 tokens from one queue to another."""
    DEADLOCK = 7
    """A command waits for a token that none of those ahead of it gives."""
    FAILED = 8
    """A unit could not execute the command."""
