"""`disc inspect`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from disc.cli.common import (
    CheckpointOption,
    JsonOption,
    SeedOption,
    console,
    print_json,
    print_table,
    progress,
)
from disc.output import writable_directory, write_files
from disc.schedule import CTRConfig, Schedule, STConfig, load

if TYPE_CHECKING:
    from golden.inspect.plot_work import Saving, Size
    from golden.inspect.study import Study
    from sim_models.networks import Network

_GROUPS = {"self.qkv": "projection", "self.out": "projection", "cross.kv": "prompt"}
_CAPTION = ("embedding.caption1", "embedding.caption2")
_OWN = {"self": "attention", "cross": "cross-attention"}


def kind_of(operator: str) -> str:
    """Kind of work, as in `golden.inspect.work.KINDS`, of an operator of `sim_models.networks`."""
    if operator in _CAPTION:
        return "prompt"
    if operator.startswith("embedding.timestep"):
        return "conditioning"
    group = operator.partition(".")[0]
    return _GROUPS.get(operator) or _OWN.get(group, group)


def network_work(network: Network) -> dict[str, float]:
    """Return the MACs of a network's dense step by kind, without guidance."""
    from sim_models.networks import operators

    work: dict[str, float] = {}
    for op in operators(network):
        if op.macs:
            kind = kind_of(op.name)
            work[kind] = work.get(kind, 0) + op.macs
    return work


def known_sizes() -> list[Size]:
    """Return the networks whose work is shown.

    128 px of the small model and 4,096 px of PixArt-Σ are those architectures at a resolution for
    which no weights exist.
    """
    from golden.inspect.plot_work import Size
    from sim_models.networks import get_network

    digits, pixart = get_network("digits", 64), get_network("pixart-sigma", 2048)
    networks = {
        "digits": [
            get_network("digits", 32),
            digits,
            replace(digits, resolution_px=128, latent_px=128),
        ],
        "DiT-XL/2": [get_network("dit-xl-2", px) for px in (256, 512)],
        "PixArt-Σ": [
            *(get_network("pixart-sigma", px) for px in (512, 1024)),
            pixart,
            replace(pixart, resolution_px=4096, latent_px=512),
        ],
    }
    return [
        Size(name, network.resolution_px, network.tokens, network_work(network))
        for name, members in networks.items()
        for network in members
    ]


def derived_savings(study: Study, sizes: list[Size]) -> list[Saving]:
    """Apply the study's per-step use of its work to the dense work of PixArt-Σ."""
    from golden.inspect.plot_work import Saving
    from golden.inspect.work import reduced, savings

    return [
        Saving(
            size.model,
            size.resolution_px,
            size.tokens,
            savings(size.work, reduced(size.work, study.accelerated.work.uses)),
            measured=False,
        )
        for size in sizes
        if size.model == "PixArt-Σ"
    ]


def chosen_schedule(
    name: str | None,
    steps: int | None,
    reuse: float | None,
    alpha: float | None,
    every: int | None,
    mask_every: int | None,
) -> Schedule:
    """Return the schedule that the options describe, or raise `ValueError` naming the option."""
    parts = {"reuse": reuse, "alpha": alpha, "every": every, "mask-every": mask_every}
    given = [f"--{option}" for option, value in parts.items() if value is not None]
    if name is None:
        reuse = 1.0 if reuse is None else reuse
        if not 0 <= reuse <= 1:
            raise ValueError(f"reuse: {reuse} is outside 0..1")
        return Schedule.periodic(
            20 if steps is None else steps,
            every=3 if every is None else every,
            mask_every=2 if mask_every is None else mask_every,
            ctr=CTRConfig(reuse=reuse) if reuse != 0 else None,
            st=STConfig(alpha=0.5 if alpha is None else alpha),
        )
    if given:
        raise ValueError(
            f"schedule: {name!r} is given together with {', '.join(given)}; give one or the other"
        )
    schedule = load(name)
    if steps not in (None, schedule.steps):
        raise ValueError(f"steps: {steps} differs from the {schedule.steps} of schedule {name!r}")
    return schedule


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def inspect(
        checkpoint: CheckpointOption = "digits-256",
        seed: SeedOption = 0,
        steps: Annotated[
            int | None, typer.Option(help="Denoising steps, at least 2; 20 if left out.")
        ] = None,
        out: Annotated[
            Path, typer.Option(help="Directory for seven figures and inspect.json.")
        ] = Path("build/inspect"),
        schedule: Annotated[
            str | None, typer.Option(help="Shipped schedule or a TOML file, or else give:")
        ] = None,
        reuse: Annotated[
            float | None,
            typer.Option(help="Fraction of tokens reused between refreshes; 1 if left out."),
        ] = None,
        alpha: Annotated[
            float | None,
            typer.Option(help="Softmax threshold relative to 1/N; 0.5 if left out."),
        ] = None,
        every: Annotated[
            int | None,
            typer.Option(help="All tokens are computed every this many steps; 3 if left out."),
        ] = None,
        mask_every: Annotated[
            int | None,
            typer.Option(help="Masks are made in every this many of those; 2 if left out."),
        ] = None,
        layer: Annotated[int, typer.Option(help="Block whose attention is shown, from 0.")] = 2,
        head: Annotated[int, typer.Option(help="Head of it, from 0.")] = 1,
        step: Annotated[
            int | None,
            typer.Option(help="Step whose latent and selection are shown; left out: 13 of 20."),
        ] = None,
        everything: Annotated[
            bool,
            typer.Option(
                "--all", help="Measure savings on both shipped models (1,024 tokens: minutes)."
            ),
        ] = False,
        file_format: Annotated[
            str, typer.Option("--format", help="Of the figures: png, svg or both.")
        ] = "png",
        as_json: JsonOption = False,
    ) -> None:
        """Draw what the methods live on: similarity over steps, latents, attention, work, images.

        Samples every digit once, densely and with the schedule, and writes similarity, latent,
        attention, flops, savings, images and density as figures, with the numbers behind them in
        inspect.json.  See docs/inspect.md for what each shows.
        """
        from golden.inspect.report import document, figures, measured_savings, summary
        from golden.inspect.study import run_study
        from golden.plotting import FORMATS, rendered

        plan = chosen_schedule(schedule, steps, reuse, alpha, every, mask_every)
        if file_format not in (*FORMATS, "both"):
            raise ValueError(f"format: must be png, svg or both, got {file_format!r}")
        suffixes = FORMATS if file_format == "both" else (file_format,)
        writable_directory(out)
        with progress() as shown:
            task = shown.add_task("")

            def tell(text: str) -> None:
                shown.update(task, description=text)

            study = run_study(
                checkpoint,
                plan,
                seed=seed,
                layer=layer,
                head=head,
                step=step,
                every_checkpoint=everything,
                tell=tell,
            )
            tell("drawing")
            sizes = known_sizes()
            saved = [*measured_savings(study), *derived_savings(study, sizes)]
            drawn = figures(study, sizes, saved)
            report = document(study, sizes, saved)
            pictures = {
                out / f"{name}.{suffix}": rendered(figure, suffix)
                for name, figure in drawn.items()
                for suffix in suffixes
            }
            write_files({**pictures, out / "inspect.json": json.dumps(report) + "\n"})
        if as_json:
            print_json(report)
            return
        print_table(f"{study.name}, seed {seed}", summary(study, saved))
        console.print(f"{len(pictures)} figures and inspect.json written to {out}")
