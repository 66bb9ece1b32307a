"""`disc quality`: work against image quality."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from disc import schedule as schedules
from disc.cli.common import CheckpointOption, JsonOption, console, messages, print_json
from disc.cli.sample import integer_denoiser
from disc.output import writable_directory, write_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from golden.quality.paired import PsnrDifference
    from golden.quality.runs import Tell
    from golden.quality.sweep import Point

StepsOption = Annotated[int, typer.Option(help="Denoising steps of the dense run.", min=1)]
ImagesOption = Annotated[int, typer.Option(help="Images a method, seeds 0, 1, 2…", min=1)]


@contextmanager
def image_progress() -> Iterator[Callable[[str], Tell]]:
    """Show images done of a run, on a terminal only."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=messages, disable=not messages.is_terminal) as shown:
        task = shown.add_task("", total=None)

        def start(text: str) -> Tell:
            shown.reset(task, description=text, total=None)
            return lambda done, total: shown.update(task, completed=done, total=total)

        yield start


def register(app: typer.Typer) -> None:
    """Add the command group."""
    group = typer.Typer(
        no_args_is_help=True, help="Work against image quality on the trained model."
    )
    for add in (_sweep, _search, _references, _ablate, _real):
        add(group)
    app.add_typer(group, name="quality")


def _sweep(group: typer.Typer) -> None:
    @group.command()
    def sweep(
        checkpoint: CheckpointOption = "digits-256",
        steps: StepsOption = 20,
        images: ImagesOption = 100,
        schedule: Annotated[
            list[str] | None,
            typer.Option(
                help="Schedule to judge, by name or TOML file; may be repeated.  Without, the "
                "shipped ones for this checkpoint and number of steps."
            ),
        ] = None,
        published: Annotated[
            bool, typer.Option(help="Also CTR and ST as published, over their thresholds.")
        ] = True,
        integer: Annotated[
            bool,
            typer.Option("--integer", help="Also dense and ours in the integers of the hardware."),
        ] = False,
        out: Annotated[
            Path, typer.Option(help="Directory for quality.csv, .json, .png and .svg.")
        ] = Path("build/quality"),
        as_json: JsonOption = False,
    ) -> None:
        """Sweep methods; table, CSV and a picture of work against quality.

        Everything is compared with the dense run of equal seeds: schedules, CTR and ST as
        published, and the rival, fewer steps of the same sampler.
        """
        from golden.model import load_checkpoint
        from golden.plotting import FORMATS, rendered, styled
        from golden.quality.plot import draw_frontiers
        from golden.quality.sweep import Planned, in_integers, rivals, sweep
        from golden.quality.sweep import published as published_plans

        model = load_checkpoint(checkpoint)
        if images <= 32:
            raise ValueError(f"images: {images} is below 33, the least for Fréchet distances")
        chosen = [schedules.load(name) for name in schedule or _shipped_for(checkpoint, steps)]
        for ours in chosen:
            if ours.steps != steps:
                raise ValueError(f"schedule: {ours.name!r} has {ours.steps} steps, not {steps}")
        writable_directory(out)
        plans = [Planned("ours", ours) for ours in chosen]
        plans += [*rivals(steps), *(published_plans(steps) if published else ())]
        if integer:
            plans += in_integers(chosen, steps)

        def core(plan: schedules.Schedule) -> Any:
            return integer_denoiser(model, checkpoint, plan)

        with image_progress() as tell:
            points, _ = sweep(model, steps, plans, range(images), integer=core, tell=tell)
        rows = [point.row() for point in points]
        title = f"{checkpoint}, {steps} steps, {images} images: quality against work"
        head = {"checkpoint": str(checkpoint), "steps": steps, "images": images}
        report = json.dumps({**head, "points": rows}, indent=1) + "\n"
        with styled():
            figure = draw_frontiers(points, title)
        pictures = {out / f"quality.{suffix}": rendered(figure, suffix) for suffix in FORMATS}
        write_files({**pictures, out / "quality.csv": _csv(rows), out / "quality.json": report})
        if as_json:
            print_json({**head, "points": rows})
        else:
            console.print(_table(title, points))
            console.print(f"wrote quality.csv, .json, .png and .svg to {out}")


