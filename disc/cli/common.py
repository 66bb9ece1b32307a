"""What several commands share: options and printing."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

ConfigOption = Annotated[
    str,
    typer.Option("--config", help="Preset (tiny, edge, server) or a TOML file; see `disc config`."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Seed of the sampled image.", min=0)]
CheckpointOption = Annotated[
    str,
    typer.Option("--checkpoint", help="Trained model: digits-256, digits-1024 (tokens) or a file."),
]
CalibrationOption = Annotated[
    Path | None,
    typer.Option("--calibration", help="From `disc calibrate`; left out: the shipped one."),
]
LatencyOption = Annotated[
    int,
    typer.Option("--latency", help="Cycles that DRAM takes for a request.", min=1, max=60000),
]

# Into a pipe or a log nothing says how wide it is; wide enough then for every table here.
_WIDTH = None if sys.stdout.isatty() else 120
console = Console(width=_WIDTH)
messages = Console(stderr=True)


def print_json(data: Mapping[str, Any]) -> None:
    """Print a JSON document and nothing else on standard output."""
    print(json.dumps(data, indent=2))


def print_table(title: str, rows: Mapping[str, Any]) -> None:
    """Print names and values."""
    table = Table(title=title, show_header=False, title_justify="left")
    for name, value in rows.items():
        table.add_row(name, _text(value))
    console.print(table)


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


@contextmanager
def progress() -> Iterator[Progress]:
    """Show what is going on, on standard error, and only on a terminal."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=messages, disable=not messages.is_terminal) as shown:
        yield shown
