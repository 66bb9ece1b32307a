"""`disc run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from disc.cli.common import (
    CalibrationOption,
    CheckpointOption,
    ConfigOption,
    JsonOption,
    LatencyOption,
    SeedOption,
    console,
    print_json,
    print_table,
    progress,
)
from disc.config import load


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def run(
        kind: Annotated[
            str,
            typer.Option(
                help="dense; ctr: fewer rows; st: kept columns; both; refresh: make the masks."
            ),
        ] = "both",
        layer: Annotated[
            int | None,
            typer.Option(help="Only this transformer block, from 0; by default all.", min=0),
        ] = None,
        fraction: Annotated[
            float, typer.Option(help="Of the tokens that ctr and both compute.")
        ] = 0.25,
        alpha: Annotated[
            float, typer.Option(help="Masks keep probabilities of at least alpha / N.")
        ] = 2.0,
        hot: Annotated[
            bool, typer.Option("--hot", help="The MLP's hot columns only; refresh finds them.")
        ] = False,
        fill: Annotated[
            bool, typer.Option("--fill", help="Masks are filled up to the fullest bank.")
        ] = False,
        config: ConfigOption = "tiny",
        checkpoint: CheckpointOption = "digits-256",
        seed: SeedOption = 0,
        latency: LatencyOption = 20,
        stall: Annotated[
            float,
            typer.Option(help="Probability with which DRAM holds up a transfer.", min=0, max=0.95),
        ] = 0.0,
        plot: Annotated[
            Path | None, typer.Option(help="Picture of the cycles to write: .svg or .png.")
        ] = None,
        predict: Annotated[
            bool,
            typer.Option("--predict", help="Ask the cycle model only: no RTL, no comparison."),
        ] = False,
        calibration: CalibrationOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Run a denoising step of the trained model on the complete core's RTL.

        The blocks are lowered to a program, which the generated Verilog executes under Verilator
        with simulated DRAM behind it.  Everything that the step leaves in DRAM is compared with
        the integer golden core.  Exit status 1 if anything differs.

        `array`: share of all cycles in which the multipliers worked, imbalance of banks deducted;
        `array_...` says where the others went (docs/architecture.md, Counters).  The
        second table has the same for each kind of command, from its start to its end.
        `predicted_cycles` are those of the cycle model, where the configuration has a calibration.
        """
        from disc.output import writable_directory, write_files
        from golden.plotting import FORMATS, rendered
        from hw_tests.core.measure import predict_step, run_step
        from hw_tests.core.plot import plot_cycles
        from sim_models.engine import chosen_calibration

        chosen = load(config)
        suffix = plot.suffix.removeprefix(".") if plot else ""
        if plot and suffix not in FORMATS:
            raise ValueError(f"plot: must end in .{' or .'.join(FORMATS)}, got {plot}")
        if plot:
            writable_directory(plot.parent)
        options: dict[str, Any] = {
            "checkpoint": checkpoint,
            "layers": slice(None) if layer is None else slice(layer, layer + 1),
            "fraction": fraction,
            "alpha": alpha,
            "hot": hot,
            "fill": fill,
            "seed": seed,
            "latency": latency,
        }
        if predict:
            for name, given in (("plot", plot), ("stall", stall)):
                if given:
                    raise ValueError(f"{name}: needs the RTL, so it does not go with predict")
            fitted = chosen_calibration(chosen, calibration)
        elif calibration is not None:
            raise ValueError("calibration: needs predict")
        with progress() as shown:
            task = shown.add_task("")
            options["tell"] = lambda text: shown.update(task, description=text)
            if predict:
                predicted = predict_step(chosen, kind, calibration=fitted, **options)
                _print(predicted.report, predicted.by_command, as_json, {})
                return
            measured = run_step(chosen, kind, stall=stall, **options)
        report, kinds = measured.report, measured.by_command
        if plot:
            finding = (
                f"{checkpoint}, {kind}, {chosen.name}: multipliers work {report['array']:.1%} "
                "of the time"
            )
            picture = rendered(plot_cycles(measured.result.counters, finding), suffix)
            write_files({plot: picture})
        _print(report, kinds, as_json, {"counters": measured.result.counters})


def _print(
    report: dict[str, Any],
    kinds: dict[str, dict[str, float]],
    as_json: bool,
    more: dict[str, Any],
) -> None:
    if as_json:
        print_json(report | {"by_command": kinds} | more)
        return
    print_table("A step on the complete core", report)
    table = Table(title="Commands", title_justify="left")
    for name in ("command", "number", "cycles", "array", "balance"):
        table.add_column(name, justify="left" if name == "command" else "right")
    for name, own in kinds.items():
        shares = [f"{own[k]:.2%}" if k in own else "" for k in ("array", "balance")]
        table.add_row(name, f"{own['commands']:,}", f"{own['cycles']:,}", *shares)
    console.print(table)
