"""`disc config`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from disc.cli.common import ConfigOption, JsonOption, print_json, print_table
from disc.config import load
from disc.output import write_files


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def config(
        config: ConfigOption = "tiny",
        out: Annotated[
            Path | None, typer.Option(help="Write it as TOML, to be edited and passed as --config.")
        ] = None,
        as_json: JsonOption = False,
    ) -> None:
        """Show a configuration and what follows from it, or write it as TOML."""
        chosen = load(config)
        if out is not None:
            write_files({out: chosen.to_toml()})
        derived = {
            "digest": chosen.digest,
            "macs_per_core": chosen.macs_per_core,
            "peak_tops": chosen.peak_tops,
            "dram_peak_gb_per_s": chosen.dram.peak_gb_per_s,
            "columns_per_bank": chosen.columns_per_bank,
            "max_beats": chosen.max_beats,
            "mask_words_per_row": chosen.mask_words_per_row,
        }
        if as_json:
            print_json({"config": chosen.model_dump(), "derived": derived})
            return
        flat: dict[str, object] = {}
        for name, value in chosen.model_dump().items():
            if isinstance(value, dict):
                flat |= {f"{name}.{field}": item for field, item in value.items()}
            else:
                flat[name] = value
        print_table(f"configuration {chosen.name}", flat | derived)
