"""The tables of `docs/program.md`, made from the declarations.

::

    python -m disc.program.reference        # rewrites the tables in docs/program.md
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from disc.config import CoreConfig, preset
from disc.program.encoding import COMMANDS, layout
from disc.program.fields import ADDRESS_BITS, Command, Flag, Spec

PAGE = Path(__file__).parents[2] / "docs" / "program.md"
BEGIN, END = "<!-- tables -->", "<!-- end of tables -->"
EXAMPLE = "edge"
"""Preset for which widths are shown."""


def _range(spec: Spec, config: CoreConfig) -> str:
    if spec.choices is Flag:
        return "0, 1"
    if spec.choices:
        return ", ".join(f"{int(c)} {c.name}" for c in spec.choices)
    most = spec.most(config)
    if spec.address:
        text = f"0 … 2^{ADDRESS_BITS} - 1"
    else:
        power = most.bit_length()
        short = f"2^{power} - 1" if most == (1 << power) - 1 and power > 12 else str(most)
        text = f"{spec.low} … {short}"
    if spec.align > 1:
        text += f", multiples of {spec.align}"
    return text


def _first_lines(kind: type[Command]) -> str:
    return " ".join(inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0].split())


def _more_lines(kind: type[Command]) -> list[str]:
    parts = inspect.cleandoc(kind.__doc__ or "").split("\n\n")[1:]
    return [" ".join(part.split()) + "\n" for part in parts]


def command_reference(kind: type[Command], config: CoreConfig) -> str:
    """Return heading, meaning and field table of one command."""
    places = layout(kind, config)
    lines = [
        f"### {kind.NAME}",
        "",
        f"Opcode {kind.OPCODE}, queue {kind.QUEUE.name.lower()}. {_first_lines(kind)}",
        "",
        *_more_lines(kind),
    ]
    rows = []
    for spec in kind.specs()[2:]:
        start, bits = places[spec.name]
        meaning = spec.meaning + (f" ({spec.unit})" if spec.unit else "")
        default = "" if spec.required else f"; default {spec.default}"
        rows.append(
            f"| `{spec.name}` | {start + bits - 1}:{start} | {_range(spec, config)}{default} "
            f"| {meaning} |"
        )
    if rows:
        lines += ["| field | bits | range | meaning |", "|---|---|---|---|", *rows, ""]
    return "\n".join(lines)


def reference(config: CoreConfig) -> str:
    """Return all tables."""
    return "\n".join(command_reference(kind, config) for kind in COMMANDS)


def rewritten(page: str) -> str:
    """Return the page with today's tables."""
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), flags=re.S)
    tables = f"{BEGIN}\n\n{reference(preset(EXAMPLE))}\n{END}"
    return pattern.sub(lambda _: tables, page)


def main() -> None:
    """Rewrite the page."""
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
