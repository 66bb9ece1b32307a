from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from disc.output import OutputError, write_files

DISC = [sys.executable, "-c", "from disc.cli import main; main()"]


def disc(*args: str, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess:
    return subprocess.run(
        [*DISC, *args],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **(env or {})},
    )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["config", "--config", "huge"], "no preset 'huge'; choose tiny, edge, server"),
        (["verilog", "--config", "none.toml"], "cannot read none.toml"),
        (["crosscheck", "--layer", "6"], "layer: 6 is outside 0..5"),
        (["crosscheck", "--head", "-1"], "head: -1 is outside 0..3"),
        (["crosscheck", "--step", "20"], "step: 20 is outside 0..19"),
        (["crosscheck", "--hash", "best"], "hash: must be one of modulo, xor-fold"),
        (["crosscheck", "--alpha", "-1"], "alpha: "),
        (["crosscheck", "--stall", "1"], "stall: must be in [0, 0.99]"),
        (["crosscheck", "--checkpoint", "digits-1024"], "columns: must be in [1, 256]"),
        (["crosscheck", "--checkpoint", "nowhere.safetensors"], "nowhere.safetensors"),
        (["run", "--kind", "nope"], "kind: must be one of dense, ctr, st, both, refresh"),
        (["run", "--layer", "6"], "layer: must be in [0, 5]"),
        (["run", "--fraction", "0"], "fraction: must be in (0, 1]"),
        (["run", "--alpha", "-1"], "alpha: must be in [0, 256]"),
        (["run", "--plot", "x.gif"], "plot: must end in .png or .svg"),
        (["run", "--predict", "--stall", "0.1"], "stall: needs the RTL"),
        (["run", "--predict", "--plot", "x.svg"], "plot: needs the RTL"),
        (["run", "--calibration", "none.json"], "calibration: needs predict"),
        (["run", "--predict", "--calibration", "none.json"], "calibration: cannot read none.json"),
        (["program", "lower", "--predict", "--density", "2"], "density: must be in (0, 1], got 2"),
        (["program", "lower", "--predict", "--calibration", "x"], "calibration: cannot read x"),
        (["estimate", "--model", "dit-xxl-2"], "dit-xxl-2"),
        (["estimate", "--resolution", "300"], "300"),
        (["estimate", "--density", "0"], "density: must be above 0"),
        (["estimate", "--calibration", "none.json"], "calibration: cannot read none.json"),
        (["hashes", "--split", "head"], "split: must be layer or step"),
    ],
    ids=lambda x: " ".join(x) if isinstance(x, list) else "",
)
def test_bad_input_is_one_message_and_status_two(
    args: list[str], message: str, tmp_path: Path
) -> None:
    done = disc(*args, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_missing_compiler_says_what_to_install(tmp_path: Path) -> None:
    empty = tmp_path / "bin"
    empty.mkdir()
    done = disc(
        "crosscheck",
        cwd=tmp_path,
        env={"PATH": str(empty), "DISC_BUILD_DIR": str(tmp_path / "build")},
    )
    assert done.returncode == 2
    assert "install" in done.stderr
    assert "Traceback" not in done.stderr


def test_broken_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "cut.safetensors").write_bytes(b"\x00" * 100)
    done = disc("crosscheck", "--checkpoint", "cut.safetensors", cwd=tmp_path)
    assert done.returncode == 2
    assert "cut.safetensors" in done.stderr
    assert "Traceback" not in done.stderr


def test_calibration_of_other_hardware_is_refused(tmp_path: Path) -> None:
    from importlib import resources

    tiny = resources.files("sim_models") / "calibrations" / "tiny.json"
    done = disc("estimate", "--config", "edge", "--calibration", str(tiny), cwd=tmp_path)
    assert done.returncode == 2
    assert "made for configuration 'tiny'" in done.stderr


def test_own_configuration_needs_its_own_calibration(tmp_path: Path) -> None:
    assert disc("config", "--out", "mine.toml", cwd=tmp_path).returncode == 0
    mine = tmp_path / "mine.toml"
    mine.write_text(mine.read_text().replace("rows_in_flight = 4", "rows_in_flight = 5"))
    done = disc("estimate", "--config", "mine.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert "disc calibrate" in done.stderr


def test_crosscheck_json_is_the_same_each_time(tmp_path: Path) -> None:
    reports = []
    for _ in range(2):
        done = disc("crosscheck", "--selected", "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        del report["build_seconds"], report["simulated_cycles_per_second"]
        reports.append(report)
    assert reports[0] == reports[1]
    assert reports[0]["mismatches"] == 0
    assert reports[0]["rows"] == 128
    assert reports[0]["ideal_cycles"] <= reports[0]["array_cycles"] <= reports[0]["cycles"]


def test_verilog_release_is_complete_and_repeatable(tmp_path: Path) -> None:
    reports = []
    for name, lint in (("a", "--lint"), ("b", "--no-lint")):
        done = disc("verilog", "--config", "tiny", "--out", name, lint, "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        reports.append(json.loads(done.stdout))
    report = reports[0]
    assert report["lint"] == "clean"
    files = {path.name for path in (tmp_path / "a").iterdir()}
    assert files == {"disc_core.v", "disc_core.f", "config.toml", "waivers.vlt"}
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    verilog = (tmp_path / "a" / "disc_core.v").read_text()
    assert report["digest"] in verilog.split("module", 1)[0]
    assert "\nmodule disc_core(" in verilog


def test_lint_fails_on_what_nobody_waived() -> None:
    from disc.config import preset
    from synth.lint import LintError, check
    from synth.release import TOP, WAIVERS, release

    files = release(preset("tiny"))
    no_case = files[WAIVERS].replace("lint_off -rule CASEINCOMPLETE\n", "")
    with pytest.raises(LintError, match="CASEINCOMPLETE"):
        check(files | {WAIVERS: no_case})
    head, top = files[f"{TOP}.v"].split(f"\nmodule {TOP}(")
    latch = top.replace("endmodule", "reg b; always @* if (rst) b = clk;\nendmodule", 1)
    with pytest.raises(LintError, match="LATCH"):
        check(files | {f"{TOP}.v": f"{head}\nmodule {TOP}({latch}"})


def test_estimate_json_adds_up(tmp_path: Path) -> None:
    done = disc("estimate", "--model", "dit-xl-2", "--resolution", "512", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    total = sum(op["time_us"] for op in report["operators"])
    assert report["total"]["time_us"] == pytest.approx(total)
    bases = {op["name"]: op["basis"] for op in report["operators"]}
    assert bases["self.attention"] == "calibrated"
    assert bases["mlp.fc1"] == "formula"


def test_run_predicts(tmp_path: Path) -> None:
    args = ("run", "--kind", "st", "--layer", "2", "--predict", "--json")
    done = disc(*args, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    kinds = report["by_command"]
    assert sum(own["commands"] for own in kinds.values()) == report["commands"]
    array = sum(kinds[name]["cycles"] for name in ("project", "mlp", "attend, MASKED"))
    assert array / report["predicted_cycles"] == pytest.approx(report["busy_array"], abs=1e-4)


def test_files_are_written_all_or_none(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OutputError, match="taken"):
        write_files({tmp_path / "first": "1", tmp_path / "taken": "2"})
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="out: cannot write"):
        write_files({tmp_path / "file" / "below": "3"})
