"""`disc inspect`, and where the golden model's counts meet the networks of `sim_models`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from test_cli import disc

from disc.cli.inspect import chosen_schedule, known_sizes, network_work
from disc.schedule import CTRConfig, Schedule, STConfig
from golden.inspect.runs import run_accelerated
from golden.inspect.work import KINDS, reduced, savings
from golden.model.checkpoint import load_checkpoint
from golden.quality.metrics import psnr_per_image
from golden.sampling import sample
from sim_models.networks import get_network, operators, total_macs

NAMES = ("similarity", "latent", "attention", "flops", "savings", "images", "density")
NO_OPTION = (None, None, None, None)


def test_command_end_to_end(tmp_path: Path) -> None:
    """Numbers against a run of the test's own; the same again gives the same."""
    args = ["inspect", "--steps", "4", "--seed", "3", "--reuse", "0.75", "--every", "2"]
    done = disc(*args, "--json", "--out", "a", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report == json.loads((tmp_path / "a" / "inspect.json").read_text())
    expected = {"inspect.json"} | {f"{name}.png" for name in NAMES}
    assert {path.name for path in (tmp_path / "a").iterdir()} == expected
    for name in NAMES:
        pixels = np.asarray(Image.open(tmp_path / "a" / f"{name}.png").convert("L"))
        assert min(pixels.shape) > 400
        assert pixels.std() > 10  # something is drawn

    model = load_checkpoint("digits-256")
    labels, seeds = [3, 4, 5, 6, 7, 8, 9, 0, 1, 2], list(range(3, 13))
    schedule = Schedule.periodic(
        4, every=2, mask_every=2, ctr=CTRConfig(reuse=0.75), st=STConfig(alpha=0.5)
    )
    assert report["schedule_digest"] == schedule.digest
    dense = sample(model, labels, seeds, steps=4).numpy()
    run = run_accelerated(model, labels, seeds, schedule, lambda text: None)
    assert report["images"]["labels"] == labels
    assert report["images"]["psnr_db"] == pytest.approx(
        psnr_per_image(run.images, dense).tolist(), rel=1e-5
    )
    rows = report["savings"]["rows"]
    assert [row["resolution_px"] for row in rows] == [32, 512, 1024, 2048, 4096]
    assert rows[0]["total"] == pytest.approx(run.work.savings["total"])
    assert len(report["latent"]["selected"]) == 64
    assert report["latent"]["step"] == 3  # refreshes are 0 and 2

    again = disc(*args, "--format", "svg", "--out", "b", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert "7 figures and inspect.json written to b" in again.stdout
    text = [(tmp_path / folder / "inspect.json").read_bytes() for folder in ("a", "b")]
    assert text[0] == text[1]
    assert {path.suffix for path in (tmp_path / "b").iterdir()} == {".svg", ".json"}
    assert (tmp_path / "b" / "savings.svg").read_text().startswith("<?xml")


def test_schedule_from_a_file(tmp_path: Path) -> None:
    schedule = Schedule(steps=3, refresh=(0, 2), st=STConfig(alpha=1.0), name="mine")
    path = tmp_path / "mine.toml"
    path.write_text(schedule.to_toml())
    assert chosen_schedule(str(path), None, *NO_OPTION) == schedule
    assert chosen_schedule(str(path), 3, *NO_OPTION) == schedule
    with pytest.raises(ValueError, match="steps: 4 differs from the 3 of schedule"):
        chosen_schedule(str(path), 4, *NO_OPTION)
    with pytest.raises(ValueError, match="is given together with --alpha"):
        chosen_schedule(str(path), None, None, 0.5, None, None)


def test_default_schedule() -> None:
    assert chosen_schedule(None, None, *NO_OPTION) == Schedule.periodic(
        20, every=3, mask_every=2, ctr=CTRConfig(reuse=1.0), st=STConfig(alpha=0.5)
    )
    assert chosen_schedule(None, None, 0.0, None, None, None).ctr is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((0, None, None, None, None), r"steps: 0 is outside 1\.\.10000"),
        ((4, 1.5, None, None, None), r"reuse: 1\.5 is outside 0\.\.1"),
        ((4, float("nan"), None, None, None), r"reuse: nan is outside 0\.\.1"),
        ((4, None, -1.0, None, None), "alpha: .*-1"),
        ((4, None, None, 0, None), "every: 0 is below 1"),
        ((4, None, None, None, 0), "mask_every: 0 is below 1"),
    ],
)
def test_options_out_of_range(options: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        chosen_schedule(None, *options)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--layer", "6"], "layer: 6 is outside 0..5"),
        (["--format", "gif"], "format: must be png, svg or both, got 'gif'"),
        (["--schedule", "nowhere"], "schedule: no shipped schedule 'nowhere'"),
        (["--out", "file/there"], "out: cannot write into file/there"),
    ],
)
def test_bad_input(args: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = disc("inspect", *args, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / "file"]


# -- golden model against networks -----------------------------------------------------------------


@pytest.mark.parametrize("share", [True, False])
def test_derived_work_of_the_small_model_is_the_measured_one(share: bool) -> None:
    """Per-step use applied to the network's formulas gives what the run counted, kind by kind."""
    model = load_checkpoint("digits-256")
    st = STConfig(alpha=0.5, share_residual=share)
    schedule = Schedule.periodic(5, every=2, ctr=CTRConfig(threshold=0.25), st=st)
    work = run_accelerated(model, [0, 1, 2], [0, 1, 2], schedule, lambda text: None).work
    assert any(0 < use.computed < 1 for use in work.uses)
    dense = network_work(get_network("digits", 32))
    assert dense == work.dense
    derived = reduced(dense, work.uses)
    for kind, macs in work.done.items():
        # The log keeps each layer's density, not its rows' share, so only means may differ.
        assert derived[kind] == pytest.approx(macs, rel=1e-5), kind
    assert savings(dense, derived) == pytest.approx(work.savings, rel=1e-4)


def test_every_operator_has_a_kind() -> None:
    for model, px in (("pixart-sigma", 1024), ("dit-xl-2", 256), ("digits", 64)):
        network = get_network(model, px)
        work = network_work(network)
        assert set(work) <= set(KINDS)
        assert sum(work.values()) == total_macs(operators(network))


def test_breakdown_of_known_networks() -> None:
    """Shares that PyTorch's FLOP counter finds in diffusers' models, without guidance."""
    shares = {(s.model, s.resolution_px): s.attention_share for s in known_sizes()}
    known = {
        ("DiT-XL/2", 256): 0.036,
        ("DiT-XL/2", 512): 0.129,
        ("PixArt-Σ", 512): 0.105,
        ("PixArt-Σ", 1024): 0.326,
        ("PixArt-Σ", 2048): 0.661,
        ("PixArt-Σ", 4096): 0.887,
    }
    for key, share in known.items():
        assert shares[key] == pytest.approx(share, abs=0.0006), key
    assert [s.tokens for s in known_sizes() if s.model == "digits"] == [256, 1024, 4096]
