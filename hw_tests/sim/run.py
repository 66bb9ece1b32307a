"""Run cocotb tests in a built simulator."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cocotb_tools.check_results import get_results

from hw_tests.sim.build import Built, build_root, tail
from hw_tests.sim.exchange import INPUTS, OUTPUTS, load, save
from hw_tests.sim.runner import LeanVerilator
from hw_tests.sim.toolchain import find_toolchain

__all__ = ["SimResult", "choose_seed", "run"]


@dataclass(frozen=True)
class SimResult:
    """What a run left."""

    outputs: dict[str, Any]
    """What the tests passed to `hw_tests.sim.outputs`."""
    seed: int
    tests: int
    log: str
    waves: Path | None


def choose_seed(seed: int | None = None) -> int:
    """Return `seed`, else `DISC_SEED` from the environment, else one of its own; print it.

    A pytest test draws the same seed each time, so that what passed once passes again; with
    `DISC_SEED=random` it draws another, as everything else does.

    Raises
    ------
    ValueError
        If `DISC_SEED` is neither.
    """
    if seed is None:
        given = os.environ.get("DISC_SEED")
        test = os.environ.get("PYTEST_CURRENT_TEST")
        if given and given != "random":
            if not given.isdecimal():
                raise ValueError(f"DISC_SEED: must be a number from 0 or 'random', got {given!r}")
            seed = int(given)
        elif test and not given:
            seed = zlib.crc32(test.rsplit(" ", 1)[0].encode())  # without its phase
        else:
            seed = int.from_bytes(os.urandom(4), "little")
    print(f"seed {seed} (repeat with DISC_SEED={seed})", file=sys.stderr)
    return seed


def run(
    built: Built,
    module: str,
    *,
    testcase: str | Sequence[str] | None = None,
    seed: int | None = None,
    inputs: Mapping[str, Any] | None = None,
    plusargs: Sequence[str] = (),
    timeout_s: float = 900.0,
) -> SimResult:
    """Run the cocotb tests of a Python module, in a directory of their own.

    The directory is kept, and named, when a test fails or waves were recorded.  Memories and all
    that reset leaves alone start with random values that depend on the seed, and so do top-level
    inputs that the bench does not drive.

    Parameters
    ----------
    built : Built
        From `build`.  Built with waves, it records `dump.vcd`.
    module : str
        Importable module with `@cocotb.test()` functions.
    testcase : str or sequence of str, optional
        Ends of the names of the tests to run; default all.
    seed : int, optional
        See `choose_seed`.
    inputs : mapping of arrays, numbers and strings
        What `hw_tests.sim.inputs()` returns inside.
    plusargs : sequence of str
        `+name=value` for the simulator and `cocotb.plusargs`.
    timeout_s : float
        Wall-clock guard against a bench that hangs; limit simulated time in the bench.

    Raises
    ------
    AssertionError
        A test failed, none was selected, the simulator crashed or the time limit passed; with the
        end of the log.
    """
    seed = choose_seed(seed)
    runs = build_root() / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix=f"{module.rpartition('.')[2]}-", dir=runs))
    save(directory / "inputs.npz", inputs or {})
    log, results = directory / "sim.log", directory / "results.xml"
    problem = _simulate(
        built,
        directory,
        test_module=module,
        testcase=testcase,
        seed=seed,
        # Verilator's seed is a positive 31-bit number.
        plusargs=[
            "+verilator+rand+reset+2",
            f"+verilator+seed+{seed % (2**31 - 1) + 1}",
            *plusargs,
        ],
        log_file=log,
        results_xml=str(results),
        timeout_s=timeout_s,
    )
    tests, failures = get_results(results) if results.is_file() else (0, 0)
    if failures:
        problem = f"{failures} of {tests} tests failed"
    elif problem is None and tests == 0:
        problem = f"no test selected by testcase={testcase!r}"
    waves = directory / "dump.vcd" if built.waves else None
    if waves is not None:
        print(f"waves: {waves}", file=sys.stderr)
    if problem is not None:
        raise AssertionError(
            f"{module} on {built.top}, seed {seed}: {problem}\nkept: {directory}\n{tail(log)}"
        )
    result = SimResult(
        outputs=load(directory / "outputs.npz"),
        seed=seed,
        tests=tests,
        log=log.read_text(encoding="utf-8", errors="replace"),
        waves=waves,
    )
    if waves is None:
        shutil.rmtree(directory)
    return result


def _simulate(built: Built, directory: Path, *, timeout_s: float, **options: Any) -> str | None:
    """Start the simulator; return what went wrong other than failing tests."""
    runner = LeanVerilator(find_toolchain(), timeout_s=timeout_s)
    try:
        runner.test(
            hdl_toplevel=built.top,
            hdl_toplevel_lang="verilog",
            build_dir=built.directory,
            test_dir=directory,
            waves=built.waves,
            extra_env={
                INPUTS: str(directory / "inputs.npz"),
                OUTPUTS: str(directory / "outputs.npz"),
            },
            **options,
        )
    except subprocess.TimeoutExpired:
        return f"still running after {timeout_s:g} s"
    except RuntimeError as error:
        return f"simulator crashed: {error}"
    except SystemExit:
        # Under pytest the runner exits when tests fail; the results file says how many.
        return "simulator ended without results"
    return None
