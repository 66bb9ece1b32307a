"""CTR and ST attached to a model: against a version that skips nothing, and their invariants."""

import pickle
from itertools import pairwise

import pytest
import torch
from accelerate_reference import EmulatedDenoiser
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import golden
from disc.config import ConfigError
from disc.schedule import CTRConfig, Schedule, STConfig
from golden.model import DiT, DiTConfig, load_checkpoint
from golden.sampling import sample
from golden.st import make_mask

P = Schedule.periodic
STEPS = 7
LABELS, SEEDS = [1, 2, 0], [5, 6, 7]


def small_model(size_px: int = 8) -> DiT:
    """Sixteen tokens, random weights of a size that makes attention and gates matter."""
    torch.manual_seed(0)
    model = DiT(DiTConfig(size_px=size_px, dim=16, depth=3, heads=2, classes=3, base_grid=4))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.25)
    return model.eval().requires_grad_(False)


MODEL = small_model()


def run(schedule, labels=LABELS, seeds=SEEDS, model=MODEL, maker=make_mask, **more):
    accelerator = golden.attach(model, schedule, maker=maker)
    try:
        return (
            sample(model, labels, seeds, steps=schedule.steps, **more),
            accelerator.log[:],
            (
                accelerator.macs(),
                accelerator.dense_macs(),
            ),
        )
    finally:
        golden.detach(model)


ctrs = st.builds(
    lambda amount, **more: CTRConfig(**amount, **more),
    st.one_of(
        st.fixed_dictionaries({"reuse": st.sampled_from([0.0, 0.3, 0.75, 1.0])}),
        st.fixed_dictionaries({"reuse": st.tuples(*[st.sampled_from([0.25, 0.7, 1.0])] * STEPS)}),
        st.fixed_dictionaries({"threshold": st.floats(0.0, 1.0)}),
    ),
    reference=st.sampled_from(["last-computed", "adjacent", "random"]),
    forecast=st.integers(0, 2),
    damping=st.sampled_from([1.0, 0.5]),
    feedback=st.booleans(),
)
sts = st.builds(
    STConfig,
    alpha=st.sampled_from([0.5, 1.0, 2.0, 1e6]),
    share_residual=st.booleans(),
    heads=st.sampled_from(["each", "shared"]),
)
schedules = st.builds(
    P,
    st.just(STEPS),
    every=st.integers(1, 4),
    warmup=st.integers(1, 2),
    tail=st.integers(0, 1),
    mask_every=st.integers(1, 2),
    ctr=st.none() | ctrs,
    st=st.none() | sts,
)


@settings(max_examples=60, deadline=None)
@given(schedules, st.sampled_from([1.0, 3.0]))
def test_skipping_gives_what_computing_everything_and_overwriting_gives(schedule, guidance):
    out, log, (macs, _) = run(schedule, guidance=guidance)
    reference = EmulatedDenoiser(MODEL, schedule)
    expected = sample(MODEL, LABELS, SEEDS, steps=STEPS, guidance=guidance, denoiser=reference)
    torch.testing.assert_close(out, expected, atol=2e-4, rtol=1e-3)
    assert sum(sum(record.computed) for record in log) == reference.rows
    assert macs["attention"] == reference.macs * MODEL.config.head_dim


NEUTRAL = [
    {},
    {"st": STConfig(alpha=0.0)},
    {"ctr": CTRConfig(reuse=0.0)},
    {"ctr": CTRConfig(threshold=0.0, forecast=2, feedback=True), "st": STConfig(alpha=0.0)},
    {"ctr": CTRConfig(reuse=1.0), "every": 1},
    {"st": STConfig(alpha=3.0), "every": 1},
]


@pytest.mark.parametrize("settings_", NEUTRAL)
@pytest.mark.parametrize("guidance", [1.0, 2.0])
def test_neutral_settings_and_detaching_give_the_stock_output_to_the_bit(settings_, guidance):
    stock = sample(MODEL, LABELS, SEEDS, steps=STEPS, guidance=guidance)
    out, _, (macs, dense) = run(P(STEPS, **settings_), guidance=guidance)
    assert torch.equal(out, stock)
    assert macs == dense
    run(P(STEPS, ctr=CTRConfig(reuse=0.8), st=STConfig(alpha=2.0)), guidance=guidance)
    assert torch.equal(sample(MODEL, LABELS, SEEDS, steps=STEPS, guidance=guidance), stock)


def test_neutral_settings_on_the_trained_model_give_its_output_to_the_bit():
    model = load_checkpoint("digits-256")
    stock = sample(model, [3], [1], steps=4)
    ctr, masks = CTRConfig(threshold=0.0), STConfig(alpha=0.0)
    out, _, _ = run(P(4, ctr=ctr, st=masks), [3], [1], model)
    assert torch.equal(out, stock)


