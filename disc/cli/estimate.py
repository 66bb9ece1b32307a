"""`disc estimate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from disc.cli.common import CalibrationOption, ConfigOption, JsonOption, console, print_json
from disc.config import CoreConfig, load
from disc.output import writable_directory

if TYPE_CHECKING:
    from sim_models.estimate import Report, Step


def report_for(
    config: CoreConfig, model: str, resolution: int, step: Step, calibration: Path | None = None
) -> Report:
    """Estimate a network with the calibrated engine model."""
    from sim_models.engine import EngineModel, chosen_calibration
    from sim_models.estimate import estimate
    from sim_models.networks import get_network

    network = get_network(model, resolution)
    fitted = chosen_calibration(config, calibration)
    engine = EngineModel.calibrated(config, fitted)
    return estimate(network, config, engine, step, calibration=fitted)


def print_report(report: Report) -> None:
    """Print a report as tables."""
    network = report.network
    table = Table(
        title=f"{network.name} at {network.resolution_px} px, one denoising step "
        f"on {report.config.name} ({report.config.digest})",
        title_justify="left",
    )
    for name in ("operator", "time µs", "share", "bound by", "GMAC", "MB", "utilisation", "basis"):
        table.add_column(name, justify="left" if name in ("operator", "basis") else "right")
    for op in sorted(report.operators, key=lambda op: -op.time_us):
        table.add_row(
            op.name,
            f"{op.time_us:,.1f}",
            f"{op.time_us / report.time_us:.1%}",
            op.bound,
            f"{op.macs / 1e9:,.2f}",
            f"{op.bytes / 1e6:,.1f}",
            f"{op.utilisation:.1%}",
            op.basis,
        )
    table.add_section()
    table.add_row(
        "total",
        f"{report.time_us:,.1f}",
        "",
        "",
        f"{report.macs / 1e9:,.2f}",
        f"{report.bytes / 1e6:,.1f}",
        f"{report.utilisation:.1%}",
        "",
    )
    console.print(table)
    for basis, time_us in report.time_us_by("basis").items():
        console.print(f"{basis}: {time_us:,.1f} µs ({time_us / report.time_us:.1%})")


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def estimate(
        model: Annotated[
            str, typer.Option(help="dit-{s,b,l,xl}-{2,4,8}, pixart-sigma or digits.")
        ] = "dit-xl-2",
        resolution: Annotated[int, typer.Option(help="Edge of the image in pixels.")] = 512,
        config: ConfigOption = "server",
        density: Annotated[
            float, typer.Option(help="Fraction of key columns that ST keeps; 1 is dense.")
        ] = 1.0,
        bank_utilisation: Annotated[
            float | None,
            typer.Option(
                help="Measured kept / (B x fullest bank), from `disc hashes`; "
                "left out: that of random masks."
            ),
        ] = None,
        computed: Annotated[
            float, typer.Option(help="Fraction of tokens that CTR computes; 1 is all.")
        ] = 1.0,
        cfg: Annotated[bool, typer.Option(help="Classifier-free guidance: two branches.")] = True,
        precomputed: Annotated[
            bool, typer.Option(help="Leave out what depends on timestep or prompt alone.")
        ] = False,
        calibration: CalibrationOption = None,
        plot: Annotated[
            Path | None, typer.Option(help="Write a latency plot here (.png or .svg).")
        ] = None,
        as_json: JsonOption = False,
    ) -> None:
        """Estimate latency of one denoising step of a whole network, operator by operator.

        Attention uses a cycle model calibrated with RTL counts; the other operators are plain
        formulas on sizes.  The column *basis* says which is which; see docs/performance-model.md.
        """
        from sim_models.estimate import Step, plot_latency

        chosen = load(config)
        step = Step(density, bank_utilisation, computed, cfg, precomputed)
        report = report_for(chosen, model, resolution, step, calibration)
        if plot is not None:
            writable_directory(plot.parent)
            plot_latency(report, plot)
        if as_json:
            print_json(report.to_json())
        else:
            print_report(report)
