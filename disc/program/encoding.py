"""Commands as fixed-size words, and the layouts that hardware takes from here."""

from __future__ import annotations

from collections.abc import Iterable

from disc.config import COMMAND_BITS, CoreConfig
from disc.program.array import Mlp, Project
from disc.program.attend import Attend
from disc.program.fields import Command
from disc.program.load import LoadColumns, LoadConstants, LoadList, LoadMasks, LoadRows, LoadTable
from disc.program.store import Fence, Select, StoreMasks
from disc.program.vector import Forecast, Norm, Record

WORD_BITS = COMMAND_BITS
"""Bits of a command word, in memory least significant byte first."""

WORD_BYTES = WORD_BITS // 8

OPCODE_BITS = 5

COMMANDS: tuple[type[Command], ...] = (
    LoadList,
    LoadColumns,
    LoadConstants,
    LoadTable,
    LoadRows,
    LoadMasks,
    Norm,
    Forecast,
    Record,
    Project,
    Mlp,
    Attend,
    StoreMasks,
    Select,
    Fence,
)
"""All, in the order of the reference page."""

BY_NAME = {kind.NAME: kind for kind in COMMANDS}
BY_OPCODE = {kind.OPCODE: kind for kind in COMMANDS}


def layout(kind: type[Command], config: CoreConfig) -> dict[str, tuple[int, int]]:
    """Return (lowest bit, bits) of the opcode and of every field of a kind of command."""
    found = {"opcode": (0, OPCODE_BITS)}
    start = OPCODE_BITS
    for name, bits in kind.widths(config).items():
        found[name] = (start, bits)
        start += bits
    if start > WORD_BITS:
        raise ValueError(
            f"{kind.NAME}: takes {start} bits with configuration {config.name!r}, a command word "
            f"has {WORD_BITS}"
        )
    return found


def pack(command: Command, config: CoreConfig) -> int:
    """Return a command as a word; every field must lie in its range."""
    places = layout(type(command), config)
    word = command.OPCODE
    for name, value in command.values().items():
        word |= value << places[name][0]
    return word


def unpack(word: int, config: CoreConfig) -> Command:
    """Undo `pack`.

    Raises
    ------
    ValueError
        No such opcode, a field outside its range, or a padding bit that is set.
    """
    if not 0 <= word < 1 << WORD_BITS:
        raise ValueError(f"word: must be in [0, 2**{WORD_BITS}), got {word}")
    opcode = word & ((1 << OPCODE_BITS) - 1)
    kind = BY_OPCODE.get(opcode)
    if kind is None:
        known = ", ".join(map(str, sorted(BY_OPCODE)))
        raise ValueError(f"opcode: must be one of {known}, got {opcode}")
    places = layout(kind, config)
    values = {}
    for spec in kind.specs():
        start, bits = places[spec.name]
        values[spec.name] = word >> start & ((1 << bits) - 1)
        spec.check(values[spec.name], config)
    used = max(start + bits for start, bits in places.values())
    if word >> used:
        raise ValueError(f"word: bits from {used} up must be 0 for {kind.NAME}")
    return kind.from_values(values)


def encode(command: Command, config: CoreConfig) -> int:
    """Return a command as a word; raise ValueError if it is not valid for the configuration."""
    command.validate(config)
    return pack(command, config)


def decode(word: int, config: CoreConfig) -> Command:
    """Undo `encode`; raise ValueError if `encode` cannot have made the word."""
    command = unpack(word, config)
    command.validate(config)
    return command


def to_bytes(commands: Iterable[Command], config: CoreConfig) -> bytes:
    """Return commands as they lie in memory; errors name the command's index."""
    parts = []
    for index, command in enumerate(commands):
        try:
            word = encode(command, config)
        except ValueError as error:
            raise ValueError(f"command {index} ({command.NAME}): {error}") from None
        parts.append(word.to_bytes(WORD_BYTES, "little"))
    return b"".join(parts)


def from_bytes(data: bytes, config: CoreConfig) -> list[Command]:
    """Undo `to_bytes`; errors name the command's index."""
    if len(data) % WORD_BYTES:
        raise ValueError(f"program: must be a multiple of {WORD_BYTES} bytes long, got {len(data)}")
    commands = []
    for index in range(len(data) // WORD_BYTES):
        word = data[index * WORD_BYTES : (index + 1) * WORD_BYTES]
        try:
            commands.append(decode(int.from_bytes(word, "little"), config))
        except ValueError as error:
            raise ValueError(f"command {index}: {error}") from None
    return commands
