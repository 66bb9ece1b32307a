"""Lint of a release: Verilator with all warnings, minus the waivers."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from hw.core import TOP
from hw_tests.sim import find_toolchain
from synth.release import WAIVERS

__all__ = ["LintError", "check"]


class LintError(ValueError):
    """The Verilog has warnings that nobody has waived; the message lists them."""


def check(files: Mapping[str, str]) -> None:
    """Lint the texts of a release.

    Raises
    ------
    LintError
        There are warnings.
    ToolchainError
        Verilator is missing.
    """
    tools = find_toolchain()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        for file, text in files.items():
            (directory / file).write_text(text, encoding="utf-8")
        done = subprocess.run(
            [tools.verilator, "--lint-only", "-Wall", "--top-module", TOP, WAIVERS, f"{TOP}.v"],
            cwd=directory,
            env=os.environ | tools.environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise LintError(f"lint: {TOP}.v is not clean:\n{done.stderr.strip()}")
