"""Choose the scales of a network from dense sampling runs of its float model.

Scales reach to the largest magnitude seen, save for the hidden units of the MLP: rare large
values of the other tensors matter more than their share of the squared error says.

::

    python -m golden.integer.calibrate digits-256 --out digits-256.json
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from disc.config import NumberConfig
from golden.integer.calibration import Array, Calibration
from golden.integer.network import OUTPUT_BITS
from golden.integer.observe import Observations, observe_sampling
from golden.integer.parameters import gelu
from golden.integer.quantise import Float
from golden.model.checkpoint import load_checkpoint
from golden.model.dit import DiT

Function = Callable[[Float], Float]

GROUPS = 4
"""Spans of diffusion time with own scales."""
HEADROOM = 2.0
"""Of the residual stream and the output: what CTR and ST add to what dense runs showed."""
CLIPS = np.geomspace(1.0, 0.25, 33)
"""Fractions of the peak that are tried as the largest representable value; of equals the first."""


def fingerprint(model: DiT) -> str:
    """First 12 hex digits of SHA-256 over a model's parameters in order of name."""
    digest = hashlib.sha256()
    for name, value in sorted(model.named_parameters()):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(value.detach().numpy(), dtype="<f4").tobytes())
    return digest.hexdigest()[:12]


def peak_scale(peak: float | np.floating, bits: int) -> float:
    """Scale at which `peak` is the largest integer; of zeros any scale, as of 1."""
    if not np.isfinite(peak):
        raise ValueError("tensor: holds NaN or infinity; cannot choose a scale")
    return (float(peak) or 1.0) / ((1 << (bits - 1)) - 1)


def best_scale(
    x: Float, peak: float | np.floating, bits: int, seen_through: Function = np.asarray
) -> float:
    """Scale with the least mean squared error of quantising a sample.

    Parameters
    ----------
    x
        Examples, any shape.
    peak
        Largest magnitude to be expected; the scale is `peak_scale` of it or of a fraction.
    seen_through
        Function by whose result the error is judged; through GELU large negatives may clip.
    """
    if not np.all(np.isfinite(x)):
        raise ValueError("tensor: holds NaN or infinity; cannot choose a scale")
    whole, limit = peak_scale(peak, bits), (1 << (bits - 1)) - 1
    x = np.asarray(x, dtype=np.float32).ravel()
    wanted = seen_through(x)
    scales = CLIPS * whole
    errors = [
        np.mean(np.square(seen_through(np.clip(np.rint(x / s), -limit, limit) * s) - wanted))
        for s in scales
    ]
    return float(scales[int(np.argmin(errors))])


def choose(
    model: DiT, seen: Observations, number: NumberConfig, *, command: str = ""
) -> Calibration:
    """Turn observations into scales."""
    config, groups = model.config, range(seen.groups)
    layers, bits = range(config.depth), number.operand_bits

    def whole(name: str, group: int) -> Array:
        return np.array([peak_scale(seen.peak(name, i, group).max(), bits) for i in layers])

    def by_head(name: str, group: int | None = None) -> Array:
        heads = [seen.peak(name, i, group).reshape(config.heads, -1).max(axis=1) for i in layers]
        return np.array([[peak_scale(peak, bits) for peak in layer] for layer in heads])

    def clipped(name: str, group: int, through: Function = np.asarray) -> Array:
        return np.array(
            [
                best_scale(
                    seen.sample(name, i, group), seen.peak(name, i, group).max(), bits, through
                )
                for i in layers
            ]
        )

    residual = HEADROOM * max(float(seen.peak("residual", i).max()) for i in layers)
    final_out = HEADROOM * np.maximum(np.float64(seen.peak("final_out", 0)), 1e-6)
    v = by_head("v")
    return Calibration(
        model=fingerprint(model),
        tokens=config.tokens,
        command=command,
        residual=np.array(peak_scale(residual, number.residual_bits)),
        attention_in=np.array([whole("attention_in", g) for g in groups]),
        q=np.array([by_head("q", g) for g in groups]),
        k=by_head("k"),
        v=v,
        # Attention averages rows of v: a unit larger than that of v would be lost.
        attention_out=np.minimum(by_head("attention_out"), v),
        mlp_in=np.array([whole("mlp_in", g) for g in groups]),
        hidden_in=np.array([clipped("hidden_in", g, gelu) for g in groups]),
        hidden_out=np.array([clipped("hidden_out", g) for g in groups]),
        final_in=np.array([peak_scale(seen.peak("final_in", 0, g).max(), bits) for g in groups]),
        final_out=np.array([peak_scale(peak, OUTPUT_BITS) for peak in final_out]),
    )


def calibrate(
    model: DiT,
    labels: Sequence[int],
    seeds: Sequence[int],
    *,
    steps: int = 20,
    groups: int = GROUPS,
    number: NumberConfig | None = None,
    command: str = "",
) -> Calibration:
    """Sample images densely with the float model and choose scales.

    Parameters
    ----------
    labels, seeds
        One each per image.
    steps
        Of the sampling runs; the result serves any number of steps.
    groups
        Spans of diffusion time with own scales.

    Raises
    ------
    ValueError
        An argument is out of range, or the model gives NaN or infinity.
    """
    if not 1 <= groups <= steps:
        raise ValueError(f"groups: must be in [1, {steps}] (steps), got {groups}")
    if not labels:
        raise ValueError("labels: calibration needs at least one image")
    seen = observe_sampling(model, labels, seeds, steps=steps, groups=groups)
    return choose(model, seen, number or NumberConfig(), command=command)


def main() -> None:
    """Calibrate a checkpoint."""
    parser = argparse.ArgumentParser(
        prog="python -m golden.integer.calibrate", description=main.__doc__
    )
    parser.add_argument("checkpoint", help="digits-256, digits-1024 or a path")
    parser.add_argument("--out", type=Path, required=True, help="JSON to write")
    parser.add_argument("--images", type=int, default=10, help="labels 0, 1, 2…")
    parser.add_argument("--seed", type=int, default=1000, help="of the first image")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--groups", type=int, default=GROUPS)
    a = parser.parse_args()
    model = load_checkpoint(a.checkpoint)
    labels = [i % model.config.classes for i in range(a.images)]
    seeds = [a.seed + i for i in range(a.images)]
    command = (
        f"python -m golden.integer.calibrate {Path(a.checkpoint).stem} --images {a.images} "
        f"--seed {a.seed} --steps {a.steps} --groups {a.groups}"
    )
    calibrate(model, labels, seeds, steps=a.steps, groups=a.groups, command=command).save(a.out)


if __name__ == "__main__":
    main()
