from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from disc.output import write_files
from disc.schedule import CTRConfig, Schedule, STConfig
from golden.accelerate import attach, detach
from golden.attention import attention_probabilities
from golden.inspect.persistence import (
    MaskPersistence,
    intersection_over_union,
    kept_mass,
    rank_correlation,
    same_side,
    sorted_overlay,
)
from golden.inspect.plot_attention import by_distance
from golden.inspect.plot_latent import concentration, rank_parts
from golden.inspect.plot_work import Saving, Size, plot_flops, plot_savings
from golden.inspect.report import document, figures, measured_savings
from golden.inspect.runs import _Decisions, run_accelerated
from golden.inspect.similarity import SimilarityMeter, cosine
from golden.inspect.study import run_study
from golden.inspect.work import StepUse, reduced, savings
from golden.model.checkpoint import load_checkpoint
from golden.model.dit import DiT, DiTConfig
from golden.plotting import new_figure, rendered
from golden.quality.metrics import psnr
from golden.sampling import StepHook, sample

ST = STConfig(alpha=0.5)


@pytest.fixture(scope="module")
def model() -> DiT:
    return load_checkpoint("digits-256")


@pytest.fixture
def small() -> DiT:
    torch.manual_seed(0)
    config = DiTConfig(size_px=8, dim=16, depth=2, heads=2, base_grid=4)
    net = DiT(config).eval().requires_grad_(False)
    for parameter in net.parameters():
        parameter.normal_(0, 0.3)
    return net


# -- similarity ------------------------------------------------------------------------------------


def test_cosine_of_known_vectors() -> None:
    a = torch.tensor([[3.0, 4.0], [1.0, 0.0], [2.0, 1.0], [0.0, 0.0]])
    b = torch.tensor([[3.0, 4.0], [0.0, 2.0], [-4.0, -2.0], [1.0, 0.0]])
    assert cosine(a, b).tolist() == pytest.approx([1, 0, -1, 0], abs=1e-6)


def _branches(net: DiT, z: torch.Tensor, t: torch.Tensor, y: torch.Tensor) -> dict[str, np.ndarray]:
    """The branch outputs [L, B, N, D], recomputed part by part, without hooks."""
    x, c = net.embed(z), net.condition(t, y)
    embedding, attention, mlp = x, [], []
    for block in net.blocks:
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = block.modulation(c)
        attention.append(block.attn(block.attention_input(x, shift_a, scale_a)))
        x = x + gate_a[:, None] * attention[-1]
        mlp.append(block.mlp_branch(x, shift_m, scale_m))
        x = x + gate_m[:, None] * mlp[-1]
    found = {"attention": torch.stack(attention), "mlp": torch.stack(mlp), "sums": x - embedding}
    return {name: value.double().numpy() for name, value in found.items()}


def test_similarity_meter_against_direct_computation(small: DiT) -> None:
    generator = torch.Generator().manual_seed(1)
    z = [torch.randn(3, 1, 8, 8, generator=generator) for _ in range(2)]
    z.append(z[-1])  # the last two steps are alike
    t, y = torch.full((3,), 500.0), torch.tensor([0, 1, 2])
    meter = SimilarityMeter(small)
    for image in z:
        small(image, t, y)
        meter.end_step()
    meter.remove()
    found = meter.result()
    small(z[0], t, y)
    assert not meter._seen  # hears nothing any more

    before, now = (_branches(small, image, t, y) for image in z[:2])
    other = torch.randperm(16, generator=torch.Generator().manual_seed(16)).numpy()
    for name in ("attention", "mlp"):
        for shuffled, table in ((False, found.branches), (True, found.other_tokens)):
            b = now[name][:, :, other] if shuffled else now[name]
            norms = np.linalg.norm(before[name], axis=-1) * np.linalg.norm(b, axis=-1)
            expected = ((before[name] * b).sum(axis=-1) / norms).mean(axis=(1, 2))
            assert table[name][0] == pytest.approx(expected, abs=1e-5)
        assert found.branches[name][1] == pytest.approx(np.ones(2), abs=1e-6)
    norms = np.linalg.norm(before["sums"], axis=-1) * np.linalg.norm(now["sums"], axis=-1)
    each = (before["sums"] * now["sums"]).sum(axis=-1) / norms
    assert found.sums[0] == pytest.approx(np.quantile(each, (0.1, 0.5, 0.9)), abs=1e-5)


# -- persistence of masks --------------------------------------------------------------------------


