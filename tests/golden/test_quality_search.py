"""The search of schedules: what it may change, its bounds, and that it improves."""

import pytest
import torch
from torch import nn

from disc.schedule import CTRConfig, Schedule, STConfig
from golden.model import DiT, DiTConfig
from golden.quality.runs import sample_run
from golden.quality.search import (
    ALPHAS,
    COMPUTED,
    Candidate,
    least_work,
    search,
    start_line,
)

SEEDS = (0, 1)


def small_model() -> DiT:
    torch.manual_seed(0)
    model = DiT(DiTConfig(size_px=8, dim=16, depth=2, heads=2, classes=3, base_grid=4))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.25)
    return model.eval().requires_grad_(False)


MODEL = small_model()


def dense(steps):
    return sample_run(MODEL, Schedule(steps=steps, refresh=(0,)), SEEDS)


def test_a_candidate_is_the_schedule_that_its_letters_say():
    schedule = Candidate("M.R5M3", alpha=1.4, damping=0.85, feedback=False).schedule("x")
    assert schedule == Schedule(
        name="x",
        steps=6,
        refresh=(0, 2, 4),
        make_masks=(0, 4),
        ctr=CTRConfig(reuse=(0.0, 1.0, 0.0, 0.5, 0.0, 0.7), forecast=1, damping=0.85),
        st=STConfig(alpha=1.4),
    )
    assert str(schedule).startswith("x: 6 steps, M.R5M3;")


def test_neighbours_differ_in_one_decision_and_are_valid():
    start = Candidate("M.R.5M..")
    neighbours = list(start.neighbours())
    assert start not in neighbours
    assert len(set(neighbours)) >= 20
    for other in neighbours:
        other.schedule()  # raises if it is none
        changed = sum(
            getattr(start, field) != getattr(other, field)
            for field in ("line", "alpha", "damping", "feedback")
        )
        assert changed == 1
        letters = sum(a != b for a, b in zip(start.line, other.line, strict=True))
        assert letters <= 2


@pytest.mark.parametrize(
    ("steps", "refreshes", "masks", "line"),
    [
        (10, 4, 2, "M..R..M..R"),
        (20, 8, 3, "M.R.R..M..R..R..M..R"),
        (20, 4, 2, "M.....R......M.....R"),
        (5, 5, 5, "MMMMM"),
        (3, 1, 1, "M.."),
    ],
)
def test_start_lines_are_even_and_end_with_a_refresh(steps, refreshes, masks, line):
    assert start_line(steps, refreshes, masks) == line


def test_least_work_is_what_a_run_takes_with_empty_masks():
    reference = dense(6)
    for line in ("M.R.5.", "MMMMMM", "M.....", "MR3.M7"):
        candidate = Candidate(line, alpha=4.0)
        run = sample_run(MODEL, candidate.schedule(), SEEDS)
        total, attention = least_work(candidate, reference)
        assert total <= run.work <= total + 0.2
        assert attention <= run.attention
    whole = sample_run(MODEL, Candidate("MMMMMM").schedule(), SEEDS)
    assert least_work(Candidate("MMMMMM"), reference) == pytest.approx((1.0, 1.0))
    assert whole.work == 1.0


def test_search_improves_within_its_bounds():
    seen = []
    best = search(
        MODEL,
        dense(8),
        Candidate("M......R", alpha=4.0),
        SEEDS,
        most_work=0.6,
        most_attention=0.5,
        runs=25,
        tell=lambda tried, best: seen.append((tried, best)),
    )
    assert len(seen) == 25
    assert len({tried.candidate for tried, _ in seen}) == 25
    assert best.work <= 0.6
    assert best.attention <= 0.5
    assert best.psnr_db > seen[0][0].psnr_db + 1
    fitting = [t.psnr_db for t, _ in seen if t.work <= 0.6 and t.attention <= 0.5]
    assert best.psnr_db == max(fitting)


def test_a_start_beyond_the_bounds_is_brought_within():
    best = search(
        MODEL,
        dense(6),
        Candidate("MMMMRR"),
        SEEDS,
        most_work=0.7,
        most_attention=0.7,
        runs=40,
    )
    assert best.work <= 0.7
    assert best.attention <= 0.7


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: start_line(2, 1, 1), "steps: 2 is below 3"),
        (lambda: start_line(5, 6, 1), r"refreshes: 6 is outside 1\.\.5"),
        (lambda: start_line(5, 2, 3), r"masks: 3 is outside 1\.\.2"),
    ],
)
def test_bad_lines_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"most_work": 0.0}, r"most_work: 0\.0 is outside"),
        ({"most_attention": 1.5}, r"most_attention: 1\.5 is outside"),
        ({"runs": 0}, "runs: 0 is below 1"),
    ],
)
def test_bad_bounds_are_named(changed, message):
    bounds = {"most_work": 0.5, "most_attention": 0.5, "runs": 1, **changed}
    with pytest.raises(ValueError, match=message):
        search(MODEL, dense(4), Candidate("M..R"), SEEDS, **bounds)


def test_letters_and_thresholds_are_ordered():
    assert list(COMPUTED.values()) == sorted(COMPUTED.values())
    assert list(ALPHAS) == sorted(ALPHAS)
