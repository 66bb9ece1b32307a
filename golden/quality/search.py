"""Choose a schedule by measurement: local search over which steps refresh and how much is kept.

What a schedule costs in quality is dominated by errors of one sign that add up over the steps, so
where the refreshes lie matters as much as how many there are, and no local measure that was tried
predicts it: the error of each forecast, summed over a run by dynamic programming, chose refreshes
that were 3 dB worse in the image than plain periodic ones (docs/quality.md).  So whole runs are
compared, on seeds set apart for it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from disc.schedule import CTRConfig, Schedule, STConfig
from golden.model.dit import DiT
from golden.quality.metrics import psnr
from golden.quality.runs import Run, sample_run

ALPHAS = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)
COMPUTED = {".": 0.0, "3": 0.3, "5": 0.5, "7": 0.7}
"""Letters of steps that compute some tokens, and their fraction."""
DAMPINGS = (0.7, 0.85, 1.0)


@dataclass(frozen=True)
class Candidate:
    """A schedule in the form that the search changes.

    Attributes:
        line: a letter a step: M refresh that makes masks, R refresh under masks, or one of
            `COMPUTED`.
        alpha: of ST, one of `ALPHAS`.
        forecast: order, 0 to 2; not changed by the search, since the integer core has 0 and 1.
        damping: one of `DAMPINGS`.
        feedback: whether forecast errors are made up for.
    """

    line: str
    alpha: float = 0.5
    forecast: int = 1
    damping: float = 1.0
    feedback: bool = True

    def schedule(self, name: str = "candidate") -> Schedule:
        """Return it as a schedule."""
        return Schedule(
            name=name,
            steps=len(self.line),
            refresh=tuple(i for i, letter in enumerate(self.line) if letter in "MR"),
            make_masks=tuple(i for i, letter in enumerate(self.line) if letter == "M"),
            ctr=CTRConfig(
                reuse=tuple(round(1 - COMPUTED.get(letter, 1.0), 2) for letter in self.line),
                forecast=self.forecast,
                damping=self.damping,
                feedback=self.feedback,
            ),
            st=STConfig(alpha=self.alpha),
        )

    def neighbours(self) -> Iterator[Candidate]:
        """Yield candidates that differ in one decision."""
        yield from (replace(self, line=line) for line in _lines(self.line))
        for field, values in (("alpha", ALPHAS), ("damping", DAMPINGS)):
            at = values.index(getattr(self, field))
            for other in values[max(0, at - 1) : at] + values[at + 1 : at + 2]:
                yield replace(self, **{field: other})
        yield replace(self, feedback=not self.feedback)


def _lines(line: str) -> Iterator[str]:
    ladder = (*COMPUTED, "R", "M")
    for i in range(1, len(line)):
        rung = ladder.index(line[i])
        for other in ladder[max(0, rung - 1) : rung] + ladder[rung + 1 : rung + 2]:
            yield f"{line[:i]}{other}{line[i + 1 :]}"
        if line[i] in ".R":  # a refresh more or less, in one go
            yield f"{line[:i]}{'R' if line[i] == '.' else '.'}{line[i + 1 :]}"
        # Two steps exchange what they do: neighbours, or one that makes masks with one under them.
        for j in range(i + 1, len(line)):
            if line[i] != line[j] and (j == i + 1 or {line[i], line[j]} == {"M", "R"}):
                letters = list(line)
                letters[i], letters[j] = letters[j], letters[i]
                yield "".join(letters)


@dataclass(frozen=True)
class Measured:
    """A candidate with what it achieved on the seeds of the search."""

    candidate: Candidate
    psnr_db: float
    work: float
    attention: float


def start_line(steps: int, refreshes: int, masks: int) -> str:
    """Steps 0, 2 and 4, then evenly up to the last; every so-many-th of them makes masks.

    The first forecasts have only one value to go by, so the first gaps are short.  With fewer
    than five refreshes all gaps are alike.

    Raises:
        ValueError: a number is out of range; the message names it, its value and the range.
    """
    if steps < 3:
        raise ValueError(f"steps: {steps} is below 3; there is nothing to reuse")
    if not 1 <= refreshes <= steps:
        raise ValueError(f"refreshes: {refreshes} is outside 1..{steps}")
    if not 1 <= masks <= refreshes:
        raise ValueError(f"masks: {masks} is outside 1..{refreshes}")
    early = [0, 2] if refreshes >= 5 and steps >= 2 * refreshes else []
    first, rest = 2 * len(early), refreshes - len(early)
    spread = [round(first + i * (steps - 1 - first) / max(1, rest - 1)) for i in range(rest)]
    places = early + spread
    line = ["."] * steps
    for rank, place in enumerate(places):
        line[place] = "M" if rank % -(-len(places) // masks) == 0 else "R"
    return "".join(line)


def check_bounds(most_work: float, most_attention: float, runs: int) -> None:
    """Raise ValueError that names what is out of range."""
    for field, value in (("most_work", most_work), ("most_attention", most_attention)):
        if not 0 < value <= 1:
            raise ValueError(f"{field}: {value} is outside 0..1, 0 excluded")
    if runs < 1:
        raise ValueError(f"runs: {runs} is below 1")


def search(
    model: DiT,
    dense: Run,
    start: Candidate,
    seeds: Sequence[int],
    *,
    most_work: float,
    most_attention: float,
    runs: int,
    seed: int = 0,
    tell: Callable[[Measured, Measured], None] = lambda tried, best: None,
) -> Measured:
    """Improve a candidate step by step until no neighbour is better or the runs are used up.

    Args:
        model: what is sampled.
        dense: dense run of the same seeds, what PSNR is taken against.
        start: where to begin.
        seeds: of the images; not those on which the result will be judged.
        most_work: bound on total MACs relative to dense.
        most_attention: bound on MACs of attention relative to dense.
        runs: candidates to try at most.
        seed: of the order in which neighbours are tried.
        tell: called with each candidate measured and the best so far.

    Returns:
        The best within the bounds; if none was, the one that exceeds them least.

    Raises:
        ValueError: a number is out of range.
    """
    check_bounds(most_work, most_attention, runs)
    order = random.Random(seed)
    measured: dict[Candidate, Measured] = {}

    def excess(m: Measured) -> float:
        return max(0.0, m.work - most_work) + max(0.0, m.attention - most_attention)

    def better(a: Measured, b: Measured) -> bool:
        return (-excess(a), a.psnr_db) > (-excess(b), b.psnr_db)

    def measure(candidate: Candidate) -> Measured:
        run = sample_run(model, candidate.schedule(), seeds)
        quality = psnr(run.images, dense.images)
        measured[candidate] = Measured(candidate, quality, run.work, run.attention)
        return measured[candidate]

    best = measure(start)
    tell(best, best)
    improved = True
    while improved and len(measured) < runs:
        improved = False
        untried = [c for c in dict.fromkeys(best.candidate.neighbours()) if c not in measured]
        order.shuffle(untried)
        for candidate in untried:
            work, attention = least_work(candidate, dense)
            if work > max(most_work, best.work) or attention > max(most_attention, best.attention):
                continue  # no need to run what cannot fit
            if len(measured) >= runs:
                break
            tried = measure(candidate)
            if improved := better(tried, best):
                best = tried
            tell(tried, best)
            if improved:
                break
    return best


def least_work(candidate: Candidate, dense: Run) -> tuple[float, float]:
    """Total and attention work relative to dense if masks kept nothing: lower bounds."""
    steps = len(candidate.line)
    tokens = sum(COMPUTED.get(letter, 1.0) for letter in candidate.line) / steps
    attention = candidate.line.count("M") / steps
    macs = dense.dense_macs
    per_token = macs["projection"] + macs["mlp"]
    always = macs["total"] - per_token - macs["attention"]
    total = always + tokens * per_token + attention * macs["attention"]
    return total / macs["total"], attention
