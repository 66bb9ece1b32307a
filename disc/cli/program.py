"""`disc program`: assemble, disassemble, check and lower programs."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from disc.cli.common import (
    CalibrationOption,
    ConfigOption,
    JsonOption,
    LatencyOption,
    console,
    print_json,
    print_table,
    progress,
)
from disc.config import load
from disc.output import writable_directory, write_files
from disc.program import MaskMode, Program

if TYPE_CHECKING:
    from disc.lower.shape import BlockShape
    from sim_models.engine import EngineModel

FileArgument = Annotated[Path, typer.Argument(help="Program: text, or words if it ends in .bin.")]


class Mode(StrEnum):
    """A mask mode by name."""

    dense = "dense"
    masked = "masked"
    generate = "generate"

    @property
    def mask_mode(self) -> MaskMode:
        """Its value."""
        return MaskMode[self.name.upper()]


def register(app: typer.Typer) -> None:
    """Add the command group."""
    group = typer.Typer(
        no_args_is_help=True, help="Programs of the core: text, words, checks, lowering."
    )
    for add in (_asm, _disasm, _check, _lower):
        add(group)
    app.add_typer(group, name="program")


def read_program(path: Path, config: str) -> Program:
    """Read a program as text, or as words if the name ends in `.bin`; errors name the file."""
    from disc.program import from_bytes, parse_program

    try:
        if path.suffix == ".bin":
            return Program(tuple(from_bytes(path.read_bytes(), load(config))))
        return parse_program(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise ValueError(f"{path}: is no text; words are read from a name in .bin") from None
    except OSError as error:
        raise ValueError(f"file: cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _asm(group: typer.Typer) -> None:
    @group.command()
    def asm(
        file: FileArgument,
        out: Annotated[Path, typer.Option(help="Words to write, 64 bytes a command.")],
        config: ConfigOption = "tiny",
        as_json: JsonOption = False,
    ) -> None:
        """Turn text into command words.

        Every field is checked against its range under the configuration; `disc program check`
        says whether the commands fit each other.
        """
        from disc.program import to_bytes

        program, chosen = read_program(file, config), load(config)
        try:
            data = to_bytes(program.commands, chosen)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from None
        write_files({out: data})
        report = {"commands": len(program.commands), "bytes": len(data), "out": str(out)}
        print_json(report) if as_json else print_table("Assembled", report)


def _disasm(group: typer.Typer) -> None:
    @group.command()
    def disasm(
        file: FileArgument,
        layout: Annotated[
            Path | None,
            typer.Option(help="layout.json of `lower`, which names the buffers and the hash."),
        ] = None,
        config: ConfigOption = "tiny",
    ) -> None:
        """Print command words as text."""
        from disc.program import format_program

        program = read_program(file, config)
        if layout is not None:
            program = _with_layout(program, layout)
        print(format_program(program), end="")


def _with_layout(program: Program, path: Path) -> Program:
    from disc.program import Buffer, BufferKind

    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        buffers = tuple(
            Buffer(b["name"], b["address"], b["bytes"], BufferKind(b["kind"]))
            for b in record["buffers"]
        )
        rows = record["hash"]
    except OSError as error:
        raise ValueError(f"layout: cannot read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"layout: {path} is not one ({error!r})") from None
    return Program(program.commands, buffers, None if rows is None else tuple(rows))


def _check(group: typer.Typer) -> None:
    @group.command()
    def check(
        file: FileArgument,
        layout: Annotated[
            Path | None, typer.Option(help="layout.json of `lower`, for a program in words.")
        ] = None,
        image: Annotated[
            Path | None,
            typer.Option(help="DRAM from address 0, for row lists; without: all tokens in order."),
        ] = None,
        config: ConfigOption = "tiny",
        as_json: JsonOption = False,
    ) -> None:
        """Refuse a program that races, deadlocks, overruns a memory or reads what nobody wrote."""
        import numpy as np

        from disc.program.check import check as check_program

        program = read_program(file, config)
        if layout is not None:
            program = _with_layout(program, layout)
        if not program.buffers:
            raise ValueError(f"{file}: names no buffers; give the layout.json that belongs to it")
        data = None
        if image is not None:
            try:
                data = np.frombuffer(image.read_bytes(), np.uint8)
            except OSError as error:
                raise ValueError(f"image: cannot read {image}: {error.strerror}") from None
        try:
            found = check_program(program, load(config), data)
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from None
        report = {
            **{f"commands, {queue}": count for queue, count in found.commands.items()},
            "tokens taken": found.waits,
            "most tokens of a pair": found.most_tokens,
        }
        print_json(report) if as_json else print_table("Nothing wrong", report)


def _shape(
    model: str | None, resolution: int, tokens: int, dim: int, heads: int, hidden: int
) -> BlockShape:
    from disc.lower.shape import BlockShape

    if model is None:
        return BlockShape(tokens, dim, heads, hidden)
    from sim_models.networks import get_network

    network = get_network(model, resolution)
    return BlockShape(network.tokens, network.width, network.heads, network.mlp_width)


def _predicted(
    program: Program, engine: EngineModel, density: float, latency: int
) -> dict[str, Any]:
    from disc.program.work import nominal_work
    from sim_models.core import predict

    work = nominal_work(program, engine.config, density=density)
    found = predict(program, engine.config, work, engine, latency=latency)
    array = sum(command.array_cycles(engine.config) for command in program.commands)
    report = {"predicted_cycles": round(found.cycles), "busy": found.busy(program)}
    # With masks the ideal is not what all columns take.
    if all(one.used is None and one.made is None for one in work):
        report["array"] = array / found.cycles
    return report


def _lower(group: typer.Typer) -> None:
    @group.command()
    def lower(
        tokens: Annotated[int, typer.Option(help="N, tokens of an image.", min=1)] = 256,
        dim: Annotated[int, typer.Option(help="D, width of the model.", min=1)] = 128,
        heads: Annotated[int, typer.Option(help="Heads of attention.", min=1)] = 4,
        hidden: Annotated[int, typer.Option(help="Hidden units of the MLP.", min=1)] = 512,
        model: Annotated[
            str | None, typer.Option(help="In place of these sizes: as in `disc estimate`.")
        ] = None,
        resolution: Annotated[int, typer.Option(help="Of the model, in pixels.")] = 512,
        rows: Annotated[
            int | None, typer.Option(help="Most tokens computed in the step; all by default.")
        ] = None,
        mode: Annotated[Mode, typer.Option(help="Of attention.")] = Mode.dense,
        hot: Annotated[Mode, typer.Option(help="Of the MLP's hidden columns.")] = Mode.dense,
        fill: Annotated[
            bool, typer.Option("--fill", help="With generate: fill banks up to the fullest one.")
        ] = False,
        out: Annotated[
            Path | None,
            typer.Option(help="Directory for program.asm, program.bin and layout.json."),
        ] = None,
        predict: Annotated[
            bool, typer.Option("--predict", help="Predict the program's cycles on a core.")
        ] = False,
        density: Annotated[
            float,
            typer.Option(help="--predict: share of the columns in masks, which are random."),
        ] = 0.3,
        latency: LatencyOption = 20,
        calibration: CalibrationOption = None,
        config: ConfigOption = "edge",
        as_json: JsonOption = False,
    ) -> None:
        """Lower a DiT block: self-attention and MLP with their LayerNorms and gates.

        Sizes alone, no tensors: scales in the commands mean nothing.  Prints the number of
        commands, DRAM traffic and the array's ideal cycles; with --out also writes the program,
        with --predict also says what the cycle model expects of it (docs/performance-model.md).
        Text cross-attention, embeddings and the final layer are not in it.
        """
        from disc.lower.count import count
        from disc.lower.plan import BlockPlan
        from disc.lower.shape import BlockScalars, StepKind
        from disc.program import format_program, to_bytes
        from sim_models.engine import EngineModel, chosen_calibration

        chosen = load(config)
        engine = None
        if predict:
            engine = EngineModel.calibrated(chosen, chosen_calibration(chosen, calibration))
        shape = _shape(model, resolution, tokens, dim, heads, hidden)
        if fill and mode != Mode.generate:
            raise ValueError(f"fill: needs mode generate, got {mode}")
        kind = StepKind(rows or shape.tokens, mode.mask_mode, hot=hot.mask_mode, fill=fill)
        if out is not None:
            writable_directory(out)
        with progress() as shown:
            shown.add_task(f"lowering a block of {shape.tokens} tokens")
            plan = BlockPlan(chosen, shape)
            program = plan.program(
                BlockScalars.blank(shape), kind, tokens=predict or out is not None
            )
            report = count(program, plan.layout, chosen).to_json()
            if engine is not None:
                report |= _predicted(program, engine, density, latency)
        report = {"config": chosen.name, "dram_bytes": plan.layout.end, **report}
        if out is not None:
            record = plan.layout.to_json() | {"hash": program.hash_rows}
            write_files(
                {
                    out / "program.asm": format_program(program),
                    out / "program.bin": to_bytes(program.commands, chosen),
                    out / "layout.json": json.dumps(record, indent=2) + "\n",
                }
            )
        if as_json:
            print_json(report)
            return
        flat = {name: value for name, value in report.items() if not isinstance(value, dict)}
        for part in ("commands_by_name", "read_by_kind", "written_by_kind", "busy"):
            if part not in report:
                continue
            label = part.partition("_")[0]
            flat |= {f"{label}: {key}": value for key, value in sorted(report[part].items())}
        print_table("Block", flat)
        if out is not None:
            console.print(f"wrote {out}/program.asm, program.bin, layout.json")
