"""What each part of a schedule is worth: the same schedule without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite

from disc.schedule import Schedule
from golden.model.dit import DiT
from golden.quality.metrics import psnr
from golden.quality.paired import PsnrDifference, psnr_difference
from golden.quality.runs import Tell, sample_run


@dataclass(frozen=True)
class Ablated:
    """A variant of a schedule with what it achieved.

    Attributes:
        change: what differs, in words; the first is the schedule itself.
        psnr_db: to the dense run.
        difference: PSNR less that of the schedule itself, with its interval; None for itself,
            and where one of the two equals the dense run.
        work: total MACs relative to dense.
        attention: MACs of attention relative to dense.
    """

    change: str
    psnr_db: float
    difference: PsnrDifference | None
    work: float
    attention: float


def variants(schedule: Schedule) -> Iterator[tuple[str, Schedule]]:
    """Yield the schedule and what it would be with one decision taken otherwise."""
    yield "as it is", schedule

    def change(**fields: object) -> Schedule:
        return schedule.model_copy(update=fields)

    ctr, st = schedule.ctr, schedule.st
    if ctr:
        for order in (0, 1, 2):
            if order != ctr.forecast:
                yield f"forecast of order {order}", change(ctr=_with(ctr, forecast=order))
        for damping in (0.7, 0.85, 1.0):
            if damping != ctr.damping and ctr.forecast:
                yield f"damping {damping:g}", change(ctr=_with(ctr, damping=damping))
        word = "without" if ctr.feedback else "with"
        yield f"{word} feedback", change(ctr=_with(ctr, feedback=not ctr.feedback))
        yield "without CTR", change(ctr=None)
    if st:
        word = "without" if st.share_residual else "with"
        yield (
            f"{word} residual sharing",
            change(st=_with(st, share_residual=not st.share_residual)),
        )
        yield "one mask for all heads", change(st=_with(st, heads="shared"))
        if schedule.make_masks:
            yield "masks made in every refresh", change(make_masks=None)
        yield "without ST", change(st=None)


def _with(part: object, **fields: object) -> object:
    return part.model_copy(update=fields)  # type: ignore[attr-defined]


def ablate(
    model: DiT,
    schedule: Schedule,
    seeds: Sequence[int],
    *,
    tell: Callable[[str], Tell] = lambda text: lambda done, total: None,
) -> list[Ablated]:
    """Sample the same seeds with every variant.

    Raises:
        ValueError: there are fewer than two seeds.
    """
    whole = Schedule(steps=schedule.steps, refresh=(0,))
    dense = sample_run(model, whole, seeds, tell=tell("dense"))
    rows: list[Ablated] = []
    base = None
    for name, variant in variants(schedule):
        run = sample_run(model, variant, seeds, tell=tell(name))
        quality = psnr(run.images, dense.images)
        against = None
        if base is None:
            base = run.images
        elif isfinite(quality) and isfinite(rows[0].psnr_db):
            against = psnr_difference(run.images, base, dense.images)
        rows.append(Ablated(name, quality, against, run.work, run.attention))
    return rows
