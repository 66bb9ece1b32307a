from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from disc.config import PRESETS, preset
from hw_tests.engine.simulate import engine_verilog
from sim_models.calibration import Sample, designed_constants, errors, fit
from sim_models.engine import (
    CalibrationError,
    EngineModel,
    Operation,
    load_calibration,
    shipped_calibration,
)
from sim_models.schedule import EngineConstants, Plan, constant_names, schedule

TINY = preset("tiny")
NONE = EngineConstants(**dict.fromkeys(constant_names(), 0))
PLAN = Plan(beats=1, axpy_beats=1, reading=1, room=8, rows_in_flight=4)


@pytest.mark.parametrize("name", PRESETS)
def test_shipped_calibrations_hold_their_promise(name: str) -> None:
    calibration = shipped_calibration(preset(name))
    assert set(calibration.errors) > {"fit", "trained masks"}
    for split, error in calibration.errors.items():
        assert abs(error["worst_error"]) <= 0.02, split
    measured = [sample["measured_cycles"] for sample in calibration.samples]
    assert len(measured) > 100
    assert min(measured) > 0


@pytest.mark.parametrize(
    "name", ["tiny", *(pytest.param(n, marks=pytest.mark.full) for n in ("edge", "server"))]
)
def test_shipped_calibration_is_of_today_s_rtl(name: str) -> None:
    config = preset(name)
    digest = hashlib.sha256(engine_verilog(config).encode()).hexdigest()[:12]
    assert shipped_calibration(config).design_digest == digest, (
        f"the RTL has changed: disc calibrate --config {name} "
        f"--out sim_models/calibrations/{name}.json"
    )


def test_long_rows_cost_the_array_and_nothing_else() -> None:
    steps = tuple([10.0] * 30)
    plan = replace(PLAN, beats=2, axpy_beats=2)
    assert schedule(steps, steps, plan, NONE) == 2 * 10 * 2 * 30 + 10 + 1


def test_by_hand_two_rows() -> None:
    """Listed at 3 and 6; dots 3..5, 6..8; axpy 0 can start at 5 + 4 = 9, axpy 1 at 12."""
    c = replace(NONE, listing=1, score=4, scale=5, word=2, deliver=7)
    # axpy 0: 9..11, read 16..19; axpy 1: 12..14 -> readable 19, read 19..22, and 7 to deliver.
    plan = replace(PLAN, reading=3)
    assert schedule((2.0, 2.0), (2.0, 2.0), plan, c) == 22 + 7


def test_by_hand_projection() -> None:
    """Listed at 5 and 10; dots of 3 beats 5..11, 11..17; 4 more until the last has left."""
    c = replace(NONE, listing=3, dots=9, deliver_dots=4)
    plan = replace(PLAN, beats=3, axpy_beats=0)
    assert schedule((2.0, 2.0), (2.0, 2.0), plan, c) == 17 + 4
    # One slot: the second row is listed when the first has left, at 11 + 9 + 5, dot 25..31.
    assert schedule((2.0, 2.0), (2.0, 2.0), replace(plan, rows_in_flight=1), c) == 31 + 4


def test_by_hand_words_wait_for_room() -> None:
    """Listed at 2; dot 2..4; words of 2 steps, 10 cycles of reading, two of them at a time."""
    plan = replace(PLAN, axpy_beats=4, reading=10, room=2, normalised=False)
    # Words end at 6 and 8, are read 6..16 and 16..26; the third begins at 16, is read 26..36; the
    # fourth begins at 26 and is read 36..46.
    assert schedule((2.0,), (2.0,), plan, NONE) == 46


def test_by_hand_kept_columns_follow_their_row() -> None:
    """Dot 4..8; axpy 8..12; compared at 12 + 1 + 4 = 17; sum over two columns 19..21."""
    c = replace(NONE, generate=1, kept=2)
    plan = replace(PLAN, comparing=4, normalised=False)
    assert schedule((4.0,), (4.0,), plan, c, (2.0,)) == 21 + 1
    # Dot of a second row runs meanwhile, 12..16, but its axpy waits: 21..25, compared 30, 32..34.
    assert schedule((4.0, 4.0), (4.0, 4.0), plan, c, (2.0, 2.0)) == 34 + 1


