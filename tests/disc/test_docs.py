"""Every command shown in README and docs runs."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from test_cli import DISC

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SLOW = re.compile(
    r"disc (hashes|balance|calibrate|inspect|quality)|crosscheck .*--config (edge|server)"
    r"|run( --json)?$|run .*(dense|1024)|verilog --config edge"
)


def commands() -> list[str]:
    found = set()
    for page in PAGES:
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(), flags=re.S):
            found |= {line.partition("#")[0].strip() for line in block.splitlines()}
        found |= set(re.findall(r"`(disc [a-z]+[^`]*)`", page.read_text()))
    return sorted(line for line in found if line.startswith("disc ") and "..." not in line)


def test_there_are_commands() -> None:
    assert len(commands()) > 8


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(line, marks=pytest.mark.full) if SLOW.search(line) else line
        for line in commands()
    ],
)
def test_command_runs(command: str, tmp_path: Path) -> None:
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    done = subprocess.run(
        [*DISC, *shlex.split(command)[1:]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target
