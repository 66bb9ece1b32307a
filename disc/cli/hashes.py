"""`disc hashes`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from disc.cli.common import (
    CheckpointOption,
    JsonOption,
    SeedOption,
    console,
    print_json,
    progress,
)
from disc.output import writable_directory, write_files


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def hashes(
        checkpoint: CheckpointOption = "digits-256",
        alpha: Annotated[
            float, typer.Option(help="Softmax threshold relative to the uniform probability 1/N.")
        ] = 0.5,
        split: Annotated[
            str,
            typer.Option(help="The searched hash is scored on other layers or steps: layer, step."),
        ] = "layer",
        out: Annotated[
            Path, typer.Option(help="Directory for utilisation.json, .png and .svg.")
        ] = Path("build/hashes"),
        seed: SeedOption = 0,
        as_json: JsonOption = False,
    ) -> None:
        """Compare hashes: how full they keep the banks on the trained model's real masks.

        Utilisation is kept columns / (B x those of the fullest bank), at B = 8, 16 and 32, one row
        at a time and with banks that may run ahead over a window of rows.
        """
        from golden.capture import capture_masks
        from sim_models.banking import plot_utilisation, study

        if split not in ("layer", "step"):
            raise ValueError(f"split: must be layer or step, got {split!r}")
        writable_directory(out)
        with progress() as shown:
            task = shown.add_task("sampling the trained model")
            masks, steps = capture_masks(checkpoint, seed=seed, alpha=alpha)
            records = study(
                masks,
                split="layer" if split == "layer" else "step",
                seed=seed,
                progress=lambda text: shown.update(task, description=text),
            )
            report = {
                "checkpoint": str(checkpoint),
                "alpha": alpha,
                "seed": seed,
                "steps": steps,
                "records": records,
            }
            write_files({out / "utilisation.json": json.dumps(report, indent=1) + "\n"})
            for suffix in ("png", "svg"):
                plot_utilisation(records, out / f"utilisation.{suffix}")
        if as_json:
            print_json(report)
            return
        table = Table(
            title=f"bank utilisation, {checkpoint}, density {records[0]['density']:.1%}, "
            f"held out by {split}",
            title_justify="left",
        )
        windows = sorted({record["window"] for record in records})
        for name in ("B", "hash", *(f"{w} row{'s' * (w > 1)}" for w in windows), "ideal (1 row)"):
            table.add_column(name, justify="left" if name == "hash" else "right")
        for banks in sorted({record["banks"] for record in records}):
            table.add_section()
            for name in dict.fromkeys(record["hash"] for record in records):
                mine = {r["window"]: r for r in records if (r["banks"], r["hash"]) == (banks, name)}
                table.add_row(
                    str(banks),
                    name,
                    *(f"{mine[w]['utilisation']:.3f}" for w in windows),
                    f"{mine[1]['ideal_utilisation']:.3f}",
                )
        console.print(table)
        console.print(f"written to {out}")
