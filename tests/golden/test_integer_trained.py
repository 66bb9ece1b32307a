"""The integer core on trained weights, with the shipped calibrations, against the other levels.

Bounds lie about 1.5 dB below what was measured; docs/arithmetic.md has the figures.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from disc.config import NumberConfig
from disc.program import MaskMode
from disc.schedule import CTRConfig, Schedule, STConfig
from golden.accelerate import attach, detach
from golden.integer.block import BlockState, Sparsity, block
from golden.integer.calibrate import calibrate
from golden.integer.calibration import Calibration, load_calibration
from golden.integer.dit import IntegerDiT
from golden.integer.lowering import Lowering
from golden.integer.quantise import quantise
from golden.integer.quantised_float import QuantisedFloatDiT
from golden.model.checkpoint import load_checkpoint
from golden.model.dit import DiT
from golden.sampling import initial_noise, sample

STEPS = 20
PEAK = 1.5
DENSE = Schedule(steps=STEPS, refresh=tuple(range(STEPS)))
WIDE = NumberConfig(numerator_bits=12, score_bits=20, score_fraction_bits=8)
"""Softmax numerators as wide as configurations allow."""
ROUNDED_DB, DENSE_DB, SKIPPED_DB = 48.0, 45.5, 41.5
"""Whole runs: quantised float to float, integer to float, and integer to float under CTR and ST."""


@pytest.fixture(scope="module")
def model() -> DiT:
    return load_checkpoint("digits-256")


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    return load_calibration("digits-256")


def snr_db(got: np.ndarray, wanted: np.ndarray) -> float:
    return float(10 * np.log10((wanted**2).sum() / ((got - wanted) ** 2).sum()))


def psnr(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(10 * torch.log10(PEAK**2 / ((a - b) ** 2).mean()))


@pytest.mark.parametrize("step", [0, 10, 19])
def test_blocks_of_the_three_levels(model: DiT, calibration: Calibration, step: int):
    """What a block adds to the residual stream, for the same input, level by level."""
    z = initial_noise([5], 1, 32)
    if step:
        z = sample(model, [5], [5], steps=STEPS, stop_after=step - 1)
    t, y = torch.tensor([1000 * (1 - step / STEPS)]), torch.tensor([5])
    group, condition = calibration.group(float(t[0])), model.condition(t, y)
    unit = float(calibration.residual)
    for number, integer_db in ((NumberConfig(), 34.0), (WIDE, 36.0)):
        lowering = Lowering(model, calibration, number)
        rounded = QuantisedFloatDiT(model, calibration, number)
        vectors = lowering.vectors(t, y)
        x = quantise(model.embed(z)[0].numpy(), unit, number.residual_bits)
        for layer in range(model.config.depth):
            state = BlockState.empty(4, 256, 32)
            constants = lowering.constants[group].blocks[layer]
            result = block(
                x, np.arange(256), constants, vectors.blocks[layer], state, Sparsity(), number
            )
            real = torch.tensor(x * unit)[None]
            with torch.no_grad():
                middle = rounded.block(real, condition, layer, group)[0].numpy()
                exact = model.blocks[layer](real.float(), condition)[0].double().numpy()
            added = x * unit
            assert snr_db(result.x * unit - added, middle - added) > integer_db
            assert snr_db(middle - added, exact - added) > 30
            x = result.x


def test_rows_do_not_depend_on_their_company(model: DiT, calibration: Calibration):
    """Some rows through a block give what they give among all, K and V being the same."""
    lowering, number = Lowering(model, calibration, NumberConfig()), NumberConfig()
    t, y = torch.tensor([600.0]), torch.tensor([2])
    constants = lowering.constants[calibration.group(600.0)].blocks[3]
    vectors = lowering.vectors(t, y).blocks[3]
    x = np.random.default_rng(0).integers(-2000, 2000, (256, 128))
    state = BlockState.empty(4, 256, 32)
    make = Sparsity(mode=MaskMode.GENERATE, threshold=round(2 / 256 * 2**20))
    whole = block(x, np.arange(256), constants, vectors, state, make, number)
    assert 0.02 < state.mask.mean() < 0.4
    rows = np.sort(np.random.default_rng(1).choice(256, 40, replace=False))
    reuse = Sparsity(mode=MaskMode.MASKED)
    masked = block(x, np.arange(256), constants, vectors, state, reuse, number)
    some = block(x[rows], rows, constants, vectors, state, reuse, number)
    for name in ("x", "attention_in", "attention_out", "mlp_in", "hidden"):
        assert np.array_equal(getattr(some, name), getattr(masked, name)[rows]), name
    # With residuals shared and nothing changed, the mask is hardly seen.
    assert np.abs(masked.attention_out - whole.attention_out).max() <= 2


def test_dense_runs(model: DiT, calibration: Calibration):
    labels, seeds = [0, 5, 8], [0, 5, 8]
    exact = sample(model, labels, seeds, steps=STEPS)
    rounded = QuantisedFloatDiT(model, calibration)
    middle = sample(model, labels, seeds, steps=STEPS, denoiser=rounded)
    whole = sample(
        model, labels, seeds, steps=STEPS, denoiser=IntegerDiT(model, calibration, DENSE)
    )
    assert psnr(middle, exact) > ROUNDED_DB
    assert psnr(whole, exact) > DENSE_DB


def test_ctr_and_st_lose_nothing_more_in_integers(model: DiT, calibration: Calibration):
    labels, seeds = [0, 5, 8], [0, 5, 8]
    schedule = Schedule.periodic(STEPS, every=3, ctr=CTRConfig(reuse=0.75), st=STConfig(alpha=2.0))
    exact = sample(model, labels, seeds, steps=STEPS)
    attach(model, schedule)
    skipped = sample(model, labels, seeds, steps=STEPS)
    detach(model)
    whole = sample(
        model, labels, seeds, steps=STEPS, denoiser=IntegerDiT(model, calibration, schedule)
    )
    assert psnr(whole, skipped) > SKIPPED_DB
    assert psnr(whole, exact) > psnr(skipped, exact) - 1.5


def test_shipped_calibrations_fit_their_models():
    for name in ("digits-256", "digits-1024"):
        calibration = load_calibration(name)
        Lowering(load_checkpoint(name), calibration, NumberConfig())
        assert name in calibration.command


@pytest.mark.full
def test_shipped_calibration_is_what_its_command_gives(model: DiT, calibration: Calibration):
    again = calibrate(model, list(range(10)), list(range(1000, 1010)), steps=20, groups=4)
    for name in ("q", "k", "v", "hidden_in", "hidden_out", "final_out", "residual"):
        # Other processors may round float products differently.
        assert np.allclose(getattr(again, name), getattr(calibration, name), rtol=0.05), name


@pytest.mark.full
def test_dense_run_of_1024_tokens():
    model, calibration = load_checkpoint("digits-1024"), load_calibration("digits-1024")
    exact = sample(model, [0], [0], steps=STEPS)
    whole = sample(model, [0], [0], steps=STEPS, denoiser=IntegerDiT(model, calibration, DENSE))
    assert psnr(whole, exact) > 36
