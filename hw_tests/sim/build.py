"""Verilog to simulator executable, cached by content."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import cocotb_tools.config
from cocotb_tools.runner import VerilatorControlFile

from hw_tests.sim.runner import LeanVerilator
from hw_tests.sim.toolchain import Toolchain, find_toolchain

__all__ = ["BuildError", "Built", "build", "build_root", "tail", "waves_wanted"]


class BuildError(RuntimeError):
    """Verilator or the C++ compiler failed.  The message has the end of the log."""


@dataclass(frozen=True)
class Built:
    """A simulator executable in the cache."""

    directory: Path
    top: str
    waves: bool
    cached: bool
    """It was there already."""


def build_root() -> Path:
    """Return the directory of everything that is built.

    `DISC_BUILD_DIR`, else `build/` in the checkout that holds this file, else in the current
    directory.
    """
    if given := os.environ.get("DISC_BUILD_DIR"):
        return Path(given).absolute()
    checkout = Path(__file__).resolve().parents[2]
    base = checkout if (checkout / "pyproject.toml").is_file() else Path.cwd()
    return base / "build"


def waves_wanted() -> bool:
    """Return whether `DISC_WAVES` asks for waveforms."""
    return os.environ.get("DISC_WAVES", "0") not in ("", "0")


def build(
    verilog: str,
    top: str,
    *,
    waves: bool | None = None,
    public: Sequence[tuple[str, str]] = (),
    opt: str = "-Og",
    args: Sequence[str] = (),
) -> Built:
    """Build a simulator for `verilog`, or return the one built before from the same content.

    Safe to call from several processes at once: the first one builds, the others wait.  An
    interrupted build leaves no entry.

    Parameters
    ----------
    verilog : str
        Text with all modules.
    top : str
        Top module.
    waves : bool, optional
        Build with VCD tracing; unset: as `DISC_WAVES` says.  Traced builds are separate entries.
    public : sequence of (module pattern, variable pattern)
        What cocotb can reach besides the variables of the top module, for example
        `(Sram.MODULE, "words")`.  Whatever is public cannot be optimised away, so name the few
        that a bench needs.
    opt : str
        C++ optimisation of the model.  `-Og` compiles as fast as `-O0`; `-O1` takes twice as long
        and runs 10 to 20 % faster, which pays from about a million cycles on.
    args : sequence of str
        More arguments of Verilator, for example `--assert`.

    Raises
    ------
    BuildError
        Verilator or the compiler failed.
    ToolchainError
        A tool is missing.
    """
    waves = waves_wanted() if waves is None else waves
    tools = find_toolchain()
    control = _control_file(top, public)
    # The executable's run path names this interpreter's cocotb libraries.
    flags = [
        top,
        waves,
        opt,
        list(args),
        control,
        tools.identity,
        str(cocotb_tools.config.libs_dir),
    ]
    key = _digest(json.dumps([verilog, *flags]))
    root = build_root() / "sim"
    entry = root / key
    with _locked(root / f"{key}.lock"):
        if entry.is_dir():
            return Built(entry, top, waves, cached=True)
        work = Path(tempfile.mkdtemp(prefix=f"{key}.partial-", dir=root))
        try:
            (work / f"{top}.v").write_text(verilog, encoding="utf-8")
            (work / "public.vlt").write_text(control, encoding="utf-8")
            runtime = root / f"runtime-{_digest(json.dumps([waves, tools.identity]))}"
            _compile(tools, work, top, waves=waves, opt=opt, args=args, runtime=runtime)
            _keep_runtime(work / "obj", runtime)
            os.replace(work / "obj" / top, work / top)
            shutil.rmtree(work / "obj")
            os.replace(work, entry)
        except BaseException:
            shutil.rmtree(work, ignore_errors=True)
            raise
    return Built(entry, top, waves, cached=False)


def tail(path: Path, lines: int = 40) -> str:
    """Return the last lines of a log, or a word that there is none."""
    if not path.is_file():
        return "(no log)"
    return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def _control_file(top: str, public: Sequence[tuple[str, str]]) -> str:
    # cocotb's runner makes everything public, which costs a factor of two to four in speed.
    patterns = [(top, "*"), *public]
    lines = [f'public_flat_rw -module "{module}" -var "{var}"' for module, var in patterns]
    return "\n".join(["`verilator_config", *lines, ""])


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _compile(
    tools: Toolchain,
    work: Path,
    top: str,
    *,
    waves: bool,
    opt: str,
    args: Sequence[str],
    runtime: Path,
) -> None:
    objects = work / "obj"
    objects.mkdir()
    reused = sorted(runtime.glob("*.o"))
    for path in reused:
        shutil.copy(path, objects)
    if " " in str(objects):
        raise BuildError(f"make cannot build in a path with spaces, set DISC_BUILD_DIR: {objects}")
    # -o: do not remake the run-time library, though the makefile of the model is newer.
    make_args = [f"OPT_FAST={opt}", "OPT_GLOBAL=-O2", *(f"-o{path.name}" for path in reused)]
    runner = LeanVerilator(tools, make_args=make_args)
    log = work / "build.log"
    try:
        runner.build(
            sources=[work / f"{top}.v", VerilatorControlFile(work / "public.vlt")],
            hdl_toplevel=top,
            build_dir=objects,
            # Generated Verilog is linted elsewhere, with reasons; here warnings only cost time.
            build_args=["-Wno-fatal", "-Wno-lint", "-Wno-style", *args],
            timescale=("1ns", "1ps"),
            waves=waves,
            log_file=log,
        )
    except RuntimeError as error:
        raise BuildError(f"cannot build {top}: {error}\n{tail(log)}") from None


def _keep_runtime(objects: Path, runtime: Path) -> None:
    """Save Verilator's compiled run-time library, two thirds of the cost of a small build."""
    if runtime.is_dir():
        return
    partial = Path(tempfile.mkdtemp(prefix="runtime-partial-", dir=runtime.parent))
    for path in objects.glob("verilated*.o"):
        shutil.copy(path, partial)
    try:
        os.rename(partial, runtime)
    except OSError:  # another process saved the same
        shutil.rmtree(partial)
