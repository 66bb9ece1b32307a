"""`disc sample` and `disc quality` as a user meets them."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from disc.cli import app
from disc.schedule import CTRConfig, Schedule, STConfig, load


def disc(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def schedule(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    ctr, st = CTRConfig(reuse=1.0), STConfig(alpha=1.0)
    path.write_text(Schedule.periodic(4, every=2, ctr=ctr, st=st, name="mine").to_toml())
    return path


def test_samples_are_drawn_compared_and_written(schedule: Path, tmp_path: Path) -> None:
    out, arrays = tmp_path / "a" / "s.png", tmp_path / "s.npy"
    common = ["sample", "--schedule", schedule, "--images", 3, "--out", out, "--json"]
    reports = {}
    for name, more in {
        "both": ["--compare", "--arrays", arrays],
        "dense": ["--method", "dense", "--compare"],
        "ctr": ["--method", "ctr"],
        "st": ["--method", "st"],
        "integer": ["--arithmetic", "integer", "--compare"],
    }.items():
        done = disc(*common, *more)
        assert done.exit_code == 0, done.output
        reports[name] = json.loads(done.stdout)
    images = np.load(arrays)
    assert images.shape == (3, 1, 32, 32)
    assert Image.open(out).size == (320, 32)
    assert reports["dense"]["work"] == 1.0
    assert reports["dense"]["psnr_to_dense_float_db"] == float("inf")
    assert reports["both"]["work"] == reports["ctr"]["work"] < reports["st"]["work"] < 1
    assert "CTR" not in reports["st"]["schedule"]
    assert "ST α" not in reports["ctr"]["schedule"]
    assert (
        abs(
            reports["integer"]["psnr_to_dense_float_db"] - reports["both"]["psnr_to_dense_float_db"]
        )
        < 1
    )


def test_sweep_writes_table_data_and_pictures(schedule: Path, tmp_path: Path) -> None:
    out = tmp_path / "quality"
    done = disc(
        "quality",
        "sweep",
        "--steps",
        4,
        "--images",
        33,
        "--no-published",
        "--schedule",
        schedule,
        "--out",
        out,
        "--json",
    )
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    with (out / "quality.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["family"] for row in rows] == [p["family"] for p in report["points"]]
    assert rows[0]["family"] == "ours"
    assert float(rows[0]["psnr_db"]) == report["points"][0]["psnr_db"]
    assert {p.name for p in out.iterdir()} == {
        f"quality.{s}" for s in ("csv", "json", "png", "svg")
    }


def test_search_writes_a_schedule_that_loads(tmp_path: Path) -> None:
    out = tmp_path / "found.toml"
    done = disc(
        "quality",
        "search",
        "--steps",
        5,
        "--images",
        1,
        "--runs",
        4,
        "--most-work",
        0.7,
        "--most-attention",
        0.7,
        "--out",
        out,
        "--name",
        "mine",
    )
    assert done.exit_code == 0, done.output
    found = load(out)
    assert found.name == "mine"
    assert found.steps == 5
    assert found.figures["work"] <= 0.7
    assert found.figures["checkpoint"] == "digits-256"


def test_references_are_compared(tmp_path: Path) -> None:
    done = disc("quality", "references", "--steps", 4, "--every", 2, "--images", 2, "--json")
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["rows"]
    assert [row["reference"] for row in rows][:2] == ["last-computed", "adjacent"]
    assert rows[0]["against_default"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sample", "--method", "sparse"], "method: 'sparse' is not one of dense, ctr, st, both"),
        (["sample", "--arithmetic", "int8"], "arithmetic: 'int8' is not one of float, integer"),
        (["sample", "--schedule", "none"], "schedule: no shipped schedule 'none'; choose"),
        (["sample", "--schedule", "none.toml"], "schedule: cannot read none.toml"),
        (["sample", "--checkpoint", "digits-64"], "checkpoint: 'digits-64' is neither a file"),
        (["sample", "--seed", "-1"], "seed: -1 is below 0"),
        (["quality", "sweep", "--images", "20"], "images: 20 is below 33"),
        (
            ["quality", "sweep", "--steps", "9", "--schedule", "digits-256-20"],
            "has 20 steps, not 9",
        ),
        (["quality", "search", "--start", "R..M"], "start: 'R..M' must be 20 letters"),
        (["quality", "search", "--alpha", "3"], "alpha: 3.0 is not one of 0.25"),
        (["quality", "search", "--most-work", "0"], "most_work: 0.0 is outside"),
        (["quality", "references", "--reuse", "2"], "reuse: .* less than or equal to 1, got 2.0"),
        (["quality", "fid", "a", "b", "--weights", "c"], "weights: there is no file c"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_bad_input_is_named_and_nothing_is_written(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = disc(*arguments)
    assert isinstance(done.exception, ValueError), done.output
    assert re.search(message, str(done.exception)), done.exception
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
