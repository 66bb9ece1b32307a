"""Programs as text: one command a line, `name field=value ...`.

::

    .hash 0x1,0x2                       # rows of H; left out: modulo
    .buffer x 0x1000 65536 state        # name, address, bytes, kind
    load_list list=0 dram=rows first=0 rows=64 tokens=256 signal=vector
    norm list=0 rows=64 dram=x+128 ...  wait=load   # comment

Numbers are decimal or 0x...; addresses may be a buffer's name with or without `+offset`;
enumerations are named in lower case; `wait` and `signal` list queues.  A field that has a default
may be left out.  `parse(format(p))` is `p`, comments apart.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from enum import IntEnum
from typing import TypeVar

from disc.program.encoding import BY_NAME
from disc.program.fields import Command, Flag, Queue, Spec
from disc.program.program import Buffer, BufferKind, Program

_MASKS = ("wait", "signal")


def format_command(command: Command, program: Program | None = None) -> str:
    """Return a command as a line; a program's buffers give names to addresses."""
    parts = [command.NAME]
    for spec in (*command.specs()[2:], *command.specs()[:2]):
        value = int(getattr(command, spec.name))
        if spec.required or value != spec.default:
            parts.append(f"{spec.name}={_format_value(spec, value, program)}")
    return " ".join(parts)


def _format_value(spec: Spec, value: int, program: Program | None) -> str:
    if spec.name in _MASKS:
        return ",".join(queue.name.lower() for queue in Queue if value & queue.bit)
    if spec.choices and spec.choices is not Flag:
        return spec.choices(value).name.lower()
    if not spec.address:
        return str(value)
    buffer = program.buffer_at(value) if program else None
    if buffer is None:
        return hex(value)
    offset = value - buffer.address
    return f"{buffer.name}+{offset}" if offset else buffer.name


def format_program(program: Program) -> str:
    """Return a program as text that `parse_program` reads."""
    lines = []
    if program.hash_rows is not None:
        lines.append(".hash " + ",".join(map(hex, program.hash_rows)))
    for b in program.buffers:
        lines.append(f".buffer {b.name} {b.address:#x} {b.size} {b.kind.value}")
    if lines:
        lines.append("")
    lines += [format_command(command, program) for command in program.commands]
    return "\n".join(lines) + "\n"


def parse_program(text: str) -> Program:
    """Read a program.

    Raises
    ------
    ValueError
        With the number of the line.  Ranges are not checked here: that takes a configuration,
        see `Program.validate`.
    """
    buffers: dict[str, Buffer] = {}
    hash_rows: tuple[int, ...] | None = None
    commands: list[Command] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            if words[0] == ".hash":
                hash_rows = _parse_hash(words)
            elif words[0] == ".buffer":
                buffer = _parse_buffer(words)
                if buffer.name in buffers:
                    raise ValueError(f"buffer {buffer.name}: declared twice")
                buffers[buffer.name] = buffer
            else:
                commands.append(_parse_command(words, buffers))
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    ordered = tuple(sorted(buffers.values(), key=lambda b: b.address))
    return Program(tuple(commands), ordered, hash_rows)


def _number(text: str, what: str) -> int:
    # int() would also take "1_0", " 1" and "-1".
    if not re.fullmatch(r"0x[0-9a-fA-F]+|\d+", text):
        raise ValueError(f"{what}: must be a decimal or 0x number, got {text!r}")
    return int(text, 0) if text.startswith("0x") else int(text)


def _parse_hash(words: list[str]) -> tuple[int, ...]:
    if len(words) != 2:
        raise ValueError(".hash: want one word of comma-separated rows")
    return tuple(_number(item, ".hash") for item in words[1].split(","))


def _parse_buffer(words: list[str]) -> Buffer:
    if len(words) != 5:
        raise ValueError(".buffer: want name, address, size and kind")
    kinds = [kind.value for kind in BufferKind]
    if words[4] not in kinds:
        raise ValueError(f".buffer: kind must be one of {', '.join(kinds)}, got {words[4]!r}")
    start, size = _number(words[2], "address"), _number(words[3], "size")
    return Buffer(words[1], start, size, BufferKind(words[4]))


def _parse_command(words: list[str], buffers: dict[str, Buffer]) -> Command:
    kind = BY_NAME.get(words[0])
    if kind is None:
        near = get_close_matches(words[0], BY_NAME, 1)
        hint = f"; do you mean {near[0]}?" if near else f"; choose {', '.join(BY_NAME)}"
        raise ValueError(f"no command {words[0]!r}{hint}")
    specs = {spec.name: spec for spec in kind.specs()}
    values: dict[str, int] = {}
    for word in words[1:]:
        name, equals, value = word.partition("=")
        if not equals:
            raise ValueError(f"{kind.NAME}: want field=value, got {word!r}")
        if name not in specs:
            raise ValueError(f"{kind.NAME}: no field {name!r}; it has {', '.join(specs)}")
        if name in values:
            raise ValueError(f"{name}: given twice")
        values[name] = _parse_value(specs[name], value, buffers)
    missing = [s.name for s in specs.values() if s.required and s.name not in values]
    if missing:
        raise ValueError(f"{kind.NAME}: {', '.join(missing)} missing")
    return kind.from_values(values)


def _parse_value(spec: Spec, text: str, buffers: dict[str, Buffer]) -> int:
    if spec.name in _MASKS:
        return sum({_choice(spec.name, item, Queue).bit for item in text.split(",")})
    if spec.choices and spec.choices is not Flag:
        return _choice(spec.name, text, spec.choices)
    if spec.choices is Flag and text not in ("0", "1"):
        raise ValueError(f"{spec.name}: must be 0 or 1, got {text!r}")
    if not spec.address or text[:1].isdigit():
        return _number(text, spec.name)
    name, plus, offset = text.partition("+")
    if name not in buffers:
        known = ", ".join(buffers) or "none"
        raise ValueError(f"{spec.name}: no buffer {name!r} declared above; there is {known}")
    return buffers[name].address + (_number(offset, spec.name) if plus else 0)


_Member = TypeVar("_Member", bound=IntEnum)


def _choice(name: str, text: str, choices: type[_Member]) -> _Member:
    found = {item.name.lower(): item for item in choices}
    if text not in found:
        raise ValueError(f"{name}: must be one of {', '.join(found)}, got {text!r}")
    return found[text]
