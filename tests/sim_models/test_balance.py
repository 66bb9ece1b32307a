from __future__ import annotations

import csv
import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from disc.cli import app
from disc.config import preset
from disc.hashing import BankHash
from sim_models.balance.area import area
from sim_models.balance.engine import engine_record
from sim_models.balance.masks import (
    HARDWARE,
    MAKERS,
    SortedBanks,
    bins,
    even_by_bins,
    fill_in_passes,
    in_banks,
    keep_best,
    make_mask,
    numerators,
)
from sim_models.balance.plot import plot_hashes, plot_masks
from sim_models.balance.run_ahead import (
    ORDERS,
    beside_steps,
    block_steps,
    complements,
    far,
    reorder,
    sliding_steps,
    squares,
    word_steps,
)
from sim_models.balance.study import Inputs, mask_study, masks_of, run_ahead_study, threshold_for

RNG = np.random.default_rng(0)
INPUTS = Inputs(*(1.3 * RNG.normal(size=(2, 3, 2, 2, 64, 8)).astype(np.float32)))
"""Queries and keys of 3 evaluations, 2 layers, 2 heads, 64 tokens."""
HASH = BankHash.xor_fold(4, 4)
ROWS = np.arange(64)


def random_loads(seed, heads=2, rows=16, banks=4):
    return np.random.default_rng(seed).integers(0, 9, (heads, rows, banks))


# -- run-ahead ---------------------------------------------------------------------------------


def simulated(loads, window):
    """Cycle by cycle: each bank takes a step of the row it is in, if the window lets it."""
    todo = loads.astype(int).copy()
    rows, banks = todo.shape
    at = np.zeros(banks, dtype=int)
    cycles = 0
    while True:
        for bank in range(banks):
            while at[bank] < rows and todo[at[bank], bank] == 0:
                # An empty part of a row costs nothing but must wait for the window too.
                if at[bank] - window >= 0 and todo[at[bank] - window].any():
                    break
                at[bank] += 1
        if not todo.any():
            return cycles
        before = todo.copy()
        for bank in range(banks):
            row = at[bank]
            if row < rows and (row < window or not before[row - window].any()):
                todo[row, bank] -= todo[row, bank] > 0
        cycles += 1


@given(st.integers(0, 999), st.integers(1, 6))
def test_sliding_window_is_what_banks_do(seed, window):
    loads = random_loads(seed, heads=1, rows=9)
    done_rows_in_order = simulated(loads[0], window)
    assert sliding_steps(loads, window)[0] == done_rows_in_order


@given(st.integers(0, 999), st.integers(1, 6))
def test_run_ahead_never_hurts_and_never_beats_the_mean_load(seed, window):
    loads = random_loads(seed)
    assert np.array_equal(sliding_steps(loads, 1), block_steps(loads, 1))
    slide, block = sliding_steps(loads, window), block_steps(loads, window)
    assert (slide <= block).all()
    assert (block <= block_steps(loads, 1)).all()
    assert (slide >= loads.sum(axis=-2).max(axis=-1)).all()
    whole = loads.shape[-2]
    assert np.array_equal(sliding_steps(loads, whole), loads.sum(axis=-2).max(axis=-1))


@given(st.integers(0, 999), st.integers(1, 4))
def test_run_ahead_over_words_is_between_none_and_over_rows(seed, window):
    loads = random_loads(seed)
    rows, words = sliding_steps(loads, window), 3 * window
    assert np.array_equal(word_steps(loads, window, 1), rows)
    assert (word_steps(loads, window, 3) >= word_steps(loads, words, 3)).all()
    assert (word_steps(loads, window, 3) <= block_steps(loads, 1)).all()
    # As many words as `window` rows have: a bank may begin a word a row's time earlier.
    assert (word_steps(loads, words, 3) <= rows).all()


def test_run_ahead_over_words_by_hand():
    # Row 0: three words of 2 and 0 steps; row 1: 0 and 2.  Two words ahead, bank 1 may begin row 1
    # when bank 0 is in its last word, after 4 of 6 cycles.
    loads = np.array([[2, 0], [0, 2]])
    assert word_steps(loads, 2, 3) * 3 == 4 + 6
    assert word_steps(loads, 6, 3) * 3 == 6


def test_beside_by_hand():
    loads = np.array([[3, 1], [1, 3], [2, 2]])
    # Dot 0 alone 3; axpy 0 with dot 1: 4; axpy 1 with dot 2: 5; axpy 2 alone 2.
    assert beside_steps(loads) == (3 + 4 + 5 + 2) / 2
    # Two words: 3 + 2 ceil(1 / 2) = 5, 1 + 2 ceil(3 / 2) = 5; apart would be 6; then 3 and 5: 5.
    assert beside_steps(loads, beats=2) == (3 + 5 + 5 + 2) / 2