def test_overlap_and_mass_of_known_masks() -> None:
    a = torch.tensor([[[True, True, False, False], [True, False, False, False]]])
    b = torch.tensor([[[True, False, True, False], [True, False, False, False]]])
    assert intersection_over_union(a, b).tolist() == [pytest.approx(2 / 4)]
    assert intersection_over_union(a, a).tolist() == [1]
    p = torch.tensor([[[0.4, 0.3, 0.2, 0.1], [0.7, 0.1, 0.1, 0.1]]])
    assert kept_mass(p, a).tolist() == [pytest.approx((0.7 + 0.7) / 2)]
    assert kept_mass(p, b).tolist() == [pytest.approx((0.6 + 0.7) / 2)]


def test_masks_of_moving_attention() -> None:
    """Each row attends evenly to the diagonal and one other key, which moves on every step."""
    n, steps = 8, 4
    persistence = MaskPersistence(ST, distance=2)
    for step in range(steps):
        p = torch.zeros(1, n, n)
        rows = torch.arange(n)
        p[0, rows, rows] = 0.5
        p[0, rows, (rows + 1 + step) % n] = 0.5
        persistence.add(0, p)
    assert persistence.density.shape == (steps, 1, 1)
    assert persistence.density == pytest.approx(2 / n)
    iou, mass = persistence.iou[..., 0, 0], persistence.mass[..., 0, 0]
    assert iou.shape == mass.shape == (steps, 3)
    assert np.isnan(iou[0, 1:]).all()
    assert np.isnan(mass[1, 2])
    assert iou[:, 0] == pytest.approx(1)
    assert mass[:, 0] == pytest.approx(1)
    assert iou[1:, 1] == pytest.approx(1 / 3)  # the diagonal, of three kept by either
    assert mass[2:, 2] == pytest.approx(0.5)


def test_persistence_refuses_no_distance() -> None:
    with pytest.raises(ValueError, match="distance: 0 is below 1"):
        MaskPersistence(ST, 0)


def test_by_distance_divides_masks_by_when_they_were_made() -> None:
    steps = 4
    made = np.arange(steps)[:, None] - np.arange(3)[None]
    values = np.where(made >= 0, made, np.nan)[:, :, None, None].astype(float)
    first, low, high = by_distance(values, first=True)
    second, _, _ = by_distance(values, first=False)
    assert first.tolist() == [0.5, 0.5, 0.5]  # made in steps 0 and 1
    assert second[:2].tolist() == [2.5, 2.0]  # 2 and 3; only 2 gets a step old
    assert np.isnan(second[2])
    assert (low[0], high[0]) == (pytest.approx(0.1), pytest.approx(0.9))


def test_sorted_overlay_one_entry_a_group() -> None:
    before = torch.tensor([[0.1, 0.4], [0.3, 0.2]])
    after = torch.tensor([[1.0, 4.0], [3.0, 2.0]])
    curve = sorted_overlay(before, after, points=4)
    assert curve["before"] == pytest.approx([0.4, 0.3, 0.2, 0.1])
    for name in ("low", "median", "high"):
        assert curve[name].tolist() == [4, 3, 2, 1]
    assert curve["rank"].tolist() == [0.125, 0.375, 0.625, 0.875]


def test_same_side_and_rank_correlation() -> None:
    before = torch.tensor([[0.1, 0.4], [0.3, 0.2]])
    assert same_side(before, before.flip(1), 0.25) == 0
    assert same_side(before, torch.tensor([[0.2, 0.4], [0.25, 0.3]]), 0.25) == 0.75
    assert rank_correlation(before, before**3) == pytest.approx(1)
    assert rank_correlation(before, -before) == pytest.approx(-1)


# -- work ------------------------------------------------------------------------------------------


def test_savings_of_known_use() -> None:
    dense = {"projection": 100.0, "attention": 40.0, "mlp": 200.0, "final": 10.0, "prompt": 5.0}
    uses = [StepUse(1, 1), StepUse(0.5, 0.4), StepUse(0, 0)]
    done = reduced(dense, uses)
    assert done == pytest.approx(
        {"projection": 50, "attention": 40 * 1.2 / 3, "mlp": 100, "final": 10, "prompt": 5}
    )
    saved = savings(dense, done)
    assert saved["QK and PV"] == pytest.approx(1 - 1.2 / 3)
    assert saved["self-attention"] == pytest.approx(1 - (50 + 16) / 140)
    assert saved["total"] == pytest.approx(1 - 181 / 355)