def test_by_hand_second_pass() -> None:
    """Dot 4..8; one word of axpy 8..12; compared at 17; three words of two columns 19..25."""
    c = replace(NONE, generate=1, kept=2)
    plan = replace(PLAN, axpy_beats=3, comparing=4, normalised=False, marked=True)
    assert schedule((4.0,), (4.0,), plan, c, (2.0,)) == 25 + 1


def test_filled_masks_are_compared_twice() -> None:
    """16 columns a bank: a pass of 16, a cycle, and 16 again."""
    once, twice = Operation(8, generate=True), Operation(8, generate=True, fill=True)
    model = EngineModel(TINY, designed_constants(TINY))
    masks = np.ones((1, 4, 16), bool)
    cycles = [model.cycles_of_masks(masks, operation) for operation in (once, twice)]
    # One row of one word: the generator is the last to be done.
    assert cycles[1] - cycles[0] == 16 + 1
    masks = np.ones((9, 4, 16), bool)
    wide = [
        model.cycles_of_masks(masks, replace(operation, row_dim=32)) for operation in (once, twice)
    ]
    assert wide[0] == wide[1], "four words leave time enough"


def test_by_hand_hot_columns() -> None:
    """Dot 2..4; axpy 4..6; read until 7; then two lines, and 3 cycles."""
    plan = replace(PLAN, looked_up=True, normalised=False, hot_lines=2)
    assert schedule((2.0,), (2.0,), plan, replace(NONE, hot=3)) == 7 + 2 + 3


def test_slots_and_readers_limit_short_rows() -> None:
    ones = tuple([1.0] * 64)
    assert schedule(ones, ones, replace(PLAN, reading=50), NONE) >= 64 * 50
    slow_listing = tuple([20.0] * 64)
    assert schedule(ones, slow_listing, PLAN, NONE) >= 64 * 20
    few, many = (
        schedule(ones, ones, replace(PLAN, rows_in_flight=slots), designed_constants(TINY))
        for slots in (2, 8)
    )
    assert few > many


def test_fit_finds_constants_back_and_errors_see_a_wrong_one() -> None:
    true = EngineConstants(**{**vars(designed_constants(TINY)), "score": 14, "deliver": 5})
    rng = np.random.default_rng(0)
    model = EngineModel(TINY, true)
    samples = []
    for i in range(60):
        rows, columns = int(rng.integers(1, 20)), int(rng.integers(4, 256))
        mask = rng.random((rows, 4, -(-columns // 4))) < rng.choice([0.05, 0.3, 1.0])
        head_dim = int(rng.choice([8, 32, 72]))
        operation = Operation(head_dim)
        measured = model.cycles_of_masks(mask, operation)
        split = "fit" if i % 2 else "held out"
        samples.append(Sample(str(i), split, mask, operation, measured))
    found = fit(TINY, samples)
    assert errors(TINY, found, samples)["held out"]["worst_error"] == pytest.approx(0, abs=0.005)
    wrong = EngineConstants(**{**vars(true), "score": 48})
    assert abs(errors(TINY, wrong, samples)["held out"]["worst_error"]) > 0.02


def test_rows_beyond_a_tile_are_further_commands() -> None:
    model = EngineModel(TINY, designed_constants(TINY))
    one = model.cycles(256, 256, 32, 20.0)
    assert model.cycles(512, 256, 32, 20.0) == 2 * one
    with pytest.raises(ValueError, match=r"columns: must be in \[1, 256\], got 257"):
        model.cycles(1, 257, 32, 1)
    with pytest.raises(ValueError, match="rows: must be at least 1"):
        model.cycles(0, 256, 32, 1)


@pytest.mark.parametrize("text", ["", "{}", '{"schema": 99}', "[1]"])
def test_broken_calibrations_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(CalibrationError, match=r"c\.json"):
        load_calibration(path)
