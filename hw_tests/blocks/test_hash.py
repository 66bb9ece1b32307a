"""Column-to-bank hash against `disc.hashing`."""

from __future__ import annotations

import numpy as np
import pytest

from hw_tests import sim
from hw_tests.blocks.configs import CONFIGS, hashes
from hw_tests.blocks.vectors import drive


@pytest.mark.parametrize("name", CONFIGS)
def test_every_place_under_many_matrices(name):
    config, seed = CONFIGS[name], sim.choose_seed()
    B, places = config.array.banks, config.array.banks << config.local_bits
    family = hashes(config, 10, seed)
    column = np.tile(np.arange(places), len(family))
    # The places of the inverse in an order of its own: the two directions share nothing.
    place = np.random.default_rng(seed).permutation(places * len(family)) % places
    which = np.arange(len(column)) // places
    got = drive(
        config,
        "hash",
        {
            "matrix": np.array([hash_.rows for hash_ in family])[which],
            "column": column,
            "from_bank": place % B,
            "from_local": place // B,
        },
        ["bank", "local", "to_column"],
        seed=seed,
    )
    for i, hash_ in enumerate(family):
        mine = which == i
        assert np.array_equal(got["bank"][mine], hash_.bank(column[mine])), str(hash_)
        assert np.array_equal(got["local"][mine], hash_.local(column[mine])), str(hash_)
        back = hash_.column(place[mine] % B, place[mine] // B)
        assert np.array_equal(got["to_column"][mine], back), str(hash_)