def test_work_falls_with_each_threshold():
    def work(**settings_):
        macs = run(P(STEPS, every=4, **settings_))[2][0]
        return macs["total"], macs["attention"]

    by_threshold = [work(ctr=CTRConfig(threshold=t)) for t in (0.0, 0.3, 0.5, 0.8, 1e9)]
    by_reuse = [work(ctr=CTRConfig(reuse=r)) for r in (0.0, 0.25, 0.5, 1.0)]
    by_alpha = [work(st=STConfig(alpha=a)) for a in (0.0, 0.5, 1.0, 2.0, 1e9)]
    for series in (by_threshold, by_reuse, by_alpha):
        for (total, attention), (less, less_attention) in pairwise(series):
            assert less < total
            assert less_attention < attention


def test_masks_are_those_of_the_maker():
    plain = P(STEPS, every=3, ctr=CTRConfig(reuse=0.5), st=STConfig(alpha=0.8))
    given_alpha = P(STEPS, every=3, ctr=CTRConfig(reuse=0.5), st=STConfig(alpha=2.0))
    calls = []

    def maker(p, st, first):
        assert p.dtype == torch.float32
        assert torch.allclose(p.sum(dim=-1), torch.ones(()))
        calls.append((list(p.shape), st.alpha, first))
        return make_mask(p, STConfig(alpha=0.8), first)

    expected, log, macs = run(plain)
    out, own_log, own_macs = run(given_alpha, maker=maker)
    assert torch.equal(out, expected)
    assert own_macs == macs
    assert [r.density for r in own_log] == [r.density for r in log]
    refreshes = sum(r.refresh for r in log)
    assert calls == [([3, 2, 16, 16], 2.0, 0)] * 3 * refreshes  # a layer each
    calls.clear()
    run(P(STEPS), maker=maker)
    run(P(STEPS, st=STConfig(alpha=0.0)), maker=maker)
    assert not calls


def test_a_maker_gets_rows_in_order_with_the_first_ones_token(monkeypatch):
    schedule = P(STEPS, every=3, st=STConfig(alpha=1.0))
    whole, _, _ = run(schedule)
    monkeypatch.setattr("golden.accelerate.attention._MOST_ENTRIES", 3 * 2 * 16 * 6)
    firsts = []

    def maker(p, st, first):
        firsts.append((first, p.shape[2]))
        return make_mask(p, st, first)

    out, _, _ = run(schedule, maker=maker)
    assert firsts[:3] == [(0, 6), (6, 6), (12, 4)]
    torch.testing.assert_close(out, whole, atol=1e-5, rtol=1e-4)


def test_bad_masks_are_refused():
    schedule = P(STEPS, st=STConfig(alpha=1.0))
    shape = r"maker: must return bool \[3, 2, 16, 16\] or \[3, 1, 16, 16\], got torch\."
    for maker, message in (
        (lambda p, st, first: p, shape + r"float32 \[3, 2, 16, 16\]"),
        (lambda p, st, first: p[0] > 0, shape + r"bool \[2, 16, 16\]"),
        (lambda p, st, first: p > 1, "maker: must keep an entry in every row"),
    ):
        with pytest.raises(ValueError, match=message):
            run(schedule, maker=maker)
    run(schedule, maker=lambda p, st, first: p[:, :1] > 0)


def test_images_of_a_batch_do_not_depend_on_each_other():
    schedule = P(STEPS, ctr=CTRConfig(threshold=0.6), st=STConfig(alpha=1.0))
    together, log, _ = run(schedule)
    assert any(len(set(record.computed)) > 1 for record in log)  # lists differ in length
    for i, (label, seed) in enumerate(zip(LABELS, SEEDS, strict=True)):
        alone, own, _ = run(schedule, [label], [seed])
        torch.testing.assert_close(together[i : i + 1], alone, atol=1e-4, rtol=1e-3)
        assert [r.computed[i] for r in log] == [r.computed[0] for r in own]


