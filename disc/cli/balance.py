"""`disc balance`."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from disc.cli.common import (
    CheckpointOption,
    JsonOption,
    SeedOption,
    console,
    print_json,
    progress,
)
from disc.output import writable_directory, write_files

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sim_models.balance.study import Inputs

Record = dict[str, Any]
Tell = Callable[[str], None]

STEPS, EVERY = 20, 5
"""Denoising steps; masks are made in every fifth."""
IMAGE_BANKS = 16
IMAGE_MAKERS = ("plain", "even, 2 bins")


def register(app: typer.Typer) -> None:
    """Add the command."""

    @app.command()
    def balance(
        checkpoint: CheckpointOption = "digits-1024",
        density: Annotated[
            list[float] | None,
            typer.Option(help="Fraction of columns kept; may be repeated.  Without: 0.3, 0.1."),
        ] = None,
        banks: Annotated[
            list[int] | None,
            typer.Option(help="Number of banks; may be repeated.  Without: 2, 4, 8, 16, 32."),
        ] = None,
        images: Annotated[
            int, typer.Option(help="Images for quality under each mask maker; 0: none.", min=0)
        ] = 0,
        out: Annotated[Path, typer.Option(help="Directory for CSV files and PNGs.")] = Path(
            "build/balance"
        ),
        seed: SeedOption = 0,
        as_json: JsonOption = False,
    ) -> None:
        """Study what evens out the banks: hashes, run-ahead, row order, and even masks.

        Masks are those of the trained model.  Hashes are searched on the images of the first two
        seeds and everything is judged on those of the next two.
        """
        from disc.config import preset
        from sim_models.balance import study
        from sim_models.balance.area import area
        from sim_models.balance.plot import plot_hashes, plot_masks

        densities = sorted(density or (0.3, 0.1), reverse=True)
        for value in densities:
            if not 0 < value < 1:
                raise ValueError(f"density: must be above 0 and below 1, got {value}")
        counts = sorted(set(banks or study.BANKS))
        writable_directory(out)
        files: dict[str, list[Record]] = {}
        with progress() as shown:
            task = shown.add_task("sampling the trained model")

            def tell(text: str) -> None:
                shown.update(task, description=text)

            def keep(name: str, records: list[Record], **pictures: bytes) -> None:
                files[name] = records
                written: dict[Path, str | bytes] = {out / f"balance-{name}.csv": _csv(records)}
                written |= {out / f"{stem}.png": content for stem, content in pictures.items()}
                write_files(written)

            searched_on, judged = _inputs(checkpoint, seed, tell)
            thresholds = [study.threshold_for(searched_on, value) for value in densities]
            by_hash: list[Record] = []
            for threshold in thresholds:
                tell("making masks")
                records, chosen = study.run_ahead_study(
                    study.masks_of(searched_on, threshold),
                    study.masks_of(judged, threshold),
                    banks=counts,
                    seed=seed,
                    tell=tell,
                )
                by_hash += records
            keep("hashes", by_hash, **{"balance-hashes": plot_hashes(by_hash)})
            by_maker: list[Record] = []
            for name in ("xor-fold", "searched"):
                hashes = {count: chosen[count][name][0, 0] for count in counts}
                by_maker += study.mask_study(
                    judged,
                    thresholds,
                    hashes,
                    name,
                    hardware=(8, 16) if name == "xor-fold" else (),
                    seed=seed,
                    tell=tell,
                )
            keep("masks", by_maker, **{"balance-masks": plot_masks(by_maker)})
            keep("engine", _engine(judged, thresholds, by_maker, tell))
            sizes = [
                {"config": name, **record}
                for name in ("tiny", "edge", "server")
                for record in area(preset(name))
            ]
            keep("area", sizes)
            if images:
                seeds = range(seed + 10, seed + 10 + images)
                keep("images", _images(checkpoint, seeds, by_maker, tell))
        if as_json:
            print_json({"checkpoint": checkpoint, "seed": seed, **files})
            return
        _print(files)
        console.print(f"written to {out}")


def _inputs(checkpoint: str, seed: int, tell: Tell) -> tuple[Inputs, Inputs]:
    """Return queries and keys of mask-making steps: two images to search on, two to judge."""
    import numpy as np

    from golden.capture import capture_all
    from sim_models.balance.study import Inputs

    parts: dict[str, list[NDArray[np.float32]]] = {"q": [], "k": []}
    at = range(0, STEPS, EVERY)
    for image in range(4):
        tell(f"sampling the trained model, image {image + 1} of 4")
        seen = capture_all(checkpoint, at=at, seed=seed + image, steps=STEPS, alpha=None)
        layers, heads = (1 + max(key[axis] for key in seen) for axis in (1, 2))
        for step in at:
            for name, values in parts.items():
                values.append(
                    np.stack(
                        [
                            [getattr(seen[step, la, he], name) for he in range(heads)]
                            for la in range(layers)
                        ]
                    )
                )
    q, k = np.stack(parts["q"]), np.stack(parts["k"])
    half = len(q) // 2
    return Inputs(q[:half], k[:half]), Inputs(q[half:], k[half:])


def _engine(
    judged: Inputs, thresholds: Sequence[float], masks: Sequence[Record], tell: Tell
) -> list[Record]:
    """Dot, axpy and whole commands of three heads, by the engine's cycle model."""
    import numpy as np

    from disc.hashing import BankHash, local_bits_for
    from sim_models.balance.engine import engine_record
    from sim_models.balance.masks import make_mask

    layers, heads, columns, head_dim = judged.q.shape[1:]
    sample, rows = len(judged.q) // 2, np.arange(columns)
    p = judged.probabilities(sample)
    available = {record["banks"] for record in masks}
    result = []
    for banks in (count for count in (4, 8, 16) if count in available):
        hash_ = BankHash.xor_fold(banks, local_bits_for(columns, banks))
        for index, threshold in enumerate(thresholds):
            for maker in ("plain", "even"):
                alpha = _alpha(masks, maker, banks, index)
                for layer, head in ((0, 0), (layers // 2, 1 % heads), (layers - 1, heads - 1)):
                    tell(f"engine, {banks} banks, {maker}: layer {layer}, head {head}")
                    used = threshold if maker == "plain" else alpha / columns
                    mask = make_mask(maker, p[layer, head], rows, hash_, used)
                    fixed = {"banks": banks, "maker": maker, "alpha": used * columns}
                    fixed |= {"layer": layer, "head": head, "density": float(mask.mean())}
                    result.append(fixed | engine_record(mask, hash_, head_dim))
    return result


def _alpha(masks: Sequence[Record], maker: str, banks: int, index: int) -> float:
    """Threshold times N of a maker at equal mass, at the index-th density, with XOR-fold."""
    found = [
        record["alpha"]
        for record in masks
        if (record["hash"], record["maker"], record["banks"]) == ("xor-fold", maker, banks)
    ]
    return float(found[index])


def _images(
    checkpoint: str, seeds: Sequence[int], masks: Sequence[Record], tell: Tell
) -> list[Record]:
    """Image quality under mask makers at equal mass: ST alone, residual shared."""
    import numpy as np
    import torch

    from disc.hashing import BankHash, local_bits_for
    from disc.schedule import Schedule, STConfig
    from golden.model import load_checkpoint
    from golden.quality import psnr
    from golden.quality.runs import sample_run
    from sim_models.balance.masks import in_banks, make_mask

    model = load_checkpoint(checkpoint)
    columns = model.config.tokens
    hash_ = BankHash.xor_fold(IMAGE_BANKS, local_bits_for(columns, IMAGE_BANKS))
    if not any(record["banks"] == IMAGE_BANKS for record in masks):
        raise ValueError(f"images: need masks for {IMAGE_BANKS} banks; add --banks {IMAGE_BANKS}")

    def run(name: str, alpha: float | None, used: float = 0.0) -> tuple[Any, dict[str, float]]:
        sums = {"kept": 0.0, "steps": 0.0, "mass": 0.0, "rows": 0.0}

        def make(p: torch.Tensor, st: STConfig, first: int) -> torch.Tensor:
            values = p.numpy()
            rows = np.arange(first, first + p.shape[-2])
            mask = make_mask(name, values, rows, hash_, used / columns)
            sums["kept"] += mask.sum()
            sums["steps"] += in_banks(mask, hash_).sum(axis=-1).max(axis=-1).sum()
            sums["mass"] += values[mask].sum(dtype=np.float64)
            sums["rows"] += mask[..., 0].size
            return torch.from_numpy(mask)

        st = None if alpha is None else STConfig(alpha=alpha, share_residual=True)
        schedule = Schedule.periodic(STEPS, every=EVERY, st=st)
        done = sample_run(
            model,
            schedule,
            seeds,
            maker=make,
            tell=lambda ready, total: tell(f"images, {name}: {ready} of {total}"),
        )
        return done.images, sums

    tell("images: dense")
    dense, _ = run("plain", None)
    result = []
    plain = [_alpha(masks, "plain", IMAGE_BANKS, index) for index in range(_densities(masks))]
    for index, alpha in enumerate(plain):
        wanted = [(maker, _alpha(masks, maker, IMAGE_BANKS, index)) for maker in IMAGE_MAKERS]
        for maker, used in wanted:
            images, sums = run(maker, used, used)
            rows = sums["rows"]
            result.append(
                {
                    "banks": IMAGE_BANKS,
                    "plain_alpha": alpha,
                    "maker": maker,
                    "alpha": used,
                    "density": sums["kept"] / rows / columns,
                    "mass": sums["mass"] / rows,
                    "steps": sums["steps"] / rows,
                    "psnr_db": psnr(images, dense),
                    "images": len(seeds),
                }
            )
    return result


def _densities(masks: Sequence[Record]) -> int:
    return len({record["density"] for record in masks})


def _csv(records: Sequence[Record]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]), lineterminator="\n")
    writer.writeheader()
    for record in records:
        writer.writerow(
            {
                name: f"{value:.5g}" if isinstance(value, float) else value
                for name, value in record.items()
            }
        )
    return text.getvalue()