@given(st.integers(0, 999))
def test_beside_is_no_slower_than_apart(seed):
    loads = random_loads(seed)
    apart = block_steps(loads, 1)
    assert (beside_steps(loads) <= apart).all()
    assert (beside_steps(loads) <= beside_steps(loads, beats=4)).all()
    assert (beside_steps(loads, beats=4) <= apart).all()


def test_orders_are_permutations_and_squares_are_squares():
    loads = random_loads(1, heads=3, rows=64)
    for name, order in ORDERS.items():
        assert np.array_equal(
            np.sort(order(loads), axis=-1)[..., :], np.broadcast_to(ROWS, order(loads).shape)
        ), name
        assert np.array_equal(reorder(loads, order(loads)).sum(axis=-2), loads.sum(axis=-2)), name
    assert squares(loads)[:6].tolist() == [0, 1, 2, 3, 8, 9]
    assert far(loads)[:4].tolist() == [0, 32, 16, 48]


def test_complements_pair_rows_that_fill_each_other():
    one, other = [4, 0, 4, 0], [0, 4, 0, 4]
    loads = np.array([[one, one, other, other]])
    ordered = reorder(loads, complements(loads))
    assert block_steps(ordered, 2)[0] == 8
    assert block_steps(loads, 2)[0] == 16


# -- masks -------------------------------------------------------------------------------------


def best_mass(p, own, hash_, quota):
    """Mass of each bank's best columns, the own column among them, the slow way."""
    banks = hash_.bank(np.arange(p.shape[-1]))
    total = 0.0
    for bank in range(hash_.banks):
        columns = np.flatnonzero(banks == bank)
        ordered = sorted(columns, key=lambda j: (j != own, -p[j]))
        total += p[ordered[:quota]].sum(dtype=np.float64)
    return total


def test_sorted_banks_know_mass_and_quotas():
    p = INPUTS.probabilities(0)[0, 0]
    parts = SortedBanks.of(p, ROWS, HASH)
    quota = np.arange(64) % 16 + 1
    expected = [best_mass(p[i], i, HASH, quota[i]) for i in range(64)]
    assert parts.mass(quota) == pytest.approx(expected)
    threshold = 1.5 / 64
    plain = (p >= threshold) | np.eye(64, dtype=bool)
    counts = in_banks(plain, HASH).sum(axis=-1)
    assert np.array_equal(parts.counts(threshold), counts)
    assert parts.plain_mass(threshold) == pytest.approx(p[plain].sum())
    assert np.array_equal(parts.quota("plain", threshold), counts.max(axis=1))
    assert np.array_equal(parts.quota("even", threshold), np.ceil(counts.sum(axis=1) / 4))


