"""Sweeps: plans, work of runs with other numbers of steps, decision signals, the picture."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from disc.schedule import REFERENCES, CTRConfig, Schedule, STConfig
from golden.model import load_checkpoint
from golden.quality import psnr
from golden.quality.ablation import ablate, variants
from golden.quality.plot import draw_frontiers
from golden.quality.references import compare_references
from golden.quality.runs import sample_run
from golden.quality.sweep import FAMILIES, Planned, published, rivals, sweep

MODEL = load_checkpoint("digits-256")
SEEDS = range(34)


@pytest.fixture(scope="module")
def swept():
    ours = Schedule.periodic(4, every=2, ctr=CTRConfig(reuse=1.0), st=STConfig(), name="x")
    plans = [Planned("ours", ours), *rivals(4, (0.5,))]
    told = []

    def tell(text):
        return lambda done, total: told.append((text, done, total))

    points, dense = sweep(MODEL, 4, plans, SEEDS, tell=tell)
    return points, dense, told


def test_rivals_and_published_methods_are_planned_at_equal_steps():
    assert [p.schedule.steps for p in rivals(20)] == [4, 6, 8, 10, 12, 16]
    assert [p.schedule.steps for p in rivals(3)] == [1, 2]
    for plan in published(20):
        assert plan.schedule.steps == 20
        assert plan.family in FAMILIES
        ctr, st = plan.schedule.ctr, plan.schedule.st
        assert ctr is None or (ctr.reference == "adjacent" and ctr.forecast == 0)
        assert st is None or not st.share_residual


def test_points_count_whole_runs_and_are_judged_against_dense(swept):
    points, dense, told = swept
    ours, rival = points
    assert (ours.family, rival.family) == ("ours", "fewer steps")
    assert rival.work == rival.attention == 0.5
    assert 0.4 < ours.work < 0.6
    again = sample_run(MODEL, Schedule(steps=2, refresh=(0,)), SEEDS)
    assert rival.quality.psnr_db == psnr(again.images, dense.images)
    assert ours.row()["frechet_ratio"] == ours.quality.frechet_ratio
    assert {text for text, _, _ in told} == {"dense", "x", "2-steps"}
    assert [done for text, done, _ in told if text == "x"] == [10, 20, 30, 34]


def test_the_picture_shows_every_family(swept):
    points, _, _ = swept
    figure = draw_frontiers(points, "title")
    left, right = figure.axes
    assert [line.get_label() for line in left.get_lines()[:2]] == ["fewer steps", "ours"]
    assert left.get_lines()[0].get_xdata() == pytest.approx([50])
    assert right.get_yscale() == "log"
    plt.close("all")


def test_signals_are_compared_at_equal_work():
    rows = compare_references(MODEL, 5, range(3), reuse=0.5, forecast=1, every=3)
    assert [row.reference for row in rows] == list(REFERENCES)
    assert len({round(row.work, 6) for row in rows}) == 1
    by_name = {row.reference: row for row in rows}
    assert by_name["last-computed"].against_default is None
    assert by_name["true-change"].psnr_db > by_name["random"].psnr_db


def test_variants_change_one_thing_and_are_judged_against_the_schedule():
    ctr, masks = CTRConfig(reuse=1.0, feedback=True), STConfig(alpha=1.0)
    schedule = Schedule.periodic(5, every=2, mask_every=2, ctr=ctr, st=masks)
    made = dict(variants(schedule))
    assert len(set(map(str, made.values()))) == len(made) == 11
    assert made["without CTR"].ctr is None
    assert made["without ST"].st is None
    assert made["without residual sharing"].st == STConfig(alpha=1.0, share_residual=False)
    rows = ablate(MODEL, Schedule.periodic(3, every=2, ctr=CTRConfig(reuse=1.0)), range(2))
    by_name = {row.change: row for row in rows}
    assert by_name["as it is"].difference is None
    zero = by_name["forecast of order 0"]
    assert zero.difference is not None
    assert zero.difference.difference_db == pytest.approx(zero.psnr_db - rows[0].psnr_db)
    assert by_name["without CTR"].work == 1.0


def test_a_run_with_another_denoiser_knows_no_work():
    run = sample_run(
        MODEL, Schedule(steps=1, refresh=(0,)), [0], denoiser=lambda z, t, y: np.float32(0) * z
    )
    assert run.macs == {}
    assert run.images.shape == (1, 1, 32, 32)
    with pytest.raises(ValueError, match="seeds: none given"):
        sample_run(MODEL, Schedule(steps=1, refresh=(0,)), [])
