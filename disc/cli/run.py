"""`disc run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from disc.cli.common import (
    CheckpointOption,
    ConfigOption,
    JsonOption,
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
        config: ConfigOption = "tiny",
        checkpoint: CheckpointOption = "digits-256",
        seed: SeedOption = 0,
        latency: Annotated[
            int, typer.Option(help="Cycles that DRAM takes for a request.", min=1, max=60000)
        ] = 20,
        stall: Annotated[
            float,
            typer.Option(help="Probability with which DRAM holds up a transfer.", min=0, max=0.95),
        ] = 0.0,
        plot: Annotated[
            Path | None, typer.Option(help="Picture of the cycles to write: .svg or .png.")
        ] = None,
        as_json: JsonOption = False,
    ) -> None:
        """Run a denoising step of the trained model on the complete core's RTL.

        The blocks are lowered to a program, which the generated Verilog executes under Verilator
        with simulated DRAM behind it.  Everything that the step leaves in DRAM is compared with
        the integer golden core.  Exit status 1 if anything differs.

        `array`: share of all cycles in which the multipliers worked, imbalance of banks deducted;
        `array_...` says where the others went (docs/architecture.md, Counters).  The
        second table has the same for each kind of command, from its start to its end.
        """
        from disc.output import writable_directory, write_files
        from golden.plotting import FORMATS, rendered
        from hw_tests.core.plot import plot_cycles
        from hw_tests.core.simulate import CoreJob, build_core, simulate
        from hw_tests.core.trained import trained_step
        from hw_tests.core.utilisation import by_command, utilisation

        chosen = load(config)
        suffix = plot.suffix.removeprefix(".") if plot else ""
        if plot and suffix not in FORMATS:
            raise ValueError(f"plot: must end in .{' or .'.join(FORMATS)}, got {plot}")
        if plot:
            writable_directory(plot.parent)
        with progress() as shown:
            task = shown.add_task("golden model and program")
            layers = slice(None) if layer is None else slice(layer, layer + 1)
            step = trained_step(
                chosen,
                kind,
                checkpoint=checkpoint,
                layers=layers,
                fraction=fraction,
                alpha=alpha,
                hot=hot,
                seed=seed,
            )
            shown.update(task, description="building the simulator")
            built = build_core(chosen)
            shown.update(task, description=f"simulating {len(step.program.commands):,} commands")
            job = CoreJob(step.program, step.dram, latency, 0, stall)
            (result,) = simulate(chosen, [job], built=built, seed=seed, most_cycles=1 << 30)
        if result.error:
            raise AssertionError(
                f"the program stopped at command {result.error_index}: {result.error.name}"
            )
        step.require(result.dram)
        report: dict[str, Any] = {
            "config": chosen.name,
            "checkpoint": checkpoint,
            "kind": kind,
            "commands": len(step.program.commands),
            "equal_to_golden": True,
            **utilisation(result.counters, chosen),
            "simulated_cycles_per_second": result.counters["cycles"] / result.seconds,
        }
        if plot:
            finding = (
                f"{checkpoint}, {kind}, {chosen.name}: multipliers work {report['array']:.1%} "
                "of the time"
            )
            write_files({plot: rendered(plot_cycles(result.counters, finding), suffix)})
        kinds = by_command(result, step.program)
        if as_json:
            print_json(report | {"by_command": kinds, "counters": result.counters})
            return
        print_table("A step on the complete core", report)
        table = Table(title="Commands", title_justify="left")
        for name in ("command", "number", "cycles", "array", "balance"):
            table.add_column(name, justify="left" if name == "command" else "right")
        for name, own in kinds.items():
            shares = [f"{own[k]:.2%}" if k in own else "" for k in ("array", "balance")]
            table.add_row(name, f"{own['commands']:,}", f"{own['cycles']:,}", *shares)
        console.print(table)
