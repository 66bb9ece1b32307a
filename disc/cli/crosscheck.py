"""`disc crosscheck`."""

from __future__ import annotations

from typing import Annotated

import typer

from disc.cli.common import (
    CheckpointOption,
    ConfigOption,
    JsonOption,
    SeedOption,
    print_json,
    print_table,
    progress,
)
from disc.config import load


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def crosscheck(
        layer: Annotated[int, typer.Option(help="Transformer block, from 0.")] = 2,
        head: Annotated[int, typer.Option(help="Attention head, from 0.")] = 1,
        step: Annotated[int, typer.Option(help="Denoising step, 0 is the noisiest.")] = 12,
        steps: Annotated[int, typer.Option(help="Denoising steps in all.")] = 20,
        seed: SeedOption = 0,
        config: ConfigOption = "tiny",
        checkpoint: CheckpointOption = "digits-256",
        alpha: Annotated[
            float, typer.Option(help="Softmax threshold relative to the uniform probability 1/N.")
        ] = 0.5,
        refresh: Annotated[int, typer.Option(help="Masks are made every this many steps.")] = 5,
        hash_name: Annotated[
            str,
            typer.Option(
                "--hash", help="modulo, xor-fold, random, searched, or a matrix like 0x1,0x2."
            ),
        ] = "xor-fold",
        selected: Annotated[
            bool, typer.Option("--selected", help="Only the rows that CTR selects, not all.")
        ] = False,
        stall: Annotated[
            float, typer.Option(help="Fraction of cycles in which every stream is stalled.")
        ] = 0.0,
        as_json: JsonOption = False,
    ) -> None:
        """Run one attention head of the trained model on the RTL and compare to the bit.

        Samples the model with the golden model up to the step, quantises the head's queries, keys
        and values, runs them through the generated Verilog under Verilator, and compares with the
        integer golden core.  A step divisible by --refresh is dense and makes a mask; any other
        reuses the last one.  Exit status 1 if anything differs.

        `ideal_cycles`: the kept columns spread evenly over the banks, no fill, no drain.
        `utilisation`: share of all multipliers and cycles that worked on a kept column.
        """
        from hw_tests.crosscheck import crosscheck as check

        chosen = load(config)
        with progress() as shown:
            task = shown.add_task("")
            result = check(
                chosen,
                checkpoint=checkpoint,
                seed=seed,
                steps=steps,
                step=step,
                layer=layer,
                head=head,
                alpha=alpha,
                refresh=refresh,
                hash_name=hash_name,
                selected_only=selected,
                stall=stall,
                tell=lambda text: shown.update(task, description=text),
            )
        if as_json:
            print_json(result.report)
        else:
            print_table("RTL against the integer golden core", result.report)
        if result.report["mismatches"]:
            raise typer.Exit(1)
