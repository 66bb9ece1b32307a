"""The core on RTL: token selection, row windows and attention through its ports."""

from __future__ import annotations

import numpy as np
import pytest

from disc.config import build, preset
from disc.hashing import BankHash
from disc.program import MaskMode
from disc.verilog import to_verilog
from golden.ctr import select_tokens_int
from golden.integer import fused_attention
from golden.integer.quantise import quantise_head
from hw.core import TOP, Core
from hw_tests import sim

FIELDS = preset("tiny").model_dump() | {
    "name": "small",
    "memory": {
        "bank_words": 128,
        "query_rows": 32,
        "columns": 64,
        "head_dim": 16,
        "mask_word_bits": 8,
    },
}
CONFIG = build(FIELDS)
GRID, PATCH = 8, 2


@pytest.fixture(scope="module")
def built() -> sim.Built:
    memories = [(f"{TOP}.engine.mask.mask_*", "words")]
    return sim.build(to_verilog(Core(CONFIG), top=TOP, header={}), TOP, public=memories)


@pytest.mark.parametrize("pause", ["never", "bernoulli", "mostly_stalled"])
@pytest.mark.parametrize("mode", [MaskMode.MASKED, MaskMode.GENERATE], ids=lambda m: m.name)
def test_selected_tokens_attend(built: sim.Built, mode: MaskMode, pause: str) -> None:
    seed = sim.choose_seed()
    rng = np.random.default_rng(seed)
    z = rng.integers(-500, 500, size=(GRID * PATCH, GRID * PATCH))
    ref = z + rng.integers(-60, 60, size=z.shape)
    threshold = 120
    selected, reused, _ = select_tokens_int(z[None], ref[None], PATCH, threshold)
    before = select_tokens_int(z[None], ref[None], PATCH, threshold + 20)[0]
    assert 0 < len(before) < len(selected) < GRID * GRID

    tokens = GRID * GRID
    head = quantise_head(*(rng.normal(size=(tokens, 13)) for _ in range(3)), CONFIG)
    command = head.command(CONFIG, mode, alpha=1.0)
    mask = rng.random((tokens, tokens)) < 0.2
    np.fill_diagonal(mask, True)
    hash_ = BankHash.random_gf2(CONFIG.array.banks, CONFIG.local_bits, seed=seed % 1000)
    golden = fused_attention(
        head.q[selected],
        head.k,
        head.v,
        command,
        CONFIG.number,
        mask=mask[selected],
        tokens=selected,
    )
    got = sim.run(
        built,
        "hw_tests.core_bench",
        seed=seed,
        inputs={
            "config": CONFIG.to_toml(),
            "pause": pause,
            "hash": np.array(hash_.rows),
            "command": np.array(list(command.encode().values())),
            "z": z,
            "ref": ref,
            "patch": PATCH,
            "threshold": threshold,
            "first_threshold": threshold + 20,
            "q": head.q,
            "k": head.k,
            "v": head.v,
            "mask": mask,
        },
    ).outputs

    assert got["before"] == len(before)
    np.testing.assert_array_equal(got["selected"], selected)
    np.testing.assert_array_equal(got["reused"], reused)
    np.testing.assert_array_equal(got["counts"], [len(selected), len(reused)])
    beats = command.beats
    np.testing.assert_array_equal(got["tokens"], np.repeat(selected, beats))
    half = -(-len(selected) // 2)
    slots = np.arange(len(selected)) % half
    np.testing.assert_array_equal(got["slots"], np.repeat(slots, beats))
    np.testing.assert_array_equal(got["beats"], np.tile(np.arange(beats), len(selected)))
    out = got["data"].reshape(len(selected), -1)
    np.testing.assert_array_equal(out[:, :13], golden.out)
    assert not out[:, 13:].any()
    if mode == MaskMode.GENERATE:
        bits = CONFIG.memory.mask_word_bits
        words = -(-command.groups(CONFIG) // bits)
        address = slots[:, None] * CONFIG.mask_words_per_row + np.arange(words)
        np.testing.assert_array_equal(got["line_address"], address.ravel())
        lines = (got["line_bits"].reshape(len(selected), words, -1, 1) >> np.arange(bits)) & 1
        in_banks = lines.transpose(0, 2, 1, 3).reshape(len(selected), -1, words * bits)
        in_banks = in_banks[:, :, : command.groups(CONFIG)].astype(bool)
        made = hash_.from_bank_order(in_banks, tokens)
        np.testing.assert_array_equal(made, golden.mask)
    else:
        assert not len(got["line_address"])
