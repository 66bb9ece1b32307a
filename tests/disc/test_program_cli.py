"""`disc program`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from test_cli import disc

from disc.cli import main

SIZES = ("--tokens", "64", "--dim", "32", "--heads", "2", "--hidden", "64", "--config", "tiny")


@pytest.fixture(scope="module")
def block(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    done = disc(
        "program", "lower", *SIZES, "--mode", "generate", "--out", "block", "--json", cwd=folder
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["commands"] == 28
    assert report["written_by_kind"]["masks"] == 2 * 64 * 16
    return folder / "block"


def test_there_and_back(block: Path, tmp_path: Path) -> None:
    text, words, layout = (
        str(block / f"{n}") for n in ("program.asm", "program.bin", "layout.json")
    )
    done = disc("program", "asm", text, "--out", "again.bin", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "again.bin").read_bytes() == (block / "program.bin").read_bytes()
    done = disc("program", "disasm", words, "--layout", layout, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == (block / "program.asm").read_text()
    for args in ([text], [words, "--layout", layout]):
        done = disc("program", "check", *args, "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["commands, array"] == 6


def test_what_is_wrong_is_said_with_its_place(
    block: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    good = (block / "program.asm").read_text()
    raced = tmp_path / "raced.asm"
    raced.write_text(good.replace(" wait=vector", "").replace(" signal=array", "", 1))
    cases = [
        (["check", str(raced)], "command 4 (project, queue array): reads LIST list 0"),
        (["check", str(block / "program.bin")], "give the layout.json that belongs to it"),
        (["check", "none.asm"], "file: cannot read none.asm"),
        (["check", str(block / "program.asm"), "--image", "none"], "image: cannot read none"),
        (["disasm", str(block / "program.bin"), "--layout", "none"], "layout: cannot read none"),
        (["disasm", str(block / "program.bin"), "--config", "edge"], "program.bin: command "),
        (["asm", str(block / "program.asm"), "--out", "x.bin", "--config", "none"], "no preset"),
        (["lower", "--tokens", "64", "--dim", "33"], "width: must be a multiple of heads"),
        (["lower", "--rows", "9999", "--tokens", "64"], "rows: must be in [1, 64]"),
        (["lower", "--model", "dit-xxl"], "dit-xxl"),
        (["lower", "--mode", "masked", "--fill"], "fill: needs mode generate, got masked"),
    ]
    bad = tmp_path / "bad.asm"
    bad.write_text(good.replace("rows=64", "rows=1000"))
    cases.append((["asm", str(bad), "--out", "x.bin"], "rows: must be in [1, 256]"))
    monkeypatch.chdir(tmp_path)
    for args, message in cases:
        monkeypatch.setattr(sys, "argv", ["disc", "program", *args])
        with pytest.raises(SystemExit) as stopped:
            main()
        said = capsys.readouterr()
        assert stopped.value.code == 2, (args, said.err)
        assert message in said.err, said.err
        assert not said.out
    assert not (tmp_path / "x.bin").exists()


def test_counts_without_a_program(tmp_path: Path) -> None:
    done = disc(
        "program", "lower", "--model", "dit-xl-2", "--resolution", "256", "--json", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    products = 256 * (4 * 1152**2 + 2 * 1152 * 4608) + 2 * 256**2 * 1152
    assert report["array_cycles"] * 16 * 24 == products
    assert not list(tmp_path.iterdir())
