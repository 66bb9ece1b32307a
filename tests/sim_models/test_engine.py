from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from disc.config import PRESETS, preset
from hw_tests.engine.simulate import engine_verilog
from sim_models.calibration import Sample, designed_constants, errors, fit
from sim_models.engine import (
    CalibrationError,
    EngineConstants,
    EngineModel,
    load_calibration,
    schedule,
    shipped_calibration,
)

TINY = preset("tiny")
NONE = EngineConstants(
    command=0,
    listing=0,
    score=0,
    sums=0,
    slot=0,
    half=0,
    deliver=0,
    generate=0,
    generate_gap=0,
)


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
    assert schedule(steps, steps, 2, 1, 4, 0, NONE) == 2 * 10 * 2 * 30 + 10 + 1


def test_by_hand_two_rows() -> None:
    """Listed at 3 and 6; dots 3..5, 6..8; axpy 0 can start at 5 + 4 = 9, axpy 1 at 12."""
    c = EngineConstants(
        command=0,
        listing=1,
        score=4,
        sums=5,
        slot=0,
        half=0,
        deliver=7,
        generate=0,
        generate_gap=0,
    )
    # axpy 0: 9..11, read 16..19; axpy 1: 12..14 -> offered 19, read 19..22, and 7 to deliver.
    assert schedule((2.0, 2.0), (2.0, 2.0), 1, 3, 4, 0, c) == 22 + 7


def test_slots_and_readers_limit_short_rows() -> None:
    ones = tuple([1.0] * 64)
    assert schedule(ones, ones, 1, 50, 4, 0, NONE) >= 64 * 50
    slow_listing = tuple([20.0] * 64)
    assert schedule(ones, slow_listing, 1, 1, 4, 0, NONE) >= 64 * 20
    few = schedule(ones, ones, 1, 1, 2, 0, designed_constants(TINY))
    many = schedule(ones, ones, 1, 1, 8, 0, designed_constants(TINY))
    assert few > many


def test_fit_finds_constants_back_and_errors_see_a_wrong_one() -> None:
    true = EngineConstants(**{**vars(designed_constants(TINY)), "score": 13, "deliver": 5})
    rng = np.random.default_rng(0)
    model = EngineModel(TINY, true)
    samples = []
    for i in range(60):
        rows, columns = int(rng.integers(1, 20)), int(rng.integers(4, 256))
        mask = rng.random((rows, 4, -(-columns // 4))) < rng.choice([0.05, 0.3, 1.0])
        head_dim = int(rng.choice([8, 32, 72]))
        measured = int(model.cycles_of_masks(mask, head_dim))
        samples.append(
            Sample(str(i), "fit" if i % 2 else "held out", mask, head_dim, False, measured)
        )
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
