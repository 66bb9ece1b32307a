"""cocotb's Verilator runner without forced public signals, with our tools and a time limit."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import TextIO

from cocotb_tools.runner import Verilator

from hw_tests.sim.toolchain import Toolchain

__all__ = ["LeanVerilator"]


class LeanVerilator(Verilator):
    """Runner that builds with a control file instead of `--public-flat-rw`.

    Parameters
    ----------
    tools : Toolchain
    make_args : sequence of str
        More arguments of make.
    timeout_s : float, optional
        Wall-clock limit of each command; `subprocess.TimeoutExpired` when it passes.
    """

    def __init__(
        self, tools: Toolchain, *, make_args: Sequence[str] = (), timeout_s: float | None = None
    ):
        super().__init__()
        self.tools, self.make_args, self.timeout_s = tools, list(make_args), timeout_s
        self.log.setLevel("ERROR")

    def _simulator_in_path_build_only(self) -> None:
        self.executable = self.tools.verilator

    def _use_external_viewer(self) -> bool:
        return False

    def _set_env_common(self) -> None:
        super()._set_env_common()
        # A make that started us would hand down its job server.
        for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):
            self.env.pop(name, None)
        self.env.update(self.tools.environment)

    def _build_command(self) -> list[list[str]]:
        verilate, make = super()._build_command()
        verilate.remove("--public-flat-rw")
        make[0] = self.tools.make
        return [verilate, make + self.tools.make_variables + self.make_args]

    def _execute_cmds(
        self,
        cmds: Sequence[list[str]],
        cwd: os.PathLike[str] | str,
        stdout: TextIO | None = None,
    ) -> None:
        for cmd in cmds:
            done = subprocess.run(
                cmd,
                cwd=cwd,
                env=self.env,
                check=False,
                stdout=stdout,
                stderr=subprocess.STDOUT,
                timeout=self.timeout_s,
            )
            if done.returncode:
                raise RuntimeError(f"{os.path.basename(cmd[0])} returned {done.returncode}")