@pytest.mark.parametrize("reference", ["last-computed", "output", "random", "true-change"])
def test_guidance_branches_share_their_lists_and_nothing_else(reference):
    ctr = CTRConfig(reuse=0.5, reference=reference)
    accelerator = golden.attach(MODEL, P(STEPS, warmup=2, ctr=ctr, st=STConfig(alpha=1.0)))
    selected = []
    z = torch.randn(1, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    single = []
    for classes in ([2, 3], [2, 1]):  # the same conditional branch beside two different ones
        outputs = []
        for step in range(STEPS):
            moved = torch.cat([z + 0.1 * step * z.flip(3)] * 2)
            t = torch.full((2,), 900.0 - 100 * step)
            outputs.append(MODEL(moved, t, torch.tensor(classes)))
            rows = accelerator._rows
            assert rows is not None
            assert rows.counts[0] == rows.counts[1]
            assert torch.equal(rows._index[0], rows._index[1])
            selected.append(rows._index[0])
        single.append(torch.stack(outputs))
    golden.detach(MODEL)
    if reference in ("last-computed", "random"):  # the others see both branches' outputs
        torch.testing.assert_close(single[0][:, 0], single[1][:, 0])
    assert not torch.allclose(single[0][:, 1], single[1][:, 1])


def test_a_generation_resumes_from_a_snapshot_to_the_bit():
    schedule = P(STEPS, ctr=CTRConfig(reuse=0.6, forecast=2, feedback=True), st=STConfig(alpha=1.0))
    y = torch.tensor([0, 2])
    latents = torch.randn(STEPS, 2, 1, 8, 8, generator=torch.Generator().manual_seed(3))
    times = [900.0 - 100 * step for step in range(STEPS)]

    def go(model, steps):
        return [model(latents[s], torch.full((2,), times[s]), y) for s in steps]

    accelerator = golden.attach(MODEL, schedule)
    go(MODEL, range(3))
    stored = pickle.dumps(accelerator.snapshot())
    expected = go(MODEL, range(3, STEPS))
    golden.detach(MODEL)

    other = small_model()
    resumed = golden.attach(other, schedule)
    resumed.restore(pickle.loads(stored))
    for a, b in zip(go(other, range(3, STEPS)), expected, strict=True):
        assert torch.equal(a, b)
    assert len(resumed.log) == STEPS


def test_generations_start_by_themselves():
    schedule = P(STEPS, ctr=CTRConfig(reuse=0.6), st=STConfig(alpha=1.0))
    alone, _, _ = run(schedule)
    accelerator = golden.attach(MODEL, schedule)
    sample(MODEL, [2], [9], steps=STEPS, stop_after=3)  # aborted, another batch size
    assert torch.equal(sample(MODEL, LABELS, SEEDS, steps=STEPS), alone)
    assert torch.equal(sample(MODEL, LABELS, SEEDS, steps=STEPS), alone)
    assert [record.step for record in accelerator.log] == list(range(STEPS))
    golden.detach(MODEL)


def test_one_step_runs_start_anew_each_time():
    schedule = P(1, ctr=CTRConfig(reuse=1.0))
    stock = sample(MODEL, LABELS, SEEDS, steps=1)
    golden.attach(MODEL, schedule)
    for _ in range(3):
        assert torch.equal(sample(MODEL, LABELS, SEEDS, steps=1), stock)
    golden.detach(MODEL)


def test_the_report_says_what_was_computed():
    accelerator = golden.attach(MODEL, steps=3, ctr=CTRConfig(reuse=0.5), every=2)
    assert "nothing computed yet" in accelerator.report()
    sample(MODEL, [1], [0], steps=3)
    lines = accelerator.report().splitlines()
    golden.detach(MODEL)
    assert lines[0].startswith("schedule: 3 steps, R5R; CTR last-computed, 50% of tokens reused")
    assert lines[2].split() == ["0R", "1000.0", "100.0%", "100.0%", "100.0%"]
    assert lines[3].split()[2:4] == ["50.0%", "100.0%"]
    assert lines[-1] == "work: 84.4% of dense; attention 83.3%"


def test_bad_use_is_refused_with_a_reason():
    model = small_model()
    with pytest.raises(ValueError, match="transformer: Linear is not supported; want one of"):
        golden.attach(nn.Linear(2, 2), steps=3)
    with pytest.raises(ConfigError, match="steps: missing"):
        golden.attach(model)
    with pytest.raises(ConfigError, match="given together with its parts"):
        golden.attach(model, P(3), ctr=CTRConfig(reuse=0.5))
    with pytest.raises(ValueError, match="transformer: not attached"):
        golden.detach(model)
    with pytest.raises(ValueError, match="in training mode"):
        golden.attach(small_model().train(), steps=3)
    golden.attach(model, steps=3)
    with pytest.raises(ValueError, match="already attached"):
        golden.attach(model, steps=3)
    with pytest.raises(ConfigError, match="steps: the sampler runs a step 4, schedule"):
        sample(model, [0], [0], steps=5)
    bad = torch.full((1, 1, 8, 8), float("nan"))
    with pytest.raises(ValueError, match="latent: holds NaN or infinity in step 0"):
        model(bad, torch.tensor([1000.0]), torch.tensor([0]))
    with pytest.raises(ValueError, match=r"latent: shape .* multiples of patch = 2"):
        model(torch.zeros(1, 1, 7, 8), torch.tensor([1000.0]), torch.tensor([0]))
