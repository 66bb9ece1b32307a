"""What random programs exercise, and what many together must."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from disc.config import CoreConfig
from disc.lower.layout import Layout
from disc.program import AttendEpilogue, Change, LoadList, MaskMode, Program, ProjectEpilogue
from disc.program.fields import Flag


@dataclass(frozen=True)
class RandomProgram:
    """A program with the memory that it starts from."""

    program: Program
    image: NDArray[np.uint8]
    layout: Layout


def coverage(found: RandomProgram, config: CoreConfig) -> set[str]:
    """What a program exercises."""
    seen: set[str] = set()
    lengths: dict[int, tuple[int, int]] = {}
    for command in found.program.commands:
        name, fields = command.NAME, command.values()
        seen.add(name)
        for field in ("mode", "epilogue"):
            if field in fields:
                seen.add(f"{name} {field} {getattr(command, field).name}")
        seen |= {f"{name} {s.name} {fields[s.name]}" for s in command.specs() if s.choices is Flag}
        if "columns" in fields:
            groups = "incomplete" if fields["columns"] % config.array.banks else "complete"
            seen.add(f"{name} {groups} last group")
        if "width" in fields and name not in ("forecast", "record"):
            words = "incomplete" if fields["width"] % config.array.lanes else "complete"
            seen.add(f"{name} {words} last word")
        if isinstance(command, LoadList):
            lengths[command.list] = _list_state(found, command)
        elif "list" in fields and not fields.get("single"):
            rows, held = lengths[fields["list"]]
            kind = "no rows" if not held else "all rows" if held == rows else "fewer rows"
            seen.add(f"{name} {kind}")
    return seen


def _list_state(found: RandomProgram, command: LoadList) -> tuple[int, int]:
    """Most rows of a window, and how many there are."""
    most = min(command.rows, command.tokens - command.first)
    length = int(found.image[command.dram : command.dram + 4].view("<u4")[0])
    return most, min(max(length - command.first, 0), most)


def _expected() -> frozenset[str]:
    names = {
        "load_list": "",
        "load_columns": "gw",
        "load_constants": "g",
        "load_table": "",
        "load_rows": "wr",
        "load_masks": "gr",
        "norm": "wr",
        "forecast": "r",
        "record": "r",
        "project": "gwr",
        "mlp": "gwr",
        "attend": "gwr",
        "store_masks": "gr",
        "select": "",
        "fence": "",
    }
    parts = {
        "g": ("complete last group", "incomplete last group"),
        "w": ("complete last word", "incomplete last word"),
        "r": ("no rows", "fewer rows", "all rows"),
    }
    expected = set(names)
    for name, kinds in names.items():
        expected |= {f"{name} {text}" for kind in kinds for text in parts[kind]}
    flags = {
        "attend": ("first", "last", "mark", "fill", "diagonal"),
        "mlp": ("first", "last", "fresh"),
        "load_masks": ("single",),
        "store_masks": ("single",),
        "forecast": ("hold",),
        "select": ("update",),
    }
    expected |= {
        f"{name} {flag} {value}"
        for name, group in flags.items()
        for flag in group
        for value in (0, 1)
    }
    choices: dict[str, Any] = {"mode": {"attend": MaskMode, "mlp": MaskMode, "select": Change}}
    choices["epilogue"] = {"attend": AttendEpilogue, "project": ProjectEpilogue}
    for field, kinds_of in choices.items():
        for name, kind in kinds_of.items():
            expected |= {f"{name} {field} {item.name}" for item in kind}
    return frozenset(expected)


COVERAGE = _expected()
"""What many programs together must exercise."""
