"""Wall time of a transformer of diffusers with CTR and ST, relative to dense.

::

    python -m golden.accelerate.bench
    python -m golden.accelerate.bench --model pixart --width 1152 --heads 16 --depth 4

Weights are random: times do not depend on them, but for how many entries ST keeps, and how many
those are in trained models is another question.  Latents change as in DDIM sampling.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any

import torch

from disc.schedule import CTRConfig, STConfig
from golden.accelerate import attach, detach

_CAPTION_WIDTH, _TEXT_TOKENS = 4096, 300


def build(model: str, *, width: int, heads: int, depth: int, tokens_edge: int) -> Any:
    """Return a transformer of diffusers with random weights, in evaluation mode."""
    import diffusers

    sizes: dict[str, Any] = {
        "num_attention_heads": heads,
        "attention_head_dim": width // heads,
        "num_layers": depth,
        "out_channels": 8,
        "sample_size": 2 * tokens_edge,
    }
    torch.manual_seed(0)
    if model == "dit":
        made = diffusers.DiTTransformer2DModel(**sizes)
    else:
        made = diffusers.PixArtTransformer2DModel(
            **sizes,
            cross_attention_dim=width,
            caption_channels=_CAPTION_WIDTH,
            use_additional_conditions=False,
        )
    return made.eval().requires_grad_(False)


@torch.no_grad()
def generate(transformer: Any, steps: int, batch: int) -> float:
    """Run a DDIM loop and return its seconds."""
    import diffusers

    config = transformer.config
    scheduler = diffusers.DDIMScheduler(clip_sample=False)
    scheduler.set_timesteps(steps)
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(batch, 4, config.sample_size, config.sample_size, generator=generator)
    given: dict[str, Any] = {"class_labels": torch.arange(batch)}
    if isinstance(transformer, diffusers.PixArtTransformer2DModel):
        text = torch.randn(batch, _TEXT_TOKENS, _CAPTION_WIDTH, generator=generator)
        given = {"encoder_hidden_states": text}
    start = time.perf_counter()
    for t in scheduler.timesteps:
        noise = transformer(z, timestep=t.expand(batch), **given).sample[:, :4]
        z = scheduler.step(noise, t, z).prev_sample
    return time.perf_counter() - start


def main(arguments: Sequence[str] | None = None) -> None:
    """Print work and wall time of CTR, ST and both, relative to dense."""
    parser = argparse.ArgumentParser(
        prog="python -m golden.accelerate.bench",
        description=main.__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--model", choices=["dit", "pixart"], default="dit")
    parser.add_argument("--width", type=int, default=384, help="channels")
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--depth", type=int, default=6, help="blocks")
    parser.add_argument("--edge", type=int, default=32, help="tokens along an edge")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--every", type=int, default=5, help="a refresh every so many steps")
    parser.add_argument("--batch", type=int, default=1, help="images, guidance branches included")
    parser.add_argument("--reuse", type=float, default=0.75, help="fraction of tokens, for CTR")
    parser.add_argument("--alpha", type=float, default=2.0, help="threshold times N, for ST")
    parser.add_argument("--repeat", type=int, default=3, help="runs, of which the fastest counts")
    a = parser.parse_args(arguments)
    for field in ("width", "heads", "depth", "edge", "steps", "batch", "repeat"):
        if getattr(a, field) < 1:
            parser.error(f"--{field}: {getattr(a, field)} is below 1")
    if a.width % a.heads:
        parser.error(f"--width: {a.width} is not a multiple of heads = {a.heads}")
    transformer = build(a.model, width=a.width, heads=a.heads, depth=a.depth, tokens_edge=a.edge)
    try:
        ctr, st = CTRConfig(reuse=a.reuse), STConfig(alpha=a.alpha)
        print(
            f"{type(transformer).__name__}: width {a.width}, {a.heads} heads, {a.depth} blocks, "
            f"{a.edge**2} tokens, batch {a.batch}, {a.steps} steps, {torch.get_num_threads()} "
            "threads, float32, random weights"
        )
        settings: dict[str, dict[str, Any]] = {
            "dense": {},
            "CTR": {"ctr": ctr},
            "ST": {"st": st},
            "CTR, ST": {"ctr": ctr, "st": st},
        }
        generate(transformer, 1, a.batch)  # the first call is slower than any other
        seconds = dict.fromkeys(settings, float("inf"))
        work = dict.fromkeys(settings, 1.0)
        # In turn, so that whatever else the machine does slows all of them.
        for name, parts in list(settings.items()) * a.repeat:
            if parts:
                accelerated = attach(transformer, steps=a.steps, every=a.every, **parts)
            seconds[name] = min(seconds[name], generate(transformer, a.steps, a.batch))
            if parts:
                work[name] = accelerated.macs()["total"] / accelerated.dense_macs()["total"]
                detach(transformer)
        for name in settings:
            ratio = seconds[name] / seconds["dense"]
            print(f"{name:8} {seconds[name]:7.2f} s, {ratio:4.0%} of dense; work {work[name]:4.0%}")
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
