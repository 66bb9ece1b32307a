"""The `disc` command line.  One command a file; each is a thin wrapper around a library function.

Exit status: 0 done, 1 the hardware disagrees with the golden model or a simulation failed, 2 bad
input or a missing tool, with one message that says which field and what to do.
"""

from __future__ import annotations

import sys

import typer

from disc.cli import (
    balance,
    calibrate,
    config,
    crosscheck,
    demo,
    estimate,
    hashes,
    inspect,
    program,
    quality,
    run,
    sample,
    verilog,
)

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="""DiSC in the open: a sparse diffusion-transformer accelerator.

Generate its Verilog, check it against the golden model on a trained diffusion transformer, and
estimate whole networks with a cycle model that is calibrated on the RTL.

**Start with** `disc demo`.  Every command has `--help`, and `--json` where a program may read it.
""",
)
for module in (
    demo,
    sample,
    crosscheck,
    run,
    verilog,
    estimate,
    calibrate,
    hashes,
    balance,
    inspect,
    quality,
    program,
    config,
):
    module.register(app)


def main() -> None:
    """Run the command line; turn known errors into one message and an exit status."""
    try:
        app()
    except AssertionError as error:
        _fail(error, 1)
    except (ValueError, OSError) as error:
        _fail(error, 2)
    except RuntimeError as error:
        # Only the tool chain's own errors are for the user; others deserve a traceback.
        from hw_tests.sim import BuildError, ToolchainError

        if not isinstance(error, BuildError | ToolchainError):
            raise
        _fail(error, 2)


def _fail(error: Exception, status: int) -> None:
    print(f"error: {error}", file=sys.stderr)
    sys.exit(status)
