import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from disc.hashing import ASSIGNMENTS, BankHash, bank_assignment, bank_loads, search
from sim_models.banking import (
    expected_fullest,
    fullest_bank,
    plot_utilisation,
    score,
    split_masks,
    study,
    window_loads,
)


def local_masks(steps, layers, heads, side, density, seed):
    """Attention-like masks on a square image: near keys, popular keys, and noise."""
    rng = np.random.default_rng(seed)
    n = side * side
    y, x = np.divmod(np.arange(n), side)
    near = -((y[:, None] - y) ** 2 + (x[:, None] - x) ** 2) / (2 * (side / 4) ** 2)
    popular = rng.normal(0, 0.5, (1, layers, heads, 1, n))
    scores = near + popular + rng.normal(0, 0.5, (steps, layers, heads, n, n))
    return scores > np.quantile(scores, 1 - density, axis=-1, keepdims=True)


MASKS = local_masks(2, 2, 2, 8, 0.3, 0)


def test_fullest_bank_by_hand():
    masks = np.array([[1, 1, 0, 0, 1, 0, 0, 0], [0, 0, 0, 1, 0, 0, 0, 1]], dtype=bool)
    modulo = bank_assignment("modulo", 8, 4)
    assert fullest_bank(masks, modulo, 4).tolist() == [2, 2]
    loads = bank_loads(masks, modulo, 4)  # [2, 1, 0, 0] and [0, 0, 0, 2]
    one = score(loads, 1)
    assert (one["kept"], one["cycles"], one["ideal_cycles"]) == (5, 4, 2)
    assert one["utilisation"] == 5 / 16
    assert one["ideal_utilisation"] == 5 / 8
    both = score(loads, 2)
    assert (both["cycles"], both["ideal_cycles"]) == (2, 2)
    assert both["utilisation"] == 5 / 8


@given(st.integers(1, 12), st.integers(1, 15), st.integers(0, 99))
def test_windows_cover_every_row_once(rows, window, seed):
    loads = np.random.default_rng(seed).integers(0, 9, (2, rows, 4))
    grouped = window_loads(loads, window)
    expected = [loads[:, start : start + window].sum(axis=1) for start in range(0, rows, window)]
    assert np.array_equal(grouped, np.stack(expected, axis=1))


@given(st.sampled_from(ASSIGNMENTS), st.sampled_from([2, 8, 32]), st.integers(1, 6))
def test_no_assignment_beats_the_ideal_and_run_ahead_never_hurts(name, banks, factor):
    hash_ = BankHash.random_gf2(banks, 6, seed=factor)
    loads = bank_loads(MASKS, bank_assignment(name, 64, banks, searched=hash_), banks)
    single, windowed = score(loads, 1), score(loads, factor)
    assert windowed["cycles"] <= single["cycles"]
    for result in (single, windowed):
        assert result["ideal_cycles"] <= result["cycles"]
        assert 0 < result["utilisation"] <= result["ideal_utilisation"] <= 1


def test_dense_masks_fill_every_bank_under_every_balanced_assignment():
    dense = np.ones((2, 2, 1, 4, 64), dtype=bool)
    for record in study(dense, banks=(8,), windows=(1, None), restarts=0):
        if record["hash"] != "multiplicative":
            assert record["utilisation"] == 1


@pytest.mark.parametrize(
    ("columns", "banks", "density"),
    [(256, 16, 0.3), (1000, 16, 0.1), (40, 16, 0.5), (7, 8, 0.5), (4096, 8, 0.7)],
)
def test_expected_fullest_bank_agrees_with_monte_carlo(columns, banks, density):
    rng = np.random.default_rng(0)
    sizes = np.bincount(np.arange(columns) % banks, minlength=banks)
    drawn = rng.binomial(sizes, density, (20_000, banks)).max(axis=1)
    error = 5 * drawn.std() / np.sqrt(len(drawn))
    assert expected_fullest(columns, banks, density) == pytest.approx(drawn.mean(), abs=error)


def test_expected_fullest_bank_of_masks_of_ones():
    assert expected_fullest(1000, 16, 1.0) == 63
    assert expected_fullest(1000, 16, 1 - 1e-12) == pytest.approx(63)


def test_splits_do_not_share_masks():
    masks = np.arange(4 * 3 * 2).reshape(4, 3, 2, 1, 1)  # a number for each mask
    searched_on, scored_on = split_masks(masks, "layer")
    assert searched_on.shape[:2] == (4, 2)
    assert scored_on.shape[:2] == (4, 1)
    assert not np.isin(searched_on, scored_on).any()
    searched_on, scored_on = split_masks(masks, "step")
    assert searched_on.shape[:2] == scored_on.shape[:2] == (2, 3)
    assert searched_on.max() < scored_on.min()


def test_study_has_one_record_for_each_combination_and_scores_held_out_masks():
    records = study(MASKS, banks=(8, 16), windows=(1, 4, 99), split="step", restarts=1)
    assert len(records) == 2 * 3 * len(ASSIGNMENTS)
    assert len({(r["banks"], r["hash"], r["window"]) for r in records}) == len(records)
    assert {r["window"] for r in records} == {1, 4, 64}
    found = search(MASKS[:1], 16, 2, seed=0, restarts=1)
    record = next(r for r in records if (r["banks"], r["hash"], r["window"]) == (16, "searched", 1))
    assert record["matrix"] == str(found)
    assert record["cycles"] == fullest_bank(MASKS[1:], found.bank(np.arange(64)), 16).sum()
    assert record["density"] == MASKS[1:].mean()


def test_a_searched_hash_helps_on_masks_that_it_has_not_seen():
    # Local masks on a 16-wide image: modulo puts a whole image column into one bank.
    masks = local_masks(1, 4, 2, 16, 0.3, 1)
    records = study(masks, banks=(16,), windows=(1,))
    cycles = {record["hash"]: record["cycles"] for record in records}
    assert cycles["searched"] < cycles["modulo"]
    assert cycles["searched"] < cycles["contiguous"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: window_loads(np.ones((2, 4), int), 0), "window: must be at least 1"),
        (lambda: score(np.zeros((2, 4), int), 1), "masks: must keep at least one column"),
        (lambda: split_masks(np.ones((2, 4), bool), "layer"), "masks: must be .steps"),
        (lambda: split_masks(MASKS[:, :1], "layer"), "split: 'layer' needs .* got 1"),
        (lambda: split_masks(MASKS[:1], "step"), "split: 'step' needs .* got 1"),
        (lambda: split_masks(MASKS, "head"), "split: must be 'layer' or 'step', got 'head'"),
        (lambda: expected_fullest(0, 8, 0.5), "columns: must be at least 1"),
        (lambda: expected_fullest(8, 8, 0.0), "density: must be above 0"),
        (lambda: plot_utilisation([{}], "x.pdf"), "path: must end in .png or .svg"),
        (lambda: plot_utilisation([], "x.png"), "records: must not be empty"),
    ],
)
def test_errors_name_the_field(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_figure_is_written_in_both_formats(tmp_path):
    records = study(MASKS, banks=(8,), windows=(1, None), restarts=0)
    plot_utilisation(records, tmp_path / "u.png")
    plot_utilisation(records, tmp_path / "u.svg")
    assert (tmp_path / "u.png").read_bytes().startswith(b"\x89PNG")
    svg = (tmp_path / "u.svg").read_text()
    for text in ("bank utilisation (%)", "run-ahead window (rows)", *ASSIGNMENTS, "ideal"):
        assert f"<!-- {text} -->" in svg
