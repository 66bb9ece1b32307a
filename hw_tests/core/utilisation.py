"""Where the cycles of a program went, from the counters of the core."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from disc.config import CoreConfig
from disc.program import Attend, Command, MaskMode, Mlp, Program, Queue
from hw_tests.core.simulate import CoreResult

__all__ = [
    "ArrayCycles",
    "QueueCycles",
    "array_cycles",
    "by_command",
    "kind_name",
    "queue_cycles",
    "utilisation",
]


@dataclass(frozen=True)
class ArrayCycles:
    """Cycles of the multiplier array; their sum is the program's."""

    dot: float
    """Kept columns spread evenly over the banks: the balanced ideal."""
    axpy: float
    """The same for the second half of the operation."""
    imbalance: float
    """More, because a row waits for its fullest bank."""
    no_room: int
    """A row could go on, but the queue of its results is full."""
    no_row: int
    """A command is in the engine, and no row is ready: listing, filling, draining."""
    between: int
    """A command of the queue is in progress outside of the engine: starting, last writes."""
    blocked: int
    """The next command waits for a token: for data, or for room."""
    nothing: int
    """There is no next command yet, or none any more."""

    @property
    def total(self) -> float:
        """Cycles of the program."""
        return sum(asdict(self).values())


@dataclass(frozen=True)
class QueueCycles:
    """Cycles of a queue; their sum is the program's."""

    working: int
    waiting_data: int
    waiting_space: int
    blocked: int
    nothing: int


def queue_cycles(counters: Mapping[str, Any], queue: Queue) -> QueueCycles:
    """Return what a queue did."""
    own, cycles = counters[queue.name.lower()], counters["cycles"]
    waiting = own["waiting_data"] + own["waiting_space"]
    return QueueCycles(
        own["busy"] - waiting,
        own["waiting_data"],
        own["waiting_space"],
        own["blocked"],
        cycles - own["busy"] - own["blocked"],
    )


def array_cycles(counters: Mapping[str, Any]) -> ArrayCycles:
    """Return what the array did.

    A row's dot and axpy walk the same columns, so both lose the same share by imbalance.
    """
    engine, queue = counters["engine"], counters["array"]
    places = engine["kept"] + engine["imbalance"]
    even = engine["kept"] / places if places else 1.0
    return ArrayCycles(
        dot=engine["dot"] * even,
        axpy=engine["axpy"] * even,
        imbalance=(engine["dot"] + engine["axpy"]) * (1 - even),
        no_room=engine["no_room"],
        no_row=engine["no_row"],
        between=queue["busy"] - engine["cycles"],
        blocked=queue["blocked"],
        nothing=counters["cycles"] - queue["busy"] - queue["blocked"],
    )


def utilisation(counters: Mapping[str, Any], config: CoreConfig) -> dict[str, Any]:
    """Return plain numbers: shares of the program's cycles.

    `array` counts words of operands, so elements that fill up a row's last word count as work.
    """
    cycles = counters["cycles"]
    array = array_cycles(counters)
    busy = {queue.name.lower(): counters[queue.name.lower()]["busy"] / cycles for queue in Queue}
    parts = {f"array_{name}": value / cycles for name, value in asdict(array).items()}
    places = counters["engine"]["kept"] + counters["engine"]["imbalance"]
    return {
        "cycles": cycles,
        "array": (array.dot + array.axpy) / cycles,
        "balance": counters["engine"]["kept"] / places if places else 1.0,
        "busiest": max(busy, key=busy.__getitem__),
        **{f"busy_{name}": share for name, share in busy.items()},
        **parts,
        "read_bytes": counters["read_words"] * config.bus.word_bytes,
        "write_bytes": counters["write_words"] * config.bus.word_bytes,
        "bus_read": counters["read_words"] / cycles,
        "bus_write": counters["write_words"] / cycles,
    }


def kind_name(command: Command) -> str:
    """Return a command's name, with the mode if it uses or makes a mask."""
    sparse = isinstance(command, Attend | Mlp) and command.mode != MaskMode.DENSE
    return f"{command.NAME}, {command.mode.name}" if sparse else command.NAME


def by_command(result: CoreResult, program: Program) -> dict[str, dict[str, float]]:
    """Return what commands of each kind took; masked attention apart from dense.

    Of the array's commands: `array`, the cycles in which the multipliers worked over those
    between start and end, imbalance deducted; and `balance`, kept columns over places.
    """
    found: dict[str, dict[str, float]] = {}
    for index, command in enumerate(program.commands):
        start, end = result.spans[index].tolist()
        if start < 0:
            continue
        own = found.setdefault(kind_name(command), {"commands": 0, "cycles": 0})
        own["commands"] += 1
        own["cycles"] += end - start
        for key, value in result.engine.get(index, {}).items():
            key = "in_engine" if key == "cycles" else key
            own[key] = own.get(key, 0) + value
    for own in found.values():
        if "kept" in own:
            places = own["kept"] + own["imbalance"]
            own["balance"] = own["kept"] / places if places else 1.0
            own["array"] = (own["dot"] + own["axpy"]) * own["balance"] / own["cycles"]
    return found
