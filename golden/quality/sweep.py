"""Work against quality: our schedules, the paper's methods as published, and fewer steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from disc.schedule import CTRConfig, Schedule, STConfig
from golden.data.glyphs import load_glyphs
from golden.model.dit import DiT
from golden.quality.report import QualityReport, compare
from golden.quality.runs import Run, Tell, labels_of, sample_run
from golden.sampling import Denoiser

FAMILIES = {
    "fewer steps": "dense, the same sampler with fewer steps: the rival",
    "CTR as published": "difference to the step before, outputs reused as they were",
    "ST as published": "masks act at once and what they drop is lost",
    "CTR + ST as published": "both",
    "ours": "forecast, residual sharing, placed refreshes",
    "integer core": "ours and dense, in the integers of the hardware",
}
"""Methods that are compared.  "As published": the reading of arXiv 2605.25798 in its plainest
form; thresholds and periods are not public."""


@dataclass(frozen=True)
class Planned:
    """A run that a sweep will make; in integers one that follows the same in float."""

    family: str
    schedule: Schedule
    integer: bool = False


@dataclass(frozen=True)
class Point:
    """One point of a sweep: a method's work and quality.

    Attributes:
        family: one of `FAMILIES`.
        schedule: what was run, in words.
        work: total MACs relative to the dense run.
        attention: MACs of Q Kᵀ and P V relative to the dense run.
        quality: against the dense run and the data.
    """

    family: str
    schedule: str
    work: float
    attention: float
    quality: QualityReport

    def row(self) -> dict[str, Any]:
        """Flat, for CSV and JSON."""
        report = asdict(self.quality) | {"frechet_ratio": self.quality.frechet_ratio}
        return {
            "family": self.family,
            "work": self.work,
            "attention": self.attention,
            **report,
            "schedule": self.schedule,
        }


def rivals(
    steps: int, works: Sequence[float] = (0.2, 0.3, 0.4, 0.5, 0.6, 0.8)
) -> Iterator[Planned]:
    """Yield dense schedules of fewer steps, about these fractions of the dense run's work."""
    for fewer in sorted({max(1, round(work * steps)) for work in works}):
        if fewer < steps:
            name = f"{fewer}-steps"
            yield Planned("fewer steps", Schedule(name=name, steps=fewer, refresh=(0,)))


def published(steps: int, every: int = 5) -> Iterator[Planned]:
    """Yield CTR, ST and both in their plainest form, over thresholds."""

    def plan(family: str, name: str, **methods: Any) -> Planned:
        warmup = 2 if "ctr" in methods else 1
        return Planned(
            family, Schedule.periodic(steps, every=every, warmup=warmup, name=name, **methods)
        )

    def ctr(reuse: float) -> CTRConfig:
        return CTRConfig(reference="adjacent", reuse=reuse, forecast=0)

    def st(alpha: float) -> STConfig:
        return STConfig(alpha=alpha, share_residual=False)

    for reuse in (0.25, 0.5, 0.75, 1.0):
        yield plan("CTR as published", f"ctr-{reuse:g}", ctr=ctr(reuse))
    for alpha in (0.1, 0.25, 0.5, 1.0, 2.0):
        yield plan("ST as published", f"st-{alpha:g}", st=st(alpha))
    for reuse, alpha in ((0.25, 0.1), (0.5, 0.25), (0.75, 0.5)):
        name = f"ctr-{reuse:g}-st-{alpha:g}"
        yield plan("CTR + ST as published", name, ctr=ctr(reuse), st=st(alpha))


def in_integers(schedules: Sequence[Schedule], steps: int) -> Iterator[Planned]:
    """Yield dense sampling and the schedules in integers; to follow the same in float."""
    whole = Schedule(name="dense", steps=steps, refresh=(0,))
    yield Planned("integer core", whole, integer=True)
    for schedule in schedules:
        yield Planned("integer core", schedule, integer=True)


def sweep(
    model: DiT,
    steps: int,
    plans: Sequence[Planned],
    seeds: Sequence[int],
    *,
    integer: Callable[[Schedule], Denoiser] | None = None,
    tell: Callable[[str], Tell] = lambda text: lambda done, total: None,
) -> tuple[list[Point], Run]:
    """Run all plans and the dense reference on the same seeds.

    Args:
        model: what is sampled.
        steps: of the dense reference.
        plans: what to compare.
        seeds: of the images; more than 32, for the Fréchet distance.
        integer: gives the integer core bound to a schedule, for plans that want it.
        tell: called with the name of each run, gives what reports its progress.

    Returns:
        The points, in the order of the plans, and the dense run.

    Raises:
        ValueError: a number is out of range.
    """
    whole = Schedule(name="dense", steps=steps, refresh=(0,))
    dense = sample_run(model, whole, seeds, tell=tell("dense"))
    data, _ = load_glyphs(model.config.size_px, "train")
    labels = labels_of(model, seeds)
    macs = {whole.digest: dense.macs}
    points = []
    for plan in plans:
        denoiser = None
        if plan.integer:
            if integer is None or plan.schedule.digest not in macs:
                raise ValueError(
                    f"plans: {plan.schedule.name!r} in integers needs `integer`, and the same in "
                    "float before it, which knows the work"
                )
            denoiser = integer(plan.schedule)
        name = f"{plan.schedule.name}, integers" if plan.integer else plan.schedule.name
        run = sample_run(model, plan.schedule, seeds, denoiser=denoiser, tell=tell(name))
        # Work counts whole runs, however many steps they have.
        done = macs.setdefault(plan.schedule.digest, run.macs)
        points.append(
            Point(
                family=plan.family,
                schedule=str(plan.schedule),
                work=done["total"] / dense.macs["total"],
                attention=done["attention"] / dense.macs["attention"],
                quality=compare(run.images, dense.images, data, labels),
            )
        )
    return points, dense