@pytest.mark.parametrize("share", [True, False])
def test_measured_work_against_masks_made_here(model: DiT, share: bool) -> None:
    """All tokens in all steps, so that only masks save; what they keep is counted directly."""
    st = STConfig(alpha=0.5, share_residual=share)
    schedule = Schedule.periodic(3, every=1, mask_every=2, st=st)
    kept: list[list[float]] = [[], [], []]
    seen: list[int] = []

    def observe(layer, q, k, v, mask, out) -> None:
        step = len(seen) // model.config.depth
        seen.append(layer)
        if mask is not None:
            kept[step].append(mask.double().mean().item())
        else:
            p = attention_probabilities(q, k)
            own = (p >= 0.5 / 256) | torch.eye(256, dtype=torch.bool)
            kept[step].append(own.double().mean().item())

    attach(model, schedule).attention.observer = observe
    images = sample(model, [0, 1], [0, 1], steps=3)
    detach(model)
    run = run_accelerated(model, [0, 1], [0, 1], schedule, lambda text: None)
    assert np.array_equal(run.images, images.numpy())
    one, two, three = (float(np.mean(x)) for x in kept)
    assert two == pytest.approx(one)  # the mask of step 0 reused
    # Steps 0 and 2 attend densely, or densely in Q K and under the mask in P V.
    making = (1.0, 1.0) if share else ((1 + one) / 2, (1 + three) / 2)
    expected = (making[0] + two + making[1]) / 3
    work = run.work
    assert work.done["attention"] / work.dense["attention"] == pytest.approx(expected, rel=1e-6)
    assert work.dense["attention"] == 2 * 256 * 256 * 128 * 6
    assert work.done["mlp"] == work.dense["mlp"]
    assert [use.computed for use in work.uses] == [1, 1, 1]


def test_neutral_schedule_changes_and_saves_nothing(model: DiT) -> None:
    run = run_accelerated(model, [3], [3], Schedule(steps=2, refresh=(0,)), lambda text: None)
    assert np.array_equal(run.images, sample(model, [3], [3], steps=2).numpy())
    assert run.work.savings == {"self-attention": 0, "QK and PV": 0, "total": 0}
    assert (run.head_density == 1).all()


# -- token selection -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ctr",
    [
        CTRConfig(reuse=0.75),
        CTRConfig(threshold=0.5),
        CTRConfig(reuse=0.5, reference="adjacent"),
        CTRConfig(reuse=0.5, reference="second-difference"),
        CTRConfig(reuse=0.5, reference="output"),
        CTRConfig(reuse=0.5, reference="random", seed=3),
    ],
    ids=lambda ctr: f"{ctr.reference}-{ctr.reuse}",
)
def test_decisions_shown_are_those_that_acted(small: DiT, ctr: CTRConfig) -> None:
    schedule = Schedule.periodic(6, every=4, warmup=2, ctr=ctr)
    shown = _Decisions(schedule, small.config.patch)
    accelerator = attach(small, schedule)
    acted: list[list[int]] = []

    class Rows(StepHook):
        def after_step(self, step: int, z: torch.Tensor, v: torch.Tensor) -> None:
            rows = accelerator._rows
            assert rows is not None
            acted.append(rows._index[0, : rows.counts[0]].tolist())

    sample(small, [1, 2], [1, 2], steps=6, hooks=[shown, Rows()])
    detach(small)
    assert [d.selected.tolist() for d in shown.decisions] == acted
    assert any(0 < len(rows) < small.config.tokens for rows in acted)


def test_true_change_is_refused(small: DiT) -> None:
    schedule = Schedule.periodic(4, ctr=CTRConfig(reuse=0.5, reference="true-change"))
    with pytest.raises(ValueError, match=r"ctr\.reference: 'true-change'"):
        run_accelerated(small, [0], [0], schedule, lambda text: None)
    attach(small, schedule)  # it was left detached
    detach(small)


def test_ranks_and_concentration() -> None:
    scores = np.arange(20, dtype=np.float32)
    assert np.bincount(rank_parts(scores)).tolist() == [2, 3, 5, 10]
    assert rank_parts(scores)[[19, 17, 14, 0]].tolist() == [0, 1, 2, 3]
    assert concentration(scores, 0.25) == pytest.approx((15 + 16 + 17 + 18 + 19) / 190)
    assert concentration(np.ones(20, np.float32), 0.25) == pytest.approx(0.25)


