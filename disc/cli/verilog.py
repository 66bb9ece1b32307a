"""`disc verilog`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from disc.cli.common import ConfigOption, JsonOption, print_json, print_table, progress
from disc.config import load
from disc.output import writable_directory, write_files


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def verilog(
        config: ConfigOption = "edge",
        out: Annotated[Path, typer.Option(help="Directory to write into.")] = Path("build/verilog"),
        lint: Annotated[
            bool, typer.Option(help="Lint with Verilator; any unwaived warning fails.")
        ] = True,
        as_json: JsonOption = False,
    ) -> None:
        """Write the core as Verilog, with file list, lint waivers and its configuration.

        The top module is always `disc_core`; `clk` is the clock, `rst` the synchronous, active-high
        reset.  The same configuration gives the same text on every machine.
        """
        from hw_tests.sim import find_toolchain
        from synth.lint import check
        from synth.release import TOP, release

        chosen = load(config)
        writable_directory(out)
        if lint:
            find_toolchain()  # before the long part
        with progress() as shown:
            shown.add_task(f"generating {TOP} for {chosen.name}")
            files = release(chosen)
            if lint:
                shown.add_task("linting")
                check(files)
        write_files({out / name: text for name, text in files.items()})
        written = sorted(str(out / name) for name in files)
        report = {
            "top": TOP,
            "config": chosen.name,
            "digest": chosen.digest,
            "files": written,
            "verilog_bytes": len(files[f"{TOP}.v"]),
            "lint": "clean" if lint else "not run",
        }
        if as_json:
            print_json(report)
        else:
            print_table("Verilog", report | {"files": "\n".join(written)})