@pytest.mark.parametrize("maker", [*MAKERS, *HARDWARE])
def test_every_maker_keeps_its_own_column_and_its_quota(maker):
    p = INPUTS.probabilities(1)
    threshold = 1.5 / 64
    mask = make_mask(maker, p, ROWS, HASH, threshold)
    assert mask.shape == p.shape
    assert mask[..., ROWS, ROWS].all()
    loads = in_banks(mask, HASH).sum(axis=-1)
    plain = (p >= threshold) | np.eye(64, dtype=bool)
    counts = in_banks(plain, HASH).sum(axis=-1)
    if maker == "plain":
        assert np.array_equal(mask, plain)
    elif maker == "fill up":
        assert (mask >= plain).all()
        assert (loads == counts.max(axis=-1, keepdims=True)).all()
    elif maker == "even":
        assert (loads == -(-counts.sum(axis=-1, keepdims=True) // 4)).all()
    elif maker in ("by layer", "uniform"):
        assert (loads == loads[..., :1]).all()
    if maker.startswith("filled"):
        # Numerators are rounded, so their plain mask is not exactly that of probabilities.
        assert abs(int(loads.max(axis=-1).sum()) - int(counts.max(axis=-1).sum())) < 40


def test_layers_are_the_best_quotas():
    """No quotas of as many steps in all keep more; all quotas of three rows are tried."""
    p = INPUTS.probabilities(0)[0, 0, :3]
    parts = SortedBanks.of(p, ROWS[:3], HASH)
    quota = parts.quota("by layer", 2 / 64)
    for layers, steps in zip(np.diff(parts.layers, axis=1), quota, strict=True):
        assert steps == 1 or layers[steps - 1] >= 4 * 2 / 64
        assert layers[steps] < 4 * 2 / 64
    best = max(
        parts.mass(np.array(other)).sum()
        for other in itertools.product(range(1, 17), repeat=3)
        if sum(other) == quota.sum()
    )
    assert parts.mass(quota).sum() == pytest.approx(best)


def test_keep_best_takes_the_first_among_equals_and_never_zero():
    order = np.array([[[1, 2, 2, 0], [0, 0, 1, 0]]])
    assert keep_best(order, np.array([2]))[0].tolist() == [
        [False, True, True, False],
        [False, False, True, False],
    ]
    assert keep_best(order, np.array([1]))[0, 0].tolist() == [False, True, False, False]


def test_filling_in_passes_by_hand():
    e = np.array([[[9, 8, 5, 4], [5, 3, 2, 9]]])
    own = np.zeros_like(e, dtype=bool)
    filled = fill_in_passes(e, own, np.array([8]), 1)[0]
    assert filled.tolist() == [[True, True, False, False], [True, False, False, True]]
    # Own column 2 of bank 1 counts; at half the threshold bank 1 finds nothing more to take.
    own[0, 1, 2] = True
    filled = fill_in_passes(e, own, np.array([8]), 1)[0]
    assert filled.tolist() == [[True, True, False, False], [False, False, True, True]]
    # A quarter is 2: only after those of a half.
    e = np.array([[[9, 9, 9, 9], [2, 9, 5, 3]]])
    own = np.zeros_like(e, dtype=bool)
    assert fill_in_passes(e, own, np.array([8]), 1)[0, 1].tolist() == [False, True, True, False]
    assert fill_in_passes(e, own, np.array([8]), 2)[0, 1].all()


def test_bins_are_ordered_and_even_masks_follow_them():
    e = np.arange(1024)
    for fraction in (0, 1, 2):
        found = bins(e, fraction)
        assert found[0] == 0
        assert (np.diff(found) >= 0).all()
        # Above the fraction's own range every octave has 2**fraction bins.
        assert len(np.unique(found[512:])) == 1 << fraction
        assert len(np.unique(found[256:512])) == 1 << fraction
    e = np.array([[[900, 600, 520, 10], [100, 70, 65, 9]]])
    own = np.zeros_like(e, dtype=bool)
    # Three reach 500: two a bank.  With one bin an octave the first two of each.
    assert even_by_bins(e, own, np.array([500]), 0)[0].tolist() == [
        [True, True, False, False],
        [True, True, False, False],
    ]


def test_numerators_are_those_of_the_golden_core():
    from disc.config import NumberConfig
    from golden.integer.softmax import numerators as golden

    number = NumberConfig()
    scores = np.random.default_rng(3).integers(-600, 300, (20, 64))
    maximum = -(-scores.max(axis=-1) // (1 << number.score_fraction_bits))
    expected = golden(scores, maximum, number)
    p = np.exp2(scores / (1 << number.score_fraction_bits)).astype(np.float32)
    assert np.abs(numerators(p) - expected).max() <= 1


# -- studies -----------------------------------------------------------------------------------


def test_threshold_gives_the_density():
    threshold = threshold_for(INPUTS, 0.3)
    assert masks_of(INPUTS, threshold).mean() == pytest.approx(0.3, abs=0.03)


def test_run_ahead_records():
    masks = masks_of(INPUTS, 1.2 / 64)
    records, chosen = run_ahead_study(masks[:1], masks[1:], banks=(4,), windows=(1, 2, 4))
    keys = [(r["hash"], r["measure"], r["window"], r["order"]) for r in records]
    assert len(set(keys)) == len(keys)
    one = {r["hash"]: r for r in records if (r["measure"], r["window"]) == ("slide", 1)}
    assert set(one) == set(chosen[4])
    counts = masks[1:].sum(axis=-1)
    for r in records:
        assert r["kept"] == counts.sum()
        assert r["ideal_steps"] == np.ceil(counts / 4).sum()
        assert r["steps"] * 4 >= r["kept"]
    modulo = in_banks(masks[1:], BankHash.modulo(4, 4)).sum(axis=-1).max(axis=-1).sum()
    assert one["modulo"]["steps"] == modulo


def test_mask_records_and_their_order():
    thresholds = [threshold_for(INPUTS, density) for density in (0.3, 0.12)]
    records = mask_study(INPUTS, thresholds, {4: HASH}, "xor-fold", hardware=(4,))
    assert len(records) == 2 * (len(MAKERS) + 1 + len(HARDWARE))
    for density in {r["density"] for r in records}:
        of_ideal = {r["maker"]: r["of_ideal"] for r in records if r["density"] == density}
        assert of_ideal["ideal"] == 1
        assert of_ideal["plain"] < of_ideal["fill up"]
        assert of_ideal["plain"] < of_ideal["even"]
        for maker in ("plain", "fill up", "even", "uniform", *HARDWARE):
            # Interpolated between thresholds.
            assert of_ideal[maker] <= of_ideal["by layer"] * 1.01, maker
        for maker in HARDWARE:
            assert of_ideal[maker] > of_ideal["plain"], maker
    assert all(r["filling"] == pytest.approx(1) for r in records if r["maker"] == "even")


def test_engine_takes_what_banks_take():
    p = INPUTS.probabilities(0)[0, 0]
    plain, even = (make_mask(name, p, ROWS, HASH, 1.5 / 64) for name in ("plain", "even"))
    for mask in (plain, even):
        record = engine_record(mask, HASH, 32)
        steps = in_banks(mask, HASH).sum(axis=-1).max(axis=-1).sum()
        assert record["dot_cycles"] == record["axpy_cycles"] == 4 * steps
        assert 0 < record["cycles"] - 8 * steps < 100
        assert record["dot_utilisation"] == pytest.approx(mask.sum() / 4 / steps)
    assert record["dot_utilisation"] == 1


def test_area_counts_what_grows():
    small, large = ({r["measure"]: r for r in area(preset("server"), window)} for window in (4, 8))
    for measure, record in small.items():
        assert record["gates"] >= 0
        if "over 2" in measure or not measure.startswith("run-ahead"):
            assert record == large[measure]
    axpy = "run-ahead over {} rows, axpy"
    assert large[axpy.format(8)]["memory_bits"] == 2 * small[axpy.format(4)]["memory_bits"]
    # 16 banks, 72 lanes, one word a row, 32 bits, 8 rows twice.
    assert large[axpy.format(8)]["memory_bits"] == 16 * 72 * 32 * 8 * 2


def test_pictures():
    masks = masks_of(INPUTS, 1.2 / 64)
    records, chosen = run_ahead_study(masks[:1], masks[1:], banks=(2, 4), windows=(1, 8))
    assert plot_hashes(records).startswith(b"\x89PNG")
    hashes = {banks: each["xor-fold"][0, 0] for banks, each in chosen.items()}
    records = mask_study(INPUTS, [1.2 / 64], hashes, "xor-fold", hardware=())
    assert plot_masks(records).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sliding_steps(random_loads(0), 0), "window: must be at least 1"),
        (lambda: squares(random_loads(0, rows=15)), "loads: rows must be a square"),
        (lambda: in_banks(np.ones((2, 66)), HASH), "values: columns must be a multiple of 4"),
        (
            lambda: make_mask("other", INPUTS.probabilities(0), ROWS, HASH, 0.1),
            "maker: must be one of plain",
        ),
    ],
)
def test_errors_name_the_field(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# -- command -----------------------------------------------------------------------------------


def disc(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_command_refuses_a_density_before_it_works(tmp_path):
    done = disc("balance", "--density", 1.5, "--out", tmp_path / "out")
    assert done.exit_code
    assert "density: must be above 0 and below 1, got 1.5" in str(done.exception)
    assert not (tmp_path / "out").exists()


@pytest.mark.full
def test_command_on_the_trained_model(tmp_path):
    arguments = ("--checkpoint", "digits-256", "--banks", 16, "--density", 0.1, "--images", 2)
    done = disc("balance", *arguments, "--out", tmp_path, "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    for name in ("hashes", "masks", "engine", "area", "images"):
        with open(tmp_path / f"balance-{name}.csv") as file:
            assert len(list(csv.DictReader(file))) == len(report[name])
    of_ideal = {r["maker"]: r["of_ideal"] for r in report["masks"] if r["hash"] == "xor-fold"}
    one = {
        r["hash"]: r["of_ideal"]
        for r in report["hashes"]
        if (r["measure"], r["window"]) == ("slide", 1)
    }
    assert one["modulo"] < one["xor-fold"] < one["searched"] < 0.8
    assert of_ideal["plain"] == pytest.approx(one["xor-fold"], abs=0.02)
    assert of_ideal["even"] > 0.95
    assert of_ideal["even, 2 bins"] > 0.9
    images = {r["maker"]: r for r in report["images"]}
    assert images["even, 2 bins"]["steps"] < 0.65 * images["plain"]["steps"]
    assert images["even, 2 bins"]["psnr_db"] > images["plain"]["psnr_db"] - 1