# -- figures ---------------------------------------------------------------------------------------

SIZES = [
    Size("net", 32, 4, {"attention": 1.0, "projection": 3.0, "mlp": 5.0, "final": 1.0}),
    Size("net", 64, 16, {"attention": 6.0, "projection": 2.0, "prompt": 2.0}),
]
SAVED = [
    Saving("net", 32, 4, {"self-attention": 0.1, "QK and PV": 0.2, "total": 0.05}, True),
    Saving("net", 32, 4, {"self-attention": 0.1, "QK and PV": 0.2, "total": 0.05}, False),
    Saving("net", 64, 16, {"self-attention": 0.3, "QK and PV": 0.2, "total": 0.15}, False),
]


def test_bars_of_the_breakdown_are_the_shares() -> None:
    figure = plot_flops(SIZES)
    heights = np.array([[bar.get_height() for bar in bars] for bars in figure.axes[0].containers])
    assert heights.sum(axis=0) == pytest.approx([100, 100])
    assert heights[0] == pytest.approx([10, 60])  # QK and PV, the lowest
    assert "10% to 60% of net between 32 and 64 px" in figure.get_suptitle()


def test_bars_of_savings() -> None:
    figure = plot_savings(SAVED, "net")
    heights = [[bar.get_height() for bar in bars] for bars in figure.axes[0].containers[:3]]
    assert heights[0] == pytest.approx([10, 10, 30])
    assert heights[2] == pytest.approx([5, 5, 15])
    assert "grows with resolution: 5% of net's FLOPs at 32 px, 15%" in figure.get_suptitle()


@pytest.mark.parametrize(
    "schedule",
    [
        Schedule(steps=2, refresh=(0,)),
        Schedule.periodic(
            3, every=2, ctr=CTRConfig(reuse=1.0), st=STConfig(alpha=1.0, heads="shared")
        ),
    ],
    ids=["neutral", "reuse all, shared mask"],
)
def test_study_of_any_schedule(schedule: Schedule) -> None:
    study = run_study("digits-256", schedule, seed=7, layer=5, head=3)
    assert study.labels == [7, 8, 9, 0, 1, 2, 3, 4, 5, 6]
    saved = [*measured_savings(study), *SAVED]
    drawn = figures(study, SIZES, saved)
    assert len(drawn) == 7
    for figure in drawn.values():
        figure.draw_without_rendering()
    found = document(study, SIZES, saved)
    assert np.shape(found["attention"]["kept_mass"])[2:] == (6, 4)
    expected = sample(study.model, study.labels, list(range(7, 17)), steps=schedule.steps).numpy()
    assert np.array_equal(study.dense.images, expected)
    if schedule.ctr is None:
        assert found["images"]["psnr_of_all_db"] is None  # infinite
        assert found["savings"]["rows"][0]["total"] == 0
    else:
        assert found["latent"]["selected"] == []
        assert found["density"]["computed"][1] == [[None] * 4] * 6  # no token, no density
        exact = psnr(study.accelerated.images, study.dense.images)
        assert found["images"]["psnr_of_all_db"] == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layer": 6}, r"layer: 6 is outside 0\.\.5"),
        ({"head": -1}, r"head: -1 is outside 0\.\.3"),
        ({"step": 0}, r"step: 0 is outside 1\.\.1"),
        ({"step": 2}, r"step: 2 is outside 1\.\.1"),
        ({"seed": -1}, "seed: -1 is below 0"),
        ({"schedule": Schedule(steps=1, refresh=(0,))}, "steps: 1 is below 2"),
        ({"checkpoint": "nowhere"}, "checkpoint: 'nowhere'"),
    ],
)
def test_bad_arguments(arguments: dict, message: str) -> None:
    fine = {"checkpoint": "digits-256", "schedule": Schedule(steps=2, refresh=(0,))}
    with pytest.raises(ValueError, match=message):
        run_study(**(fine | arguments))


def test_files_are_written_together_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "b.json").mkdir()
    figure = new_figure(1, 1, "x")
    picture = {tmp_path / "a.png": rendered(figure, "png")}
    with pytest.raises(ValueError, match=r"b\.json"):
        write_files({**picture, tmp_path / "b.json": "{}"})
    assert [path.name for path in tmp_path.iterdir()] == ["b.json"]
    write_files({**picture, tmp_path / "c.json": "{}"})
    assert (tmp_path / "a.png").read_bytes() == rendered(figure, "png")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "b.json", "c.json"]
