import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from disc.hashing import (
    ASSIGNMENTS,
    BankHash,
    bank_assignment,
    bank_loads,
    local_bits_for,
    search,
    total_fullest,
)

BALANCED = [name for name in ASSIGNMENTS if name != "multiplicative"]


@st.composite
def hashes(draw):
    bank_bits = draw(st.integers(1, 6))
    local_bits = draw(st.integers(1, 8))
    row = st.integers(0, (1 << local_bits) - 1)
    return BankHash(bank_bits, local_bits, tuple(draw(row) for _ in range(bank_bits)))


@st.composite
def hashes_and_columns(draw):
    hash_ = draw(hashes())
    return hash_, draw(st.integers(1, hash_.max_columns))


def clustered_masks(rows, columns, seed):
    """Rows that keep a few runs of neighbours and some popular columns, as attention does."""
    rng = np.random.default_rng(seed)
    popular = rng.normal(size=columns)
    wave = np.sin(np.arange(columns) * 2 * np.pi / 16 + rng.uniform(0, 6, (rows, 1)))
    return popular + wave + rng.normal(0, 0.5, (rows, columns)) > 0.8


def parity_by_hand(value):
    return str(bin(value)).count("1") % 2


def test_bank_follows_the_definition_bit_by_bit():
    hash_ = BankHash(2, 3, (0b011, 0b110))
    for j in range(32):
        lo, hi = j % 4, j // 4
        bit0 = (lo & 1) ^ parity_by_hand(hi & 0b011)
        bit1 = (lo >> 1) ^ parity_by_hand(hi & 0b110)
        assert hash_.bank(j) == bit0 + 2 * bit1
        assert hash_.local(j) == hi


