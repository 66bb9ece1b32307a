"""Schedules: what they say, how they are saved, what they refuse."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disc.config import ConfigError
from disc.schedule import (
    REFERENCES,
    CTRConfig,
    Schedule,
    STConfig,
    load,
    loads,
    shipped,
)


@st.composite
def schedules(draw) -> Schedule:
    steps = draw(st.integers(1, 60))
    amount = draw(
        st.one_of(
            st.fixed_dictionaries({"reuse": st.floats(0, 1)}),
            st.fixed_dictionaries({"threshold": st.floats(0, 10)}),
            st.fixed_dictionaries({"threshold": st.tuples(*[st.floats(0, 1)] * steps).map(tuple)}),
        )
    )
    ctr = draw(
        st.none()
        | st.builds(
            lambda **more: CTRConfig(**amount, **more),
            reference=st.sampled_from(REFERENCES),
            forecast=st.integers(0, 2),
            damping=st.floats(0.1, 1),
            seed=st.integers(0, 9),
        )
    )
    masks = draw(
        st.none()
        | st.builds(
            STConfig,
            alpha=st.floats(0, 10),
            share_residual=st.booleans(),
            heads=st.sampled_from(["each", "shared"]),
        )
    )
    return Schedule.periodic(
        steps,
        every=draw(st.integers(1, 9)),
        warmup=draw(st.integers(2, 5)),
        tail=draw(st.integers(0, 3)),
        mask_every=draw(st.integers(1, 3)),
        ctr=ctr,
        st=masks,
    )


@given(schedules())
def test_toml_restores_an_equal_schedule(schedule):
    text = schedule.to_toml()
    tomllib.loads(text)
    again = loads(text)
    assert again == schedule
    assert again.digest == schedule.digest


@given(schedules())
def test_the_first_step_computes_all_and_masks_are_made_by_all_tokens(schedule):
    assert schedule.is_refresh(0)
    assert schedule.makes_masks(0)
    for step in range(schedule.steps):
        assert schedule.is_refresh(step) == (step in schedule.refresh)
        assert not (schedule.makes_masks(step) and not schedule.is_refresh(step))


def test_periodic_counts_from_the_last_warm_up_step():
    p = Schedule.periodic
    assert p(10, every=3).refresh == (0, 3, 6, 9)
    assert p(10, every=3, warmup=2).refresh == (0, 1, 4, 7)
    assert p(10, every=4, warmup=2, tail=2).refresh == (0, 1, 5, 8, 9)
    assert p(3, warmup=9).refresh == (0, 1, 2)
    assert p(2, tail=5).refresh == (0, 1)
    assert p(10, every=1).refresh == tuple(range(10))
    assert p(20, every=3, mask_every=2).make_masks == (0, 6, 12, 18)


def test_a_schedule_prints_its_timeline_and_its_methods():
    text = str(
        Schedule.periodic(
            8, every=3, mask_every=2, ctr=CTRConfig(reuse=0.75), st=STConfig(alpha=1.0), name="x"
        )
    )
    assert text == (
        "x: 8 steps, M22R22M2; CTR last-computed, 75% of tokens reused, forecast of order 1; "
        "ST α = 1, a mask a head, residual shared"
    )
    assert str(Schedule(steps=3, refresh=(0,))) == "schedule: 3 steps, RRR; dense"
    by_step = CTRConfig(reuse=(0.0, 1.0, 0.5, 0.97))
    assert "4 steps, R.51; CTR last-computed, a fraction" in str(
        Schedule(steps=4, refresh=(0,), ctr=by_step)
    )
    assert "3 steps, Rtt;" in str(Schedule(steps=3, refresh=(0,), ctr=CTRConfig(threshold=1.0)))


def test_the_digest_follows_effect_not_name():
    schedule = Schedule(steps=3, refresh=(0,))
    named = Schedule(steps=3, refresh=(0,), name="other", figures={"psnr": 40.0})
    assert named.digest == schedule.digest
    assert Schedule(steps=3, refresh=(0, 1)).digest != schedule.digest


def test_one_threshold_serves_all_steps_or_each_has_its_own():
    one = Schedule(steps=3, refresh=(0,), ctr=CTRConfig(threshold=0.5))
    assert [one.threshold(s) for s in range(3)] == [0.5] * 3
    each = Schedule(steps=3, refresh=(0,), ctr=CTRConfig(threshold=(0.0, 1.0, 2.0)))
    assert [each.threshold(s) for s in range(3)] == [0.0, 1.0, 2.0]
    assert [one.reuse(s) for s in range(3)] == [0.0, None, None]
    half = Schedule(steps=3, refresh=(0,), ctr=CTRConfig(reuse=0.5))
    assert half.threshold(1) is None
    assert [half.reuse(s) for s in range(3)] == [0.0, 0.5, 0.5]
    fractions = Schedule(steps=3, refresh=(0,), ctr=CTRConfig(reuse=(1.0, 0.25, 1.0)))
    assert [fractions.reuse(s) for s in range(3)] == [0.0, 0.25, 1.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CTRConfig(), "set exactly one of them"),
        (lambda: CTRConfig(reuse=0.5, threshold=0.1), "set exactly one of them"),
        (lambda: CTRConfig(reuse=1.5), "reuse.*less than or equal to 1, got 1.5"),
        (lambda: CTRConfig(threshold=-0.1), "threshold.*greater than or equal to 0, got -0.1"),
        (lambda: CTRConfig(threshold=float("nan")), "threshold.*got nan"),
        (lambda: CTRConfig(reuse=0.5, reference="previous"), "reference: .*got 'previous'"),
        (lambda: CTRConfig(reuse=0.5, forecast=3), "forecast: .*got 3"),
        (lambda: CTRConfig(reuse=0.5, damping=0.0), "damping: .*got 0.0"),
        (lambda: CTRConfig(reuse=0.5, period=3), "period: Extra inputs"),
        (lambda: STConfig(alpha=-1.0), "alpha: .*got -1.0"),
        (lambda: STConfig(heads="some"), "heads: .*got 'some'"),
        (lambda: Schedule(steps=0, refresh=(0,)), "steps: .*got 0"),
        (lambda: Schedule(steps=5, refresh=()), "refresh: .*at least 1 item"),
        (lambda: Schedule(steps=5, refresh=(1,)), "step 0 must be one"),
        (lambda: Schedule(steps=5, refresh=(0, 3, 3)), "refresh: 3 follows 3"),
        (lambda: Schedule(steps=5, refresh=(0, 5)), r"refresh: 5 is outside 0\.\.4"),
        (lambda: Schedule(steps=5, refresh=(0, 2), make_masks=(0, 3)), r"make_masks: \(0, 3\)"),
        (lambda: Schedule(steps=5, refresh=(0, 2), make_masks=(2,)), r"make_masks: \(2,\)"),
        (lambda: Schedule(steps=5, refresh=(0, 2), make_masks=(0, 9)), "make_masks: 9 is outside"),
        (
            lambda: Schedule(steps=3, refresh=(0,), ctr=CTRConfig(threshold=(1.0, 2.0))),
            "ctr.threshold: 2 values for 3 steps",
        ),
        (
            lambda: Schedule(steps=3, refresh=(0,), ctr=CTRConfig(reuse=(1.0,))),
            "ctr.reuse: 1 values for 3 steps",
        ),
        (
            lambda: Schedule(steps=5, refresh=(0, 2), ctr=CTRConfig(reuse=1.0, reference="output")),
            "step 1 must be one.*set warmup to 2",
        ),
        (lambda: Schedule.periodic(5, every=0), "every: 0 is below 1"),
        (lambda: Schedule.periodic(5, warmup=0), "warmup: 0 is below 1"),
        (lambda: Schedule.periodic(5, tail=-1), "tail: -1 is below 0"),
        (lambda: Schedule.periodic(5, mask_every=0), "mask_every: 0 is below 1"),
        (lambda: Schedule.periodic(0), r"steps: 0 is outside 1\.\.10000"),
        (lambda: loads("steps = "), "not valid TOML"),
        (lambda: loads("steps = 3", source="my.toml"), "my.toml: .*refresh: Field required"),
        (lambda: loads("steps = 3.5\nrefresh = [0]"), "steps: .*got 3.5"),
        (lambda: load("no-such"), "no shipped schedule 'no-such'; choose"),
        (lambda: load("missing.toml"), "cannot read missing.toml"),
    ],
)
def test_errors_name_the_field(make, message):
    with pytest.raises(ConfigError, match=message):
        make()


def test_shipped_schedules_load_and_carry_their_figures():
    for name in shipped():
        schedule = load(name)
        assert schedule.name == name
        assert schedule.figures