def _search(group: typer.Typer) -> None:
    @group.command()
    def search(
        checkpoint: CheckpointOption = "digits-256",
        steps: StepsOption = 20,
        most_work: Annotated[float, typer.Option(help="Bound on total MACs relative to dense.")] = 1
        / 3,
        most_attention: Annotated[
            float, typer.Option(help="Bound on MACs of attention relative to dense.")
        ] = 0.25,
        runs: Annotated[int, typer.Option(help="Schedules to try at most.", min=1)] = 100,
        images: Annotated[int, typer.Option(help="Images a schedule is tried on.", min=1)] = 4,
        first_seed: Annotated[
            int, typer.Option(help="Of those images; sweeps start at 0.", min=0)
        ] = 1000,
        start: Annotated[
            str | None,
            typer.Option(help="Line to begin with, such as M.R..M..R; default: evenly spread."),
        ] = None,
        alpha: Annotated[float, typer.Option(help="ST threshold to begin with.")] = 0.5,
        name: Annotated[str, typer.Option(help="Name of the schedule.")] = "found",
        out: Annotated[Path, typer.Option(help="TOML file to write.")] = Path(
            "build/quality/found.toml"
        ),
        as_json: JsonOption = False,
    ) -> None:
        """Search a schedule: best PSNR to the dense run within bounds on the work.

        Local search over what each step does (M refresh that makes masks, R refresh under masks,
        a digit for tenths of the tokens computed, "." for none), the ST threshold, the order and
        the damping of the forecast.
        """
        from golden.model import load_checkpoint
        from golden.quality.runs import sample_run
        from golden.quality.search import ALPHAS, COMPUTED, Candidate, check_bounds, start_line
        from golden.quality.search import search as find

        model = load_checkpoint(checkpoint)
        if alpha not in ALPHAS:
            raise ValueError(f"alpha: {alpha} is not one of {', '.join(map(str, ALPHAS))}")
        check_bounds(most_work, most_attention, runs)
        line = start or start_line(steps, max(3, int(most_work * steps)), 3)
        letters = {"M", "R", *COMPUTED}
        if set(line) - letters or not line.startswith("M") or len(line) != steps:
            raise ValueError(
                f"start: {line!r} must be {steps} letters, each of {' '.join(sorted(letters))}, "
                "the first of them M"
            )
        writable_directory(out.parent)
        seeds = range(first_seed, first_seed + images)
        with image_progress() as tell:
            dense = sample_run(
                model, schedules.Schedule(steps=steps, refresh=(0,)), seeds, tell=tell("dense")
            )
            shown = tell("searching")
            tried = 0

            def report_one(one: Any, best: Any) -> None:
                nonlocal tried
                tried += 1
                shown(tried, runs)
                if one is best and messages.is_terminal:
                    messages.print(
                        f"{one.candidate.line}  α {one.candidate.alpha:g}  {one.psnr_db:.2f} dB  "
                        f"work {one.work:.3f}  attention {one.attention:.3f}"
                    )

            best = find(
                model,
                dense,
                Candidate(line, alpha),
                seeds,
                most_work=most_work,
                most_attention=most_attention,
                runs=runs,
                tell=report_one,
            )
        figures = {
            "checkpoint": str(checkpoint),
            "search_psnr_db": round(best.psnr_db, 2),
            "work": round(best.work, 4),
            "attention": round(best.attention, 4),
            "search_images": images,
            "search_first_seed": first_seed,
        }
        found = best.candidate.schedule(name).model_copy(update={"figures": figures})
        write_files({out: found.to_toml()})
        if as_json:
            print_json({"schedule": found.model_dump(mode="json"), "tried": tried})
        else:
            console.print(str(found))
            console.print(
                f"{best.psnr_db:.2f} dB, work {best.work:.3f}, attention {best.attention:.3f}, "
                f"{tried} schedules tried; wrote {out}"
            )


def _references(group: typer.Typer) -> None:
    @group.command()
    def references(
        checkpoint: CheckpointOption = "digits-256",
        steps: StepsOption = 20,
        images: ImagesOption = 40,
        reuse: Annotated[float, typer.Option(help="Fraction of tokens reused.")] = 0.5,
        forecast: Annotated[int, typer.Option(help="Order of the forecast.")] = 1,
        every: Annotated[int, typer.Option(help="Refresh every so many steps.")] = 5,
        as_json: JsonOption = False,
    ) -> None:
        """Compare CTR's decision signals, at equal work, with their controls.

        PSNR to the dense run and its difference to "last-computed", with a 95 % interval over
        the seeds.  "random" and "true-change" are controls, not methods.
        """
        from golden.model import load_checkpoint
        from golden.quality.references import compare_references

        model = load_checkpoint(checkpoint)
        with image_progress() as tell:
            judged = compare_references(
                model,
                steps,
                range(images),
                reuse=reuse,
                forecast=forecast,
                every=every,
                tell=tell,
            )
        if as_json:
            rows = [asdict(row) for row in judged]
            print_json({"checkpoint": str(checkpoint), "steps": steps, "rows": rows})
            return
        title = f"{checkpoint}, {steps} steps, {reuse:.0%} reused, {images} images"
        table = _columns(title, "signal", "PSNR (dB)", "difference to last-computed (95 %)", "work")
        for row in judged:
            table.add_row(
                row.reference,
                f"{row.psnr_db:.2f}",
                _difference(row.against_default),
                f"{row.work:.3f}",
            )
        console.print(table)


