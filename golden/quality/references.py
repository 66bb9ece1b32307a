"""Which signal should decide which tokens are reused?  All of them, at equal work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from disc.schedule import REFERENCES, CTRConfig, Reference, Schedule
from golden.model.dit import DiT
from golden.quality.metrics import psnr
from golden.quality.paired import PsnrDifference, psnr_difference
from golden.quality.runs import Tell, sample_run


@dataclass(frozen=True)
class Judged:
    """A decision signal with what it achieved.

    Attributes:
        reference: the signal, see `disc.schedule.CTRConfig`.
        psnr_db: to the dense run.
        against_default: PSNR less that of "last-computed", with its interval; None for itself.
        work: total MACs relative to dense; that of a dense pass which "true-change" peeks at is
            not counted.
    """

    reference: Reference
    psnr_db: float
    against_default: PsnrDifference | None
    work: float


def compare_references(
    model: DiT,
    steps: int,
    seeds: Sequence[int],
    *,
    reuse: float,
    forecast: int,
    every: int,
    tell: Callable[[str], Tell] = lambda text: lambda done, total: None,
) -> list[Judged]:
    """Sample the same seeds with each signal, refreshing in steps 0, 1 and every `every`-th.

    Raises:
        ValueError: a number is out of range, or there are fewer than two seeds.
    """
    dense = sample_run(model, Schedule(steps=steps, refresh=(0,)), seeds, tell=tell("dense"))
    runs = {}
    for reference in REFERENCES:
        ctr = CTRConfig(reference=reference, reuse=reuse, forecast=forecast)
        schedule = Schedule.periodic(steps, every=every, warmup=2, ctr=ctr)
        runs[reference] = sample_run(model, schedule, seeds, tell=tell(reference))
    default = runs["last-computed"].images
    return [
        Judged(
            reference,
            psnr(run.images, dense.images),
            None
            if reference == "last-computed"
            else psnr_difference(run.images, default, dense.images),
            run.work,
        )
        for reference, run in runs.items()
    ]