@given(hashes_and_columns())
def test_slots_are_a_bijection_even_when_columns_are_not_a_multiple_of_banks(case):
    hash_, columns = case
    per_bank = -(-columns // hash_.banks)
    assert hash_.columns_per_bank(columns) == per_bank
    every = np.arange(per_bank * hash_.banks)
    slots = hash_.bank(every) * per_bank + hash_.local(every)
    assert np.array_equal(np.sort(slots), every)


@given(hashes())
def test_column_undoes_bank_and_local(hash_):
    j = np.arange(hash_.max_columns)
    assert np.array_equal(hash_.column(hash_.bank(j), hash_.local(j)), j)


@given(hashes_and_columns())
def test_banks_are_balanced_within_one_column(case):
    hash_, columns = case
    loads = np.bincount(hash_.bank(np.arange(columns)), minlength=hash_.banks)
    assert loads.max() - loads.min() <= 1


@given(hashes_and_columns(), st.integers(0, 2**32 - 1))
def test_bank_order_round_trip(case, seed):
    hash_, columns = case
    bits = np.random.default_rng(seed).random((2, columns)) < 0.5
    ordered = hash_.to_bank_order(bits)
    assert ordered.shape == (2, hash_.banks, hash_.columns_per_bank(columns))
    assert ordered.sum() == bits.sum()  # no slot beyond the last column reads as kept
    assert np.array_equal(hash_.from_bank_order(ordered, columns), bits)
    j = np.arange(columns)
    assert np.array_equal(ordered[:, hash_.bank(j), hash_.local(j)], bits)


@given(hashes())
def test_text_and_json_restore_the_hash(hash_):
    assert BankHash.parse(str(hash_), hash_.local_bits) == hash_
    assert BankHash.from_json(json.loads(json.dumps(hash_.to_json()))) == hash_


def test_text_form():
    hash_ = BankHash(2, 3, (3, 5))
    assert str(hash_) == "0x3,0x5"
    assert BankHash.parse(" 3, 0b101", 3) == hash_


def test_named_hashes():
    j = np.arange(256)
    assert np.array_equal(BankHash.modulo(16, 4).bank(j), j % 16)
    # On a 16-wide image XOR-fold of 16 banks is x ^ y.
    assert np.array_equal(BankHash.xor_fold(16, 4).bank(j), (j % 16) ^ (j // 16))
    folded = (np.arange(512) & 7) ^ (np.arange(512) >> 3 & 7) ^ (np.arange(512) >> 6)
    assert np.array_equal(BankHash.xor_fold(8, 6).bank(np.arange(512)), folded)
    assert BankHash.random_gf2(16, 6, seed=1) == BankHash.random_gf2(16, 6, seed=1)
    assert BankHash.random_gf2(16, 6, seed=1) != BankHash.random_gf2(16, 6, seed=2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BankHash(0, 3, ()), r"bank_bits: must be 1 to 16, got 0"),
        (lambda: BankHash(2, 0, (0, 0)), r"local_bits: must be 1 to 32, got 0"),
        (lambda: BankHash(2, 3, (0,)), r"rows: must have one entry for each of 2 bank bits"),
        (lambda: BankHash(2, 3, (0, 8)), r"rows\[1\]: must be 0 to 0x7 .*got 0x8"),
        (lambda: BankHash(2, 3, (-1, 0)), r"rows\[0\]: must be 0 to 0x7"),
        (lambda: BankHash.modulo(12, 3), r"banks: must be a power of two .*got 12"),
        (lambda: BankHash.parse("0x3,zebra", 3), r"rows: must be comma-separated"),
        (lambda: BankHash.from_json({"rows": [1]}), r"hash: must have the fields"),
        (lambda: BankHash.modulo(4, 3).bank(32), r"column: must be 0 to 31"),
        (lambda: BankHash.modulo(4, 3).column(4, 0), r"bank: must be 0 to 3"),
        (lambda: BankHash.modulo(4, 3).column(0, -1), r"local: must be 0 to 7"),
        (lambda: BankHash.modulo(4, 1).to_bank_order(np.ones(9, bool)), r"columns: must be 1 to 8"),
        (
            lambda: BankHash.modulo(4, 1).from_bank_order(np.ones((4, 2), bool), 4),
            r"bits: must have shape \[..., 4, 1\]",
        ),
        (lambda: bank_assignment("sorted", 16, 4), r"name: must be one of contiguous, modulo"),
        (lambda: bank_assignment("searched", 16, 4), r"searched: must be a hash of 4 banks"),
        (
            lambda: bank_loads(np.ones((2, 8), bool), np.zeros(7, int), 4),
            r"assignment: must have one bank for each of 8 columns",
        ),
        (
            lambda: search(np.ones((2, 65), bool), 16, 2),
            r"masks: must have at most banks \* 2\*\*local_bits = 64 columns, got 65",
        ),
        (lambda: search(np.ones(64, bool), 16, 2), r"masks: must be \[..., rows, N\]"),
        (lambda: search(np.ones((2, 64), bool), 16, 2, max_rows=0), r"max_rows at least 1"),
    ],
)
def test_errors_name_the_field(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@given(st.integers(1, 400), st.sampled_from([2, 8, 32]), st.integers(0, 5))
def test_every_assignment_gives_banks_and_balanced_ones_are(columns, banks, seed):
    hash_ = BankHash.random_gf2(banks, local_bits_for(columns, banks), seed=seed)
    for name in ASSIGNMENTS:
        bank = bank_assignment(name, columns, banks, seed=seed, searched=hash_)
        assert bank.shape == (columns,)
        loads = np.bincount(bank, minlength=banks)
        assert len(loads) == banks
        if name in BALANCED:
            assert loads.max() - loads.min() <= 1


def test_assignments_differ_and_mean_what_they_say():
    hash_ = BankHash.random_gf2(8, 4, seed=3)
    found = {n: bank_assignment(n, 100, 8, seed=1, searched=hash_).tolist() for n in ASSIGNMENTS}
    assert len({tuple(bank) for bank in found.values()}) == len(ASSIGNMENTS)
    assert found["contiguous"] == sorted(found["contiguous"])
    assert found["searched"] == hash_.bank(np.arange(100)).tolist()
    golden_ratio = (5**0.5 + 1) / 2
    by_float = [int((j / golden_ratio % 1) * 8) for j in range(100)]
    assert found["multiplicative"] == by_float
    assert bank_assignment("random", 100, 8, seed=2).tolist() != found["random"]


def test_loads_count_kept_columns():
    masks = np.random.default_rng(0).random((3, 5, 40)) < 0.3
    assignment = bank_assignment("random", 40, 8)
    loads = bank_loads(masks, assignment, 8)
    assert loads.shape == (3, 5, 8)
    for index in np.ndindex(3, 5):
        expected = np.bincount(assignment[masks[index]], minlength=8)
        assert np.array_equal(loads[index], expected)
    assert total_fullest(masks, assignment, 8) == loads.max(axis=-1).sum()


def test_loads_of_more_rows_than_one_block_holds():
    masks = np.zeros((9000, 4096), dtype=bool)
    kept = np.arange(9000) % 4096
    masks[np.arange(9000), kept] = True
    assignment = bank_assignment("xor-fold", 4096, 32)
    loads = bank_loads(masks, assignment, 32)
    assert np.array_equal(loads.argmax(axis=1), assignment[kept])
    assert np.array_equal(loads.sum(axis=1), np.ones(9000))


@settings(max_examples=25, deadline=None)
@given(
    st.integers(17, 150),
    st.sampled_from([4, 8, 64]),
    st.integers(0, 2**32 - 1),
    st.sampled_from([7, 1000]),
)
def test_search_is_never_worse_than_the_presets_on_its_own_masks(columns, banks, seed, max_rows):
    # Few sampled rows make the search fit noise: only the final comparison can save it then.
    masks = clustered_masks(60, columns, seed)
    local_bits = local_bits_for(columns, banks)
    found = search(masks, banks, local_bits, seed=seed, restarts=1, max_rows=max_rows)
    j = np.arange(columns)
    cost = total_fullest(masks, found.bank(j), banks)
    for preset in (BankHash.modulo(banks, local_bits), BankHash.xor_fold(banks, local_bits)):
        assert cost <= total_fullest(masks, preset.bank(j), banks)


def test_search_finds_the_best_of_all_matrices_of_a_small_space():
    masks = clustered_masks(200, 32, 5)
    j = np.arange(32)
    every = [BankHash(2, 3, (a, b)) for a in range(8) for b in range(8)]
    best = min(total_fullest(masks, hash_.bank(j), 4) for hash_ in every)
    found = search(masks, 4, 3, seed=0)
    assert total_fullest(masks, found.bank(j), 4) == best


@pytest.mark.parametrize("seed", range(4))
def test_search_rests_where_no_two_columns_of_h_can_be_changed_for_the_better(seed):
    masks = clustered_masks(40, 64, seed)
    j = np.arange(64)

    def cost(flips):  # flips[k]: what bit k of the local index XORs into the bank
        bank = j % 8
        for k, flip in enumerate(flips):
            bank = bank ^ np.where(j // 8 >> k & 1, flip, 0)
        return total_fullest(masks, bank, 8)

    found = search(masks, 8, 3, seed=seed, restarts=0)
    flips = [int(found.bank(8 << k)) for k in range(3)]
    best = cost(flips)
    assert best == total_fullest(masks, found.bank(j), 8)
    for k, other in ((0, 1), (0, 2), (1, 2)):
        for value in np.ndindex(8, 8):
            trial = flips.copy()
            trial[k], trial[other] = value
            assert cost(trial) >= best


def test_search_improves_more_banks_than_it_tries_in_pairs():
    masks = clustered_masks(100, 256, 0)
    j = np.arange(256)
    found = search(masks, 32, 3, seed=0, restarts=0)
    best = total_fullest(masks, found.bank(j), 32)
    for k in range(3):
        for flip in range(1, 32):
            changed = found.bank(j) ^ np.where(j // 32 >> k & 1, flip, 0)
            assert total_fullest(masks, changed, 32) >= best


def test_search_judges_its_candidates_on_all_rows_not_on_the_sample():
    # Every hash is as good as any other on random masks; descent on three rows fits their noise,
    # and is no better than a preset on all rows.
    for seed in range(10):
        masks = np.random.default_rng(seed).random((400, 128)) < 0.3
        found = search(masks, 16, 3, seed=seed, restarts=0, max_rows=3)
        xor_fold = BankHash.xor_fold(16, 3).bank(np.arange(128))
        cost = total_fullest(masks, found.bank(np.arange(128)), 16)
        assert cost <= total_fullest(masks, xor_fold, 16)


def test_search_avoids_a_conflict_that_both_presets_have():
    # Kept columns 0, 5, 10, ... share a bank under XOR-fold (x ^ y = 0), columns 0, 4, 8, ...
    # under modulo.  Some H spreads both patterns.
    masks = np.zeros((2, 16), dtype=bool)
    masks[0, ::5] = True
    masks[1, ::4] = True
    found = search(masks, 4, 2, seed=0)
    assert total_fullest(masks, found.bank(np.arange(16)), 4) == 2


def test_search_is_deterministic_and_reports_progress():
    masks = clustered_masks(300, 128, 1)
    calls = []
    first = search(
        masks.reshape(3, 100, 128),
        16,
        3,
        seed=4,
        restarts=2,
        max_rows=100,
        progress=lambda done, total: calls.append((done, total)),
    )
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert search(masks, 16, 3, seed=4, restarts=2, max_rows=100) == first


def test_search_uses_all_local_bits_it_was_given():
    # 20 columns in 4 banks need 3 local bits; the hash must still fit hardware that has 6.
    assert search(clustered_masks(20, 20, 0), 4, 6, seed=0, restarts=0).local_bits == 6
