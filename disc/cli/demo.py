"""`disc demo`: what `make demo` runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from disc.cli.common import (
    ConfigOption,
    JsonOption,
    SeedOption,
    console,
    print_json,
    print_table,
    progress,
)
from disc.cli.estimate import print_report, report_for
from disc.config import load
from disc.output import writable_directory, write_files

_KEYS = ("mismatches", "cycles", "ideal_cycles", "utilisation", "density")
_LAYER = slice(2, 3)
_RUNS = {"mask made (step 10)": 10, "mask reused (step 12)": 12}


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def demo(
        out: Annotated[Path, typer.Option(help="Directory for plots and report.")] = Path(
            "build/demo"
        ),
        config: ConfigOption = "tiny",
        seed: SeedOption = 0,
        as_json: JsonOption = False,
    ) -> None:
        """Trained model to Verilog to Verilator and back, then a first whole-network estimate.

        Runs a whole transformer block of the shipped model on the complete core, a quarter of its
        tokens under masks, and one attention head on the engine in two steps, one that is dense and
        makes a sparsity mask and one that reuses it; compares all with the integer golden core to
        the bit; and estimates DiT-XL/2 at 512 px on the server preset, dense and sparse.
        """
        from golden.plotting import rendered
        from hw_tests.core.measure import run_step
        from hw_tests.core.plot import plot_cycles
        from hw_tests.crosscheck import crosscheck
        from hw_tests.crosscheck_plot import plot_head
        from sim_models.estimate import Step, plot_latency

        chosen = load(config)
        writable_directory(out)
        runs = {}
        with progress() as shown:
            task = shown.add_task("")

            def tell(text: str) -> None:
                shown.update(task, description=text)

            block = run_step(chosen, "both", layers=_LAYER, seed=seed, tell=tell)
            finding = (
                f"a block on the core: multipliers work {block.report['array']:.1%} of the time"
            )
            picture = rendered(plot_cycles(block.result.counters, finding), "png")
            write_files({out / "block.png": picture})
            for name, step in _RUNS.items():
                runs[name] = crosscheck(chosen, step=step, seed=seed, tell=tell)
                plot_head(runs[name], out / f"head_step_{step}.png")
            tell("estimating DiT-XL/2")
            reused = runs["mask reused (step 12)"]
            server = load("server")
            dense = report_for(server, "dit-xl-2", 512, Step(cfg=True))
            sparse_step = Step(density=reused.report["density"], computed_fraction=0.5, cfg=True)
            sparse = report_for(server, "dit-xl-2", 512, sparse_step)
            plot_latency(dense, out / "latency_dense.png")
            plot_latency(sparse, out / "latency_sparse.png")
        report: dict[str, Any] = {key: reused.report[key] for key in _KEYS}
        report["mismatches"] = sum(run.report["mismatches"] for run in runs.values())
        report |= {
            "block": block.report,
            "runs": {name: run.report for name, run in runs.items()},
            "estimate": {
                "dense": dense.to_json()["total"],
                "sparse": sparse.to_json()["total"] | {"step": sparse.to_json()["step"]},
            },
        }
        write_files({out / "report.json": json.dumps(report, indent=2) + "\n"})
        if as_json:
            print_json(report)
        else:
            _print(block.report, runs, dense, sparse)
            console.print(f"plots and report.json in {out}")
        if report["mismatches"]:
            raise typer.Exit(1)


def _print(block: dict[str, Any], runs: dict[str, Any], dense: Any, sparse: Any) -> None:
    shown = (
        "config",
        "checkpoint",
        "kind",
        "commands",
        "equal_to_golden",
        "cycles",
        "array",
        "balance",
        "busy_array",
    )
    print_table(
        f"Block {_LAYER.start} on the core",
        {name: block[name] for name in shown},
    )
    first = next(iter(runs.values())).report
    table = Table(
        title=f"{first['checkpoint']}, layer {first['layer']}, head {first['head']}: "
        f"RTL ({first['config']}) against the integer golden core",
        title_justify="left",
    )
    table.add_column("")
    for name in runs:
        table.add_column(name, justify="right")
    for key in (*_KEYS, "simulated_cycles_per_second"):
        values = [run.report[key] for run in runs.values()]
        table.add_row(key, *(f"{v:,.3f}" if 0 < v < 1 else f"{v:,.0f}" for v in values))
    console.print(table)
    print_report(dense)
    step = sparse.step
    console.print(
        f"the same step with {step.density:.0%} of the keys kept and {step.computed_fraction:.0%} "
        f"of the tokens computed: {sparse.time_us:,.1f} µs, {dense.time_us / sparse.time_us:.2f}x"
    )
