"""Calibration, blocks, the whole network and sampling runs, on a small random model."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch

from disc.config import NumberConfig
from disc.hashing import BankHash
from disc.schedule import CTRConfig, Schedule, STConfig
from golden.ctr import quantise_latent, select_tokens_int
from golden.integer.calibrate import best_scale, calibrate, fingerprint
from golden.integer.calibration import Calibration, CalibrationError, load_calibration
from golden.integer.dit import LATENT_SCALE, IntegerDiT
from golden.integer.lowering import Lowering
from golden.integer.observe import observed_forward
from golden.integer.parameters import common_fixed, quantise_linear
from golden.integer.quantised_float import POINTS, QuantisedFloatDiT
from golden.model.dit import DiT, DiTConfig
from golden.sampling import sample

SMALL = DiTConfig(size_px=16, dim=32, depth=2, heads=2)
STEPS = 6
DENSE = Schedule(steps=STEPS, refresh=tuple(range(STEPS)))
PEAK = 1.5


@pytest.fixture(scope="module")
def model() -> DiT:
    torch.manual_seed(0)
    model = DiT(SMALL).eval().requires_grad_(False)
    for parameter in model.parameters():  # adaLN-zero would make the output 0
        parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@pytest.fixture(scope="module")
def calibration(model: DiT) -> Calibration:
    return calibrate(model, [0, 1, 2], [100, 101, 102], steps=STEPS, groups=2, command="test")


def run(model: DiT, denoiser=None, labels=(3, 4), seeds=(7, 8), **options) -> torch.Tensor:
    return sample(model, list(labels), list(seeds), steps=STEPS, denoiser=denoiser, **options)


def psnr(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(10 * torch.log10(PEAK**2 / ((a - b) ** 2).mean()))


def integer(model: DiT, calibration: Calibration, schedule: Schedule = DENSE, **options):
    return IntegerDiT(model, calibration, schedule, **options)


# -- observation and calibration -----------------------------------------------------------------


def test_observed_forward_is_the_model(model: DiT):
    z, t, y = torch.randn(2, 1, 16, 16), torch.tensor([700.0, 700.0]), torch.tensor([1, 10])
    seen: dict[tuple[str, int], tuple[int, ...]] = {}
    out = observed_forward(
        model, z, t, y, lambda name, layer, x: seen.__setitem__((name, layer), tuple(x.shape))
    )
    torch.testing.assert_close(out, model(z, t, y))
    assert seen["hidden_out", 1] == (2, 64, 128)
    assert {name for name, _ in seen} == set(POINTS) - {"weights"}


def test_calibration_survives_its_file(calibration: Calibration, tmp_path):
    path = tmp_path / "small.json"
    calibration.save(path)
    again = load_calibration(path)
    for field in dataclasses.fields(Calibration):
        assert np.array_equal(getattr(again, field.name), getattr(calibration, field.name))


def test_calibration_is_repeatable_and_frozen(model: DiT, calibration: Calibration):
    again = calibrate(model, [0, 1, 2], [100, 101, 102], steps=STEPS, groups=2)
    assert np.array_equal(again.hidden_in, calibration.hidden_in)
    with pytest.raises(ValueError, match="read-only"):
        calibration.q[0, 0, 0] = 1.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        calibration.tokens = 3  # type: ignore[misc]


def test_groups_span_time(calibration: Calibration):
    assert [calibration.group(t) for t in (1000, 501, 500, 0)] == [0, 0, 1, 1]
    with pytest.raises(ValueError, match=r"timestep: must be in \[0, 1000\], got -1"):
        calibration.group(-1)


def test_bad_calibration_files(calibration: Calibration, tmp_path):
    path = tmp_path / "x.json"
    with pytest.raises(CalibrationError, match=r"cannot read x.json: No such file.*calibrate"):
        load_calibration(path)
    path.write_text("{")
    with pytest.raises(CalibrationError, match=r"x\.json is damaged"):
        load_calibration(path)
    path.write_text("[]")
    with pytest.raises(CalibrationError, match="not of format 'disc-int-1'"):
        load_calibration(path)
    calibration.save(path)
    record = json.loads(path.read_text())
    for change, message in (
        ({"q": [[[1.0]]]}, r"q: shape \(1, 1, 1\) is not \(2, 2, 2\), \[groups, layers, heads\]"),
        ({"residual": 0.0}, "residual: scales must be positive, got 0"),
        ({"k": [[float("nan")] * 2] * 2}, "k: holds NaN or infinity"),
        ({"speed": 3}, "unexpected keyword argument 'speed'"),
    ):
        path.write_text(json.dumps(record | change))
        with pytest.raises(CalibrationError, match=message):
            load_calibration(path)
    del record["v"]
    path.write_text(json.dumps(record))
    with pytest.raises(CalibrationError, match="missing 1 required"):
        load_calibration(path)


def test_calibrate_refuses(model: DiT):
    with pytest.raises(ValueError, match=r"groups: must be in \[1, 6\] \(steps\), got 7"):
        calibrate(model, [0], [0], steps=6, groups=7)
    with pytest.raises(ValueError, match="at least one image"):
        calibrate(model, [], [], steps=6, groups=1)
    broken = DiT(SMALL).eval().requires_grad_(False)
    broken.blocks[0].mlp.fc1.bias[5] = float("nan")
    with pytest.raises(ValueError, match="holds NaN or infinity"):
        calibrate(broken, [0], [0], steps=2, groups=1)


def test_calibration_of_another_model(model: DiT, calibration: Calibration):
    torch.manual_seed(1)
    other = DiT(SMALL).eval().requires_grad_(False)
    assert fingerprint(other) != fingerprint(model)
    with pytest.raises(CalibrationError, match="made for model"):
        integer(other, calibration)


def test_best_scale():
    x = np.random.default_rng(0).normal(size=10_000)
    assert best_scale(x, np.abs(x).max(), 8) < np.abs(x).max() / 127
    assert best_scale(np.array([1.0, -1.0]), 1.0, 8) == 1 / 127
    assert best_scale(np.zeros(4), 0.0, 8) == 1 / 127
    with pytest.raises(ValueError, match="NaN or infinity"):
        best_scale(np.array([np.nan]), 1.0, 8)
    with pytest.raises(ValueError, match="NaN or infinity"):
        best_scale(np.zeros(1), np.inf, 8)


# -- parameters ----------------------------------------------------------------------------------


def test_common_fixed_uses_all_bits():
    for peak in (1e-12, 0.3, 1.0, 32766.9, 32767.0):
        m, s = common_fixed(np.array([peak, -peak / 3, 0.0]), name="x")
        assert (1 << 14) - 1 <= m[0] <= (1 << 15) - 1 or s == 63
        assert abs(m[0] * 2.0**-s / peak - 1) < 2.0**-14 or s == 63
    assert common_fixed(np.zeros(2), name="x", extra=10) == (pytest.approx([0, 0]), 53)
    with pytest.raises(ValueError, match="x: magnitudes must be at most 32767, got 32768"):
        common_fixed(np.array([32768.0]), name="x")
    with pytest.raises(ValueError, match="x: holds NaN"):
        common_fixed(np.array([np.nan]), name="x")


def test_quantise_linear():
    rng = np.random.default_rng(2)
    weight, bias, x = rng.normal(size=(5, 40)), rng.normal(size=5), rng.integers(-127, 128, 40)
    linear, unit = quantise_linear(weight, bias, 0.02, NumberConfig())
    assert (np.abs(linear.weight).max(axis=1) == 127).all()
    got = (linear.weight @ x + linear.bias) * unit
    assert np.abs(got - (weight @ (x * 0.02) + bias)).max() < 40 * 0.5 * unit.max() * 127


def test_quantise_linear_of_channels_without_weight():
    linear, unit = quantise_linear(np.zeros((2, 3)), np.array([5.0, 0.0]), 1e-9, NumberConfig())
    assert not linear.weight.any()
    assert linear.bias[0] * unit[0] == pytest.approx(5.0)
    assert (linear.bias[1], unit[1] > 0) == (0, True)
    with pytest.raises(ValueError, match="NaN"):
        quantise_linear(np.full((1, 1), np.inf), np.zeros(1), 1.0, NumberConfig())


# -- the levels against each other ---------------------------------------------------------------


def test_quantised_float_without_rounding_is_the_model(model: DiT, calibration: Calibration):
    exact = QuantisedFloatDiT(model, calibration, without=POINTS)
    assert psnr(run(model, exact), run(model)) > 100
    with pytest.raises(ValueError, match="without: no point"):
        QuantisedFloatDiT(model, calibration, without=["speed"])


def test_every_rounding_costs(model: DiT, calibration: Calibration):
    dense = run(model)
    for point in POINTS:
        only = QuantisedFloatDiT(model, calibration, without=set(POINTS) - {point})
        assert 30 < psnr(run(model, only), dense) < 100, point


def test_levels_follow_each_other(model: DiT, calibration: Calibration):
    dense = run(model)
    rounded = run(model, QuantisedFloatDiT(model, calibration))
    whole = run(model, integer(model, calibration))
    assert psnr(rounded, dense) > 40
    assert psnr(whole, rounded) > 40
    assert psnr(whole, dense) > 38


# -- sampling runs -------------------------------------------------------------------------------


def test_batch_does_not_matter(model: DiT, calibration: Calibration):
    both = run(model, integer(model, calibration))
    alone = run(model, integer(model, calibration), labels=[4], seeds=[8])
    # The sampler's own arithmetic is the same for one image as for two.
    assert torch.equal(alone[0], both[1])


def test_runs_can_be_repeated_on_one_object(model: DiT, calibration: Calibration):
    schedule = Schedule(
        steps=STEPS, refresh=(0, 3), ctr=CTRConfig(reuse=0.5), st=STConfig(alpha=1.0)
    )
    denoiser = integer(model, calibration, schedule)
    first = run(model, denoiser)
    run(model, denoiser, stop_after=1)
    assert torch.equal(run(model, denoiser), first)


@pytest.mark.parametrize(
    "schedule",
    [
        Schedule(steps=STEPS, refresh=(0, 3), ctr=CTRConfig(reuse=0.0)),
        Schedule(steps=STEPS, refresh=(0, 3), ctr=CTRConfig(threshold=0.0, forecast=0)),
        Schedule(steps=STEPS, refresh=(0, 3), st=STConfig(alpha=0.0)),
        Schedule(steps=STEPS, refresh=(0, 3)),
    ],
    ids=["no reuse", "threshold 0", "alpha 0", "dense"],
)
def test_nothing_skipped_is_dense_to_the_bit(model: DiT, calibration: Calibration, schedule):
    assert torch.equal(
        run(model, integer(model, calibration, schedule)), run(model, integer(model, calibration))
    )


def test_every_step_a_refresh_is_dense_if_residuals_are_shared(model, calibration):
    every = tuple(range(STEPS))
    shared = Schedule(steps=STEPS, refresh=every, st=STConfig(alpha=2.0))
    dense = run(model, integer(model, calibration))
    assert torch.equal(run(model, integer(model, calibration, shared)), dense)
    plain = Schedule(steps=STEPS, refresh=every, st=STConfig(alpha=2.0, share_residual=False))
    assert not torch.equal(run(model, integer(model, calibration, plain)), dense)


def test_filled_masks_keep_more_and_lose_less(model: DiT, calibration: Calibration):
    hash_ = BankHash.xor_fold(16, 2)
    schedule = Schedule(steps=STEPS, refresh=(0,), st=STConfig(alpha=1.0, share_residual=False))
    dense = run(model, integer(model, calibration))
    found = []
    for fill in (None, hash_):
        denoiser = integer(model, calibration, schedule, fill=fill)
        out = run(model, denoiser)
        masks = np.stack([block.mask for block in denoiser._images[0].state.blocks])
        found.append((masks.mean(), psnr(out, dense)))
    (kept, worse), (more, better) = found
    assert more > 1.1 * kept
    assert better > worse
    for bad, message in (
        ({"st": STConfig(heads="shared")}, "fill: needs a mask for each head"),
        ({"st": STConfig(), "fill": BankHash.modulo(4, 3)}, "fill: the hash is for 32 columns"),
    ):
        fill = bad.pop("fill", hash_)
        with pytest.raises(ValueError, match=message):
            integer(model, calibration, Schedule(steps=STEPS, refresh=(0,), **bad), fill=fill)


def test_skipping_follows_float(model: DiT, calibration: Calibration):
    """The same schedule in float; there CTR and ST are other code altogether."""
    from golden.accelerate import attach, detach

    for feedback, st in (
        (False, STConfig(alpha=1.0)),
        (True, STConfig(alpha=1.0)),
        (False, STConfig(alpha=1.0, share_residual=False, heads="shared")),
    ):
        ctr = CTRConfig(reuse=0.5, damping=0.8, feedback=feedback)
        schedule = Schedule(steps=STEPS, refresh=(0, 1, 4), ctr=ctr, st=st)
        accelerated = attach(model, schedule)
        wanted = run(model)
        computed = [record.computed for record in accelerated.log]
        detach(model)
        denoiser = integer(model, calibration, schedule)
        denoiser.keep_trace = True
        got = run(model, denoiser)
        assert psnr(got, wanted) > 38
        assert psnr(run(model), wanted) < psnr(got, wanted)
        assert [
            [len(denoiser.trace(i)[step][0].selected) for i in range(2)] for step in range(STEPS)
        ] == computed


def test_tokens_are_those_of_the_hardware(model: DiT, calibration: Calibration):
    schedule = Schedule(steps=STEPS, refresh=(0, 4), ctr=CTRConfig(threshold=0.21))
    denoiser = integer(model, calibration, schedule)
    denoiser.keep_trace = True
    latents: list[torch.Tensor] = []

    def spy(z, t, y):
        latents.append(z)
        return denoiser(z, t, y)

    run(model, spy, labels=[3], seeds=[7])
    reference = None
    counts = []
    for step, (z, (decision, _)) in enumerate(zip(latents, denoiser.trace(0), strict=True)):
        z_q = quantise_latent(z[0].numpy(), LATENT_SCALE)
        if not schedule.is_refresh(step):
            threshold = int(np.ceil(0.21 * 4 / LATENT_SCALE))
            selected, _, _ = select_tokens_int(z_q, reference, 2, threshold)
            assert np.array_equal(decision.selected, selected)
        counts.append(len(decision.selected))
        if reference is None:
            reference = z_q.copy()
        grid = np.zeros(64, bool)
        grid[decision.selected] = True
        chosen = np.kron(grid.reshape(8, 8), np.ones((2, 2), bool))[None]
        reference = np.where(chosen, z_q, reference)
    assert len({*counts} - {0, 64}) > 2


def test_reused_tokens_keep_their_state(model: DiT, calibration: Calibration):
    schedule = Schedule(
        steps=STEPS, refresh=(0,), ctr=CTRConfig(reuse=1.0, forecast=0), st=STConfig()
    )
    denoiser = integer(model, calibration, schedule)
    denoiser.keep_trace = True
    run(model, denoiser, labels=[3], seeds=[7], stop_after=0)
    state = denoiser._images[0].state
    before = state.blocks[1].k.copy(), state.last.copy()
    run(model, denoiser, labels=[3], seeds=[7])
    state = denoiser._images[0].state
    assert np.array_equal(state.blocks[1].k, before[0])
    assert np.array_equal(state.last, before[1])
    assert (state.last_step == 0).all()
    # A reused token is its new embedding plus what the branches added.
    for decision, result in denoiser.trace(0)[1:]:
        assert len(decision.selected) == 0
        assert result.out.any()
        assert not result.blocks[0].x.size


def test_guidance_shares_tokens_not_state(model: DiT, calibration: Calibration):
    schedule = Schedule(steps=STEPS, refresh=(0, 3), ctr=CTRConfig(reuse=0.5))
    denoiser = integer(model, calibration, schedule)
    denoiser.keep_trace = True
    out = run(model, denoiser, guidance=2.0)
    for image in range(2):
        for own, null in zip(denoiser.trace(image), denoiser.trace(image + 2), strict=True):
            assert np.array_equal(own[0].selected, null[0].selected)
            assert not np.array_equal(own[1].out, null[1].out)
    float_out = run(model, guidance=2.0)
    assert psnr(out, float_out) > 25


def test_hot_columns(model: DiT, calibration: Calibration):
    schedule = Schedule(steps=STEPS, refresh=(0, 3))
    dense = run(model, integer(model, calibration))
    all_hot = run(model, integer(model, calibration, schedule, hot_tau=0.0))
    assert psnr(all_hot, dense) > 30  # columns that were 0 for every token only
    few = integer(model, calibration, schedule, hot_tau=1.0)
    few.keep_trace = True
    assert psnr(run(model, few), dense) < psnr(all_hot, dense)
    hot = few._images[0].state.blocks[0].hot
    assert 0 < hot.sum() < hot.size
    refresh, after = (few.trace(0)[step][1].blocks[0].hidden for step in (3, 4))
    assert refresh[:, ~hot].any()
    assert not after[:, ~hot].any()
    assert after[:, hot].any(axis=0).all()


def test_denoiser_refuses(model: DiT, calibration: Calibration):
    with pytest.raises(ValueError, match=r"ctr.forecast: the integer core has orders 0 and 1"):
        integer(
            model,
            calibration,
            Schedule(steps=9, refresh=(0,), ctr=CTRConfig(reuse=0.5, forecast=2)),
        )
    with pytest.raises(ValueError, match=r"ctr\.reference: .*'true-change'"):
        integer(
            model,
            calibration,
            Schedule(steps=9, refresh=(0,), ctr=CTRConfig(reuse=0.5, reference="true-change")),
        )
    with pytest.raises(ValueError, match="refresh: 70 steps between two, allowed below 64"):
        integer(model, calibration, Schedule(steps=70, refresh=(0,), ctr=CTRConfig(reuse=0.5)))
    with pytest.raises(ValueError, match=r"st.alpha: must be in \[0, 64\] \(N\), got 65"):
        integer(model, calibration, Schedule(steps=9, refresh=(0,), st=STConfig(alpha=65.0)))
    with pytest.raises(ValueError, match="hot_tau: must be at least 0"):
        Lowering(model, calibration, NumberConfig(), hot_tau=-1.0)
    with pytest.raises(ValueError, match=r"step: 4 is outside 0..3"):
        run(model, integer(model, calibration, Schedule(steps=4, refresh=(0,))))
    denoiser = integer(model, calibration)
    z, y = torch.zeros(2, 1, 16, 16), torch.tensor([1, 2])
    denoiser(z, torch.tensor([900.0, 900.0]), y)
    with pytest.raises(ValueError, match="z: 1 images, 2 in the step before"):
        denoiser(z[:1], torch.tensor([800.0]), y[:1])
    with pytest.raises(ValueError, match="z: holds NaN"):
        denoiser(z * float("nan"), torch.tensor([700.0, 700.0]), y)


def test_a_latent_of_zeros(model: DiT, calibration: Calibration):
    out = integer(model, calibration)(
        torch.zeros(1, 1, 16, 16), torch.tensor([500.0]), torch.tensor([0])
    )
    wanted = model(torch.zeros(1, 1, 16, 16), torch.tensor([500.0]), torch.tensor([0]))
    assert psnr(out, wanted) > 30
