"""Train the tiny diffusion transformer on the glyph atlas.

One resolution a run; the next resolution goes on from the checkpoint of the one before::

    export OMP_NUM_THREADS=1
    python -m golden.train --size 16 --iterations 1300 --out build/digits-64.safetensors
    python -m golden.train --size 32 --init build/digits-64.safetensors ...

Stops by iteration count, so a run is repeatable: same machine, thread count and command, same
weights.  Threads: one is as good as two here, and far better when the other core is busy.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from pathlib import Path

import torch
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn

from golden.data.glyphs import SIZES, atlas_sha256, load_glyphs
from golden.model.checkpoint import load_checkpoint, read_metadata, save_checkpoint
from golden.model.dit import DiT, DiTConfig
from golden.schedule import TIMESTEP_SCALE, noise_shift, signal_and_noise

LABEL_DROPOUT = 0.1


def optimisers(model: DiT, lr: float) -> list[torch.optim.Optimizer]:
    """Muon for the blocks' matrices, AdamW for all else (embeddings, biases, modulation)."""
    matrices: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        hidden = name.startswith("blocks.") and ".adaLN" not in name and parameter.ndim == 2
        (matrices if hidden else rest).append(parameter)
    return [
        # "match_rms_adamw" makes one learning rate right for both.
        torch.optim.Muon(matrices, lr=lr, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(rest, lr=lr, weight_decay=0.0, betas=(0.9, 0.99)),
    ]


def learning_rate_factor(iteration: int, iterations: int, warmup: int) -> float:
    """Linear warm-up, constant, linear decay to 0 over the last two fifths."""
    return min(1.0, (iteration + 1) / warmup, (iterations - iteration) / (0.4 * iterations))


def velocity_loss(model: DiT, x0: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
    """Mean squared error of the velocity over stratified times, a scalar."""
    batch = len(x0)
    # Stratified: each batch covers all noise levels, which halves the noise of the loss.
    u = (torch.arange(batch) + torch.rand(batch, generator=generator)) / batch
    alpha, sigma = (s.view(-1, 1, 1, 1) for s in signal_and_noise(u, noise_shift(x0.shape[-1])))
    noise = torch.randn(x0.shape, generator=generator)
    dropped = torch.rand(batch, generator=generator) < LABEL_DROPOUT
    y = torch.where(dropped, model.config.null_class, y)
    with torch.autocast("cpu", torch.bfloat16):
        v = model(alpha * x0 + sigma * noise, u * TIMESTEP_SCALE, y)
    return nn.functional.mse_loss(v.float(), alpha * noise - sigma * x0)


def train(
    model: DiT,
    images: Tensor,
    labels: Tensor,
    *,
    iterations: int,
    batch: int,
    lr: float,
    ema: float,
    seed: int,
) -> tuple[DiT, float]:
    """Train in place.

    Args:
        model: where to start.
        images: float32 [n, 1, px, px].
        labels: int64 [n].
        iterations: optimiser steps.
        batch: images a step.
        lr: peak learning rate of both optimisers.
        ema: decay of the averaged weights per step.
        seed: of data order, noise and label dropout.

    Returns:
        The averaged model, and the mean loss of the last tenth of the steps.
    """
    model.train().requires_grad_(True)
    average = DiT(model.config)
    average.load_state_dict(model.state_dict())
    average.requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    optimisers_ = optimisers(model, lr)
    losses: list[float] = []
    order = torch.empty(0, dtype=torch.int64)
    columns = (
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        BarColumn(),
        TextColumn("loss {task.fields[loss]:.4f}  {task.fields[rate]:.1f} images/s"),
        TimeRemainingColumn(),
    )
    start = time.perf_counter()
    with Progress(*columns, refresh_per_second=0.2) as progress:
        task = progress.add_task("train", total=iterations, loss=float("nan"), rate=0.0)
        for iteration in range(iterations):
            while len(order) < batch:
                order = torch.cat([order, torch.randperm(len(images), generator=generator)])
            chosen, order = order[:batch], order[batch:]
            loss = velocity_loss(model, images[chosen], labels[chosen], generator)
            factor = learning_rate_factor(iteration, iterations, warmup=50)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            for optimiser in optimisers_:
                for group in optimiser.param_groups:
                    group["lr"] = lr * factor
                optimiser.step()
                optimiser.zero_grad(set_to_none=True)
            # Early on the average must not remember the start.
            decay = min(ema, (1 + iteration) / (10 + iteration))
            for kept, new in zip(average.parameters(), model.parameters(), strict=True):
                kept.lerp_(new, 1 - decay)
            losses.append(loss.item())
            rate = (iteration + 1) * batch / (time.perf_counter() - start)
            recent = losses[-50:]
            progress.update(task, advance=1, loss=sum(recent) / len(recent), rate=rate)
            if (iteration + 1) % 50 == 0 and not progress.console.is_terminal:
                print(f"{iteration + 1} loss {sum(recent) / len(recent):.4f} {rate:.1f} images/s")
    tail = losses[-max(1, iterations // 10) :]
    return average.eval(), sum(tail) / len(tail)


def main() -> None:
    """Train one resolution and write its checkpoint."""
    parser = argparse.ArgumentParser(prog="python -m golden.train", description=main.__doc__)
    parser.add_argument("--size", type=int, choices=SIZES, required=True, help="edge in pixels")
    parser.add_argument("--iterations", type=int, required=True)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--ema", type=float, default=0.99, help="decay per iteration")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--init", type=Path, help="checkpoint to go on from")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    images, labels = (torch.from_numpy(a) for a in load_glyphs(arguments.size, "train"))
    if arguments.init:
        model = load_checkpoint(arguments.init, size_px=arguments.size)
        before = read_metadata(arguments.init)
    else:
        model, before = DiT(DiTConfig(size_px=arguments.size)), {}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    average, loss = train(
        model,
        images,
        labels,
        iterations=arguments.iterations,
        batch=arguments.batch,
        lr=arguments.lr,
        ema=arguments.ema,
        seed=arguments.seed,
    )
    minutes = (time.perf_counter() - start) / 60
    command = "python -m golden.train " + shlex.join(sys.argv[1:])
    seen = arguments.iterations * arguments.batch
    save_checkpoint(
        arguments.out,
        average,
        {
            "command": "; ".join(filter(None, [before.get("command"), command])),
            "images_seen": str(seen + int(before.get("images_seen", 0))),
            "minutes": f"{minutes + float(before.get('minutes', 0)):.1f}",
            "threads": str(torch.get_num_threads()),
            "torch": torch.__version__,
            "seed": str(arguments.seed),
            "schedule": f"cosine, shift {noise_shift(arguments.size)}, v-prediction",
            "loss": f"{loss:.4f}",
            "data_sha256": atlas_sha256(),
        },
    )
    print(f"{arguments.out}: loss {loss:.4f}, {seen} images in {minutes:.1f} min")


if __name__ == "__main__":
    main()
