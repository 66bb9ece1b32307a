"""`disc sample`."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from disc import schedule as schedules
from disc.cli.common import CheckpointOption, JsonOption, print_json, print_table, progress
from disc.output import writable_directory, write_files

if TYPE_CHECKING:
    from golden.model import DiT

Method = Literal["dense", "ctr", "st", "both"]
Arithmetic = Literal["float", "integer"]


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def sample(
        checkpoint: CheckpointOption = "digits-256",
        schedule: Annotated[
            str | None,
            typer.Option(help="Shipped schedule or TOML file; default: the checkpoint's own."),
        ] = None,
        method: Annotated[
            str, typer.Option(help="What of the schedule to use: dense, ctr, st, both.")
        ] = "both",
        arithmetic: Annotated[
            str, typer.Option(help="float, or integer: the golden core of the hardware.")
        ] = "float",
        images: Annotated[int, typer.Option(help="How many, classes in turn.", min=1)] = 10,
        seed: Annotated[int, typer.Option(help="Of the first image; the next ones count up.")] = 0,
        guidance: Annotated[float, typer.Option(help="Classifier-free guidance; 1 is off.")] = 1.0,
        compare: Annotated[
            bool, typer.Option(help="Also sample densely in float, and compare.")
        ] = False,
        out: Annotated[Path, typer.Option(help="PNG file to write.")] = Path(
            "build/samples/sample.png"
        ),
        arrays: Annotated[
            Path | None, typer.Option(help="Also write the images as float32 to this .npy file.")
        ] = None,
        as_json: JsonOption = False,
    ) -> None:
        """Draw images with the trained model: dense, with CTR, with ST or both.

        Prints what it took relative to dense sampling of as many steps, and with --compare how
        near the images are to those.
        """
        import numpy as np

        from golden.model import load_checkpoint
        from golden.quality import psnr
        from golden.quality.runs import sample_run
        from golden.samples import sheet

        for field, value, known in (
            ("method", method, Method),
            ("arithmetic", arithmetic, Arithmetic),
        ):
            if value not in get_args(known):
                raise ValueError(f"{field}: {value!r} is not one of {', '.join(get_args(known))}")
        if seed < 0:
            raise ValueError(f"seed: {seed} is below 0")
        model = load_checkpoint(checkpoint)
        chosen = restrict(schedules.load(schedule or f"{checkpoint}-20"), method)
        for path in filter(None, (out, arrays)):
            writable_directory(path.parent)
        seeds = range(seed, seed + images)
        with progress() as shown:
            task = shown.add_task(f"sampling, {chosen.steps} steps")

            def tell(done: int, total: int) -> None:
                shown.update(task, description=f"{done} of {total} images")

            denoiser = (
                integer_denoiser(model, checkpoint, chosen) if arithmetic == "integer" else None
            )
            run = sample_run(model, chosen, seeds, guidance=guidance, denoiser=denoiser, tell=tell)
            report: dict[str, Any] = {
                "checkpoint": str(checkpoint),
                "schedule": str(chosen),
                "arithmetic": arithmetic,
                "images": images,
            }
            if run.macs:
                report |= {"work": run.work, "attention": run.attention}
            if compare:
                whole = schedules.Schedule(steps=chosen.steps, refresh=(0,))
                dense = sample_run(model, whole, seeds, guidance=guidance, tell=tell)
                report["psnr_to_dense_float_db"] = psnr(run.images, dense.images)
        picture, numbers = io.BytesIO(), io.BytesIO()
        sheet(run.images).save(picture, format="PNG", optimize=True)
        files: dict[Path, str | bytes] = {out: picture.getvalue()}
        if arrays:
            np.save(numbers, run.images)
            files[arrays] = numbers.getvalue()
        write_files(files)
        report["out"] = str(out)
        if as_json:
            print_json(report)
        else:
            print_table("samples", report)


def restrict(schedule: schedules.Schedule, method: str) -> schedules.Schedule:
    """Take CTR, ST or both out of a schedule."""
    drop: dict[str, Any] = {}
    if method in ("dense", "st"):
        drop["ctr"] = None
    if method in ("dense", "ctr"):
        drop["st"] = None
    return schedule.model_copy(update=drop)


def integer_denoiser(model: DiT, checkpoint: str, schedule: schedules.Schedule) -> Any:
    """Return what evaluates the model in the integers of the hardware."""
    from golden.integer.calibration import load_calibration
    from golden.integer.dit import IntegerDiT

    return IntegerDiT(model, load_calibration(checkpoint), schedule)