def _print(files: dict[str, list[Record]]) -> None:
    banks = sorted({record["banks"] for record in files["hashes"]})
    table = Table(title="steps of the balanced ideal over steps taken", title_justify="left")
    table.add_column("measure")
    for count in banks:
        table.add_column(f"B = {count}", justify="right")

    def row(name: str, values: dict[int, float]) -> None:
        table.add_row(name, *(f"{values[count]:.3f}" for count in banks))

    for density in sorted({record["density"] for record in files["hashes"]}, reverse=True):
        table.add_section()
        table.add_row(f"[bold]{density:.1%} kept")
        ones = [
            record
            for record in files["hashes"]
            if record["density"] == density
            and (record["measure"], record["order"]) == ("slide", "raster")
        ]
        for name in dict.fromkeys(record["hash"] for record in ones):
            for window in (1, 8):
                values = {
                    record["banks"]: record["of_ideal"]
                    for record in ones
                    if (record["hash"], record["window"]) == (name, window)
                }
                row(f"{name}, {window} row{'s' * (window > 1)}", values)
        # Rows drawn for mask makers keep nearly as much.
        near = min((record["density"] for record in files["masks"]), key=lambda x: abs(x - density))
        for maker in ("fill up", "even", "by layer", "uniform"):
            values = {
                record["banks"]: record["of_ideal"]
                for record in files["masks"]
                if (record["density"], record["hash"], record["maker"]) == (near, "xor-fold", maker)
            }
            row(f"masks {maker}, xor-fold, equal mass", values)
    console.print(table)