def _ablate(group: typer.Typer) -> None:
    @group.command()
    def ablate(
        checkpoint: CheckpointOption = "digits-256",
        schedule: Annotated[
            str | None,
            typer.Option(help="Shipped schedule or TOML file; default: the checkpoint's own."),
        ] = None,
        images: ImagesOption = 40,
        as_json: JsonOption = False,
    ) -> None:
        """Take one part of a schedule away at a time: what is each worth?

        Order and damping of the forecast, feedback, residual sharing, masks shared by heads,
        CTR and ST as a whole.  Differences come with a 95 % interval over the seeds.
        """
        from golden.model import load_checkpoint
        from golden.quality.ablation import ablate as measure

        model = load_checkpoint(checkpoint)
        chosen = schedules.load(schedule or f"{checkpoint}-20")
        with image_progress() as tell:
            rows = measure(model, chosen, range(images), tell=tell)
        if as_json:
            head = {"checkpoint": str(checkpoint), "schedule": str(chosen), "images": images}
            print_json({**head, "rows": [asdict(row) for row in rows]})
            return
        title = f"{checkpoint}, {images} images, {chosen}"
        table = _columns(title, "change", "PSNR (dB)", "difference (95 %)", "work", "attention")
        for row in rows:
            table.add_row(
                row.change,
                f"{row.psnr_db:.2f}",
                _difference(row.difference),
                f"{row.work:.3f}",
                f"{row.attention:.3f}",
            )
        console.print(table)


def _columns(title: str, *names: str) -> Table:
    table = Table(title=title, title_justify="left")
    for name in names:
        table.add_column(name, justify="left" if name == names[0] else "right")
    return table


def _difference(d: PsnrDifference | None) -> str:
    return f"{d.difference_db:+.2f} ({d.low_db:+.2f} to {d.high_db:+.2f})" if d else ""


def _real(group: typer.Typer) -> None:
    @group.command()
    def fid(
        images: Annotated[Path, typer.Argument(help="Folder of generated images.")],
        reference: Annotated[Path, typer.Argument(help="Folder of reference images.")],
        weights: Annotated[Path, typer.Option(help="Local Inception weights, TorchScript.")],
        as_json: JsonOption = False,
    ) -> None:
        """FID between two folders, of images from a real checkpoint.  Needs local weights."""
        from golden.quality.reference_metrics import fid as measure

        value = measure(images, reference, weights)
        print_json({"fid": value}) if as_json else console.print(f"FID {value:.3f}")

    @group.command()
    def clip(
        images: Annotated[Path, typer.Argument(help="Folder of generated images.")],
        prompts: Annotated[Path, typer.Argument(help="Text file, a prompt an image, in order.")],
        weights: Annotated[Path, typer.Option(help="Local folder of a CLIP model.")],
        as_json: JsonOption = False,
    ) -> None:
        """CLIP score of images and their prompts.  Needs local weights."""
        from golden.quality.reference_metrics import clip_score as measure

        value = measure(images, prompts, weights)
        print_json({"clip_score": value}) if as_json else console.print(f"CLIP {value:.3f}")


def _shipped_for(checkpoint: str, steps: int) -> list[str]:
    found = []
    for name in schedules.shipped():
        schedule = schedules.load(name)
        if schedule.steps == steps and schedule.figures.get("checkpoint") == checkpoint:
            found.append(name)
    return found


def _csv(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _table(title: str, points: list[Point]) -> Table:
    columns = ("method", "work", "attention", "PSNR", "SSIM", "FD dense", "FD data ratio", "read")
    table = _columns(title, *columns)
    for p in sorted(points, key=lambda p: (p.family, p.work)):
        q = p.quality
        table.add_row(
            f"{p.family}: {p.schedule.partition(':')[0]}",
            f"{p.work:.3f}",
            f"{p.attention:.3f}",
            f"{q.psnr_db:.2f}",
            f"{q.ssim:.4f}",
            f"{q.frechet_to_dense:.4f}",
            f"{q.frechet_ratio:.3f}",
            f"{q.accuracy:.0%}",
        )
    return table
