"""`disc calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from disc.cli.common import ConfigOption, JsonOption, console, print_json, progress
from disc.config import load
from disc.output import write_files


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def calibrate(
        config: ConfigOption = "tiny",
        out: Annotated[Path, typer.Option(help="Calibration file to write (.json).")] = Path(
            "build/calibration.json"
        ),
        seed: Annotated[int, typer.Option(help="Seed of the synthetic masks.", min=0)] = 0,
        as_json: JsonOption = False,
    ) -> None:
        """Fit the engine's cycle model to RTL runs and judge it on masks held out.

        The fit uses synthetic masks only; held out are other shapes, densities and head dimensions,
        and the trained model's real masks.  The file records what was measured, on which
        configuration and design, and with which tools.
        """
        from hw_tests.calibrate import calibrate as run

        chosen = load(config)
        with progress() as shown:
            task = shown.add_task("")
            result = run(chosen, seed=seed, tell=lambda text: shown.update(task, description=text))
        write_files({out: result.to_json()})
        if as_json:
            print_json({"id": result.id, "out": str(out), "errors": result.errors})
            return
        table = Table(title=f"{result.id}: error of the cycle model", title_justify="left")
        for name in ("masks", "runs", "mean error", "worst error"):
            table.add_column(name, justify="left" if name == "masks" else "right")
        for split, error in result.errors.items():
            table.add_row(
                split,
                f"{error['samples']:.0f}",
                f"{error['mean_error']:+.3%}",
                f"{error['worst_error']:+.3%}",
            )
        console.print(table)
        console.print(f"written to {out}")
