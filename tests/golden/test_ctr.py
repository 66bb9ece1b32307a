"""Token decisions against brute force."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from disc.schedule import CTRConfig, Schedule
from golden.ctr import TokenSelector, quantise_latent, select_tokens_int

REFERENCES = ["last-computed", "adjacent", "second-difference", "random"]


def selector_of(patch: int, *, every: int = 1000, warmup: int = 2, **ctr) -> TokenSelector:
    schedule = Schedule.periodic(1000, every=every, warmup=warmup, ctr=CTRConfig(**ctr))
    return TokenSelector(schedule, patch)


def latents(seed: int, steps: int, channels: int, grid: int, patch: int) -> np.ndarray:
    shape = (steps, channels, grid * patch, grid * patch)
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def brute_force_score(z, ref, patch, token):
    row, column = divmod(token, z.shape[2] // patch)
    total = 0.0
    for c in range(z.shape[0]):
        for y in range(row * patch, (row + 1) * patch):
            for x in range(column * patch, (column + 1) * patch):
                total += abs(float(z[c, y, x]) - float(ref[c, y, x]))
    return total / (z.shape[0] * patch * patch)


@given(
    seed=st.integers(0, 1000),
    channels=st.integers(1, 3),
    grid=st.integers(1, 4),
    patch=st.integers(1, 3),
    reference=st.sampled_from(REFERENCES),
    reuse=st.floats(0, 1),
    every=st.integers(1, 4),
)
def test_lists_partition_the_tokens_in_order(seed, channels, grid, patch, reference, reuse, every):
    selector = selector_of(patch, every=every, reference=reference, reuse=reuse)
    for step, z in enumerate(latents(seed, 6, channels, grid, patch)):
        decision = selector.decide(step, z)
        both = np.concatenate([decision.selected, decision.reused])
        assert sorted(both) == list(range(grid * grid))
        assert (np.diff(decision.selected) > 0).all()
        assert (np.diff(decision.reused) > 0).all()
        dense = step < 2 or (step - 1) % every == 0
        assert len(decision.reused) == (0 if dense else round(reuse * grid * grid))
        if len(decision.reused) and len(decision.selected):
            scores = decision.scores
            assert scores[decision.reused].max() <= scores[decision.selected].min()


@given(
    seed=st.integers(0, 1000),
    patch=st.integers(1, 3),
    reference=st.sampled_from(REFERENCES[:3]),
    threshold=st.floats(0, 3),
)
def test_threshold_decisions_match_brute_force(seed, patch, reference, threshold):
    frames = latents(seed, 7, 2, 3, patch)
    selector = selector_of(patch, every=4, reference=reference, threshold=threshold)
    last_computed = [0] * 9  # step at which each token was last computed
    for step, z in enumerate(frames):
        decision = selector.decide(step, z)
        for token in range(9):
            if step == 0:
                ref = z
            elif reference == "adjacent":
                ref = frames[step - 1]
            elif reference == "second-difference" and step > 1:
                ref = 2 * frames[step - 1] - frames[step - 2]
            else:
                ref = frames[last_computed[token]]
            score = brute_force_score(z, ref, patch, token)
            assert decision.scores[token] == pytest.approx(score, abs=1e-5)
            if step >= 2 and (step - 1) % 4 and abs(score - threshold) > 1e-4:
                assert (token in decision.selected) == (score >= threshold)
        for token in decision.selected:
            last_computed[token] = step


def test_score_equal_to_the_threshold_is_selected():
    selector = selector_of(2, warmup=1, threshold=0.25)
    selector.decide(0, np.zeros((1, 2, 4)))
    # Token 0 changes by 0.25 on average, token 1 by a little less.
    z = np.array([[[0.5, -0.5, 0.5, 0.499], [0.0, 0.0, 0.0, 0.0]]])
    assert selector.decide(1, z).selected.tolist() == [0]


def test_slow_drift_is_seen_by_last_computed_only():
    frames = [np.full((1, 4, 4), 0.1 * step, np.float32) for step in range(8)]
    counts = {}
    for reference in ("last-computed", "adjacent", "second-difference"):
        selector = selector_of(2, reference=reference, threshold=0.25)
        counts[reference] = [len(selector.decide(s, z).selected) for s, z in enumerate(frames)]
    assert counts["last-computed"] == [4, 4, 0, 0, 4, 0, 0, 4]
    assert counts["adjacent"] == counts["second-difference"] == [4, 4, 0, 0, 0, 0, 0, 0]


def test_random_control_ignores_the_latent_but_not_its_seed():
    def chosen(seed, scale):
        selector = selector_of(1, reference="random", reuse=0.5, seed=seed)
        return [selector.decide(s, scale * z).selected for s, z in enumerate(frames)][3].tolist()

    frames = latents(0, 4, 1, 8, 1)
    assert chosen(1, 1) == chosen(1, -2)
    assert chosen(1, 1) != chosen(2, 1)


def test_scores_from_elsewhere_are_compared_and_must_fit():
    for reference in ("output", "true-change"):
        selector = selector_of(1, reference=reference, reuse=0.5)
        z = np.zeros((1, 2, 2))
        for step in range(2):
            assert selector.decide(step, z).selected.tolist() == [0, 1, 2, 3]
        assert selector.decide(2, z, scores=[3, 1, 2, 4]).selected.tolist() == [0, 3]
        with pytest.raises(ValueError, match=rf"scores: shape .* as reference '{reference}' needs"):
            selector.decide(3, z, scores=[1.0])


def test_thresholds_may_differ_from_step_to_step():
    ctr = CTRConfig(threshold=(0.0, 0.0, 0.5, 2.0))
    selector = TokenSelector(Schedule(steps=4, refresh=(0, 1), ctr=ctr), patch=1)
    counts = [len(selector.decide(s, np.full((1, 1, 2), float(s))).selected) for s in range(4)]
    assert counts == [2, 2, 2, 0]


def test_not_a_number_and_steps_beyond_the_schedule_are_refused():
    selector = TokenSelector(Schedule(steps=1, refresh=(0,)), patch=1)
    with pytest.raises(ValueError, match="latent: holds NaN or infinity in step 0"):
        selector.decide(0, np.array([[[0.0, np.inf]]]))
    selector.decide(0, np.zeros((1, 1, 2)))
    with pytest.raises(ValueError, match=r"step: 1 is outside 0\.\.0"):
        selector.decide(1, np.zeros((1, 1, 2)))


def test_steps_may_not_be_skipped_nor_latents_misfit():
    selector = selector_of(2, reuse=0.5)
    with pytest.raises(ValueError, match="step: 1 does not follow -1"):
        selector.decide(1, np.zeros((1, 4, 4)))
    with pytest.raises(ValueError, match=r"shape \(1, 5, 4\)"):
        selector.decide(0, np.zeros((1, 5, 4)))


@given(
    seed=st.integers(0, 1000),
    channels=st.integers(1, 3),
    grid=st.integers(1, 4),
    patch=st.integers(1, 3),
    threshold=st.integers(0, 400_000),
)
def test_integer_twin_matches_brute_force(seed, channels, grid, patch, threshold):
    rng = np.random.default_rng(seed)
    shape = (channels, grid * patch, grid * patch)
    z, ref = (rng.integers(-32768, 32768, shape).astype(np.int16) for _ in range(2))
    selected, reused, scores = select_tokens_int(z, ref, patch, threshold)
    expected = []
    for token in range(grid * grid):
        row, column = divmod(token, grid)
        window = np.s_[:, row * patch : (row + 1) * patch, column * patch : (column + 1) * patch]
        pairs = zip(z[window].flat, ref[window].flat, strict=True)
        expected.append(sum(abs(int(a) - int(b)) for a, b in pairs))
    assert scores.tolist() == expected
    assert selected.tolist() == [i for i, s in enumerate(expected) if s >= threshold]
    assert reused.tolist() == [i for i, s in enumerate(expected) if s < threshold]


def test_integer_thresholds_are_monotone_and_zero_selects_all():
    z, ref = (quantise_latent(f, 1e-3) for f in latents(3, 2, 1, 8, 2))
    ref[:, :4] = z[:, :4]  # tokens that did not change at all
    sets = [set(select_tokens_int(z, ref, 2, t)[0].tolist()) for t in (0, 1, 2000, 5000, 10**6)]
    assert len(sets[0]) == 64
    assert len(sets[1]) == 48
    assert sets[0] > sets[1] > sets[2] > sets[3] > sets[4] == set()


def test_integer_twin_agrees_with_the_float_decision_on_grid_values():
    z_q, ref_q = (quantise_latent(f, 2**-8) for f in latents(4, 2, 1, 8, 2))
    selector = selector_of(2, warmup=1, threshold=0.75)
    selector.decide(0, ref_q * 2**-8)
    decision = selector.decide(1, z_q * 2**-8)
    selected, _, _ = select_tokens_int(z_q, ref_q, 2, int(0.75 * 4 * 2**8))
    assert 0 < len(selected) < 64
    assert decision.selected.tolist() == selected.tolist()


def test_quantised_latents_round_to_even_and_saturate():
    z = [0.5, 1.5, -0.5, -1.5, 2.4, 1e9, -1e9]
    assert quantise_latent(z, 1.0).tolist() == [0, 2, 0, -2, 2, 32767, -32767]


@pytest.mark.parametrize(
    ("z", "ref", "threshold", "message"),
    [
        (np.zeros((1, 4, 4), int), np.zeros((1, 4, 2), int), 0, "ref_q: shape"),
        (np.full((1, 2, 2), 40000), np.zeros((1, 2, 2), int), 0, "z_q: a value is outside"),
        (np.zeros((1, 2, 2), int), np.zeros((1, 2, 2), int), -1, "threshold: -1 is below 0"),
        (np.zeros((1, 3, 2), int), np.zeros((1, 3, 2), int), 0, "latent: shape"),
    ],
)
def test_integer_twin_refuses_bad_inputs(z, ref, threshold, message):
    with pytest.raises(ValueError, match=message):
        select_tokens_int(z, ref, 2, threshold)


def test_scale_must_be_positive():
    with pytest.raises(ValueError, match="scale: 0 is not above 0"):
        quantise_latent([1.0], 0)
