"""What a program costs at least, without running it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from disc.config import CoreConfig
from disc.lower.layout import Layout
from disc.program import Program
from disc.program.access import ListState, Space
from disc.program.encoding import WORD_BYTES


@dataclass(frozen=True)
class Count:
    """Commands, traffic and ideal array cycles, with all lists as long as the program allows."""

    commands: dict[str, int]
    """By name."""
    read: dict[str, int]
    """Bytes of DRAM by what the layout says they are."""
    written: dict[str, int]
    """The same."""
    array_cycles: int
    """With every bank busy in every cycle, all columns kept and nothing waited for."""

    def to_json(self) -> dict[str, Any]:
        """Return numbers and totals by name."""
        return {
            "commands": sum(self.commands.values()),
            "commands_by_name": self.commands,
            "dram_bytes_read": sum(self.read.values()),
            "dram_bytes_written": sum(self.written.values()),
            "read_by_kind": self.read,
            "written_by_kind": self.written,
            "array_cycles": self.array_cycles,
        }


def count(program: Program, layout: Layout, config: CoreConfig) -> Count:
    """Count a program; its own words are read as well."""
    commands: Counter[str] = Counter()
    read: Counter[str] = Counter({"program": len(program.commands) * WORD_BYTES})
    written: Counter[str] = Counter()
    lists = ListState()
    cycles = 0
    for command in program.commands:
        commands[command.NAME] += 1
        cycles += command.array_cycles(config)
        for access in command.accesses(config, lists.windows):
            if access.space is not Space.DRAM:
                continue
            buffer = program.buffer_at(access.start)
            group = layout.groups[buffer.name] if buffer else "unknown"
            (written if access.write else read)[group] += access.units
        command.follow(lists)
    return Count(dict(commands), dict(read), dict(written), cycles)
