"""What the shipped schedules promise, on a few seeds that did not choose them."""

import pytest

from disc.schedule import Schedule, load, shipped
from golden.integer.calibration import load_calibration
from golden.integer.dit import IntegerDiT
from golden.model import load_checkpoint
from golden.quality import psnr
from golden.quality.runs import sample_run

SEEDS = range(10)
QUICK = "digits-256-20"


def dense(model, steps):
    return sample_run(model, Schedule(steps=steps, refresh=(0,)), SEEDS)


@pytest.mark.parametrize(
    "name",
    [name if name == QUICK else pytest.param(name, marks=pytest.mark.full) for name in shipped()],
)
def test_the_rival_of_equal_work_is_beaten_by_four_decibels(name):
    schedule = load(name)
    model = load_checkpoint(str(schedule.figures["checkpoint"]))
    reference = dense(model, schedule.steps)
    ours = sample_run(model, schedule, SEEDS)
    assert ours.work == pytest.approx(schedule.figures["work"], abs=0.01)
    # Rounded up: the rival may work a little more.
    fewer = -int(-ours.work * schedule.steps // 1)
    rival = dense(model, fewer)
    assert psnr(ours.images, reference.images) > psnr(rival.images, reference.images) + 4


def test_the_integer_core_draws_the_same_images():
    model, schedule = load_checkpoint("digits-256"), load(QUICK)
    in_float = sample_run(model, schedule, SEEDS[:4])
    core = IntegerDiT(model, load_calibration("digits-256"), schedule)
    in_integers = sample_run(model, schedule, SEEDS[:4], denoiser=core)
    assert psnr(in_integers.images, in_float.images) > 34
