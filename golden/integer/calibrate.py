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


def peak_scale(peak: float, bits: int) -> float:
    """Scale at which `peak` is the largest integer."""
    if not np.isfinite(peak):
        raise ValueError("tensor: holds NaN or infinity; cannot choose a scale")
    return (float(peak) or 1.0) / ((1 << (bits - 1)) - 1)


def best_scale(x: Float, peak: float, bits: int, seen_through: Function = np.asarray) -> float:
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


def channel_factors(peaks: Float, weight: Float) -> Array:
    """Factors on single channels' scales that even out activations and weights.

    SmoothQuant (Xiao et al., arXiv 2211.10438) with exponent 1/2: a channel's factor is the
    root of its activation's peak over its weights' peak; their geometric mean is 1.

    Parameters
    ----------
    peaks
        [channels], largest magnitudes of the activation.
    weight
        [out, channels] of the layer that reads it.
    """
    activation = np.maximum(np.float64(peaks), 1e-3 * np.max(peaks, initial=1e-12))
    weights = np.float64(np.abs(weight).max(axis=0))
    weights = np.maximum(weights, 1e-3 * np.max(weights, initial=1e-12))
    factors = np.sqrt(activation / weights)
    return factors / np.exp(np.mean(np.log(factors)))


def key_factors(k: Float, q: Float, heads: int) -> Array:
    """Factors on the channels of k, their inverse on those of q, that even out both.

    Parameters
    ----------
    k, q
        [D], largest magnitudes.

    Returns
    -------
    [D], geometric mean 1 in each head.
    """
    k, q = (np.maximum(x, 1e-3 * max(float(x.max()), 1e-12)) for x in (k, q))
    factors = np.sqrt(np.float64(k) / q).reshape(heads, -1)
    return (factors / np.exp(np.log(factors).mean(axis=1, keepdims=True))).ravel()


def choose(
    model: DiT, seen: Observations, number: NumberConfig, *, command: str = ""
) -> Calibration:
    """Turn observations into scales."""
    config, groups = model.config, range(seen.groups)
    layers, heads, bits = range(config.depth), config.heads, number.operand_bits

    def weight(name: str) -> Float:
        return model.get_parameter(name + ".weight").numpy()

    def means(name: str) -> Array:
        return np.array([[seen.mean(name, i, g) for i in layers] for g in groups])

    def whole(name: str, layer: int, group: int, channels: Float) -> float:
        return peak_scale((seen.peak(name, layer, group) / channels).max(), bits)

    def clipped(name: str, layer: int, group: int, through: Function = np.asarray) -> float:
        peak = float(seen.peak(name, layer, group).max())
        return best_scale(seen.sample(name, layer, group), peak, bits, through)

    def scales_by_head(peaks: Float) -> Array:
        """Scales [L, H] of peaks [L, D]."""
        largest = peaks.reshape(len(peaks), heads, -1).max(axis=2)
        return np.array([[peak_scale(peak, bits) for peak in row] for row in largest])

    def peaks(name: str, group: int | None = None) -> Array:
        return np.array([seen.peak(name, i, group) for i in layers], dtype=np.float64)

    attention = np.array(
        [
            channel_factors(seen.peak("attention_in", i), weight(f"blocks.{i}.attn.qkv"))
            for i in layers
        ]
    )
    value = np.array(
        [channel_factors(seen.peak("v", i), weight(f"blocks.{i}.attn.proj")) for i in layers]
    )
    mlp = np.array(
        [channel_factors(seen.peak("mlp_in", i), weight(f"blocks.{i}.mlp.fc1")) for i in layers]
    )
    final = channel_factors(seen.peak("final_in", 0), weight("final_layer.linear"))
    spans = [seen.span("k", i) for i in layers]
    k_offset = np.array([(low + high) / 2 for low, high in spans], dtype=np.float64)
    k_peak = np.array([(high - low) / 2 for low, high in spans], dtype=np.float64)
    key = np.array([key_factors(k_peak[i], seen.peak("q", i), heads) for i in layers])
    v = scales_by_head(peaks("v") / value)
    top = (1 << (number.residual_bits - 1)) - 1
    return Calibration(
        model=fingerprint(model),
        tokens=config.tokens,
        command=command,
        residual=np.array(
            max(float(seen.peak("residual", i).max()) for i in layers) * HEADROOM / top
        ),
        attention_in=np.array(
            [[whole("attention_in", i, g, attention[i]) for i in layers] for g in groups]
        ),
        attention_in_channels=attention,
        attention_in_mean=means("attention_in"),
        q=np.array([scales_by_head(peaks("q", g) * key) for g in groups]),
        k=scales_by_head(k_peak / key),
        k_channels=key,
        k_offset=k_offset,
        v=v,
        v_channels=value,
        # Attention averages rows of v: a unit larger than that of v would be lost.
        attention_out=np.minimum(scales_by_head(peaks("attention_out") / value), v),
        attention_out_mean=means("attention_out"),
        mlp_in=np.array([[whole("mlp_in", i, g, mlp[i]) for i in layers] for g in groups]),
        mlp_in_channels=mlp,
        mlp_in_mean=means("mlp_in"),
        hidden_in=np.array([[clipped("hidden_in", i, g, gelu) for i in layers] for g in groups]),
        hidden_out=np.array([[clipped("hidden_out", i, g) for i in layers] for g in groups]),
        hidden_out_mean=means("hidden_out"),
        final_in=np.array([whole("final_in", 0, g, final) for g in groups]),
        final_in_channels=final,
        final_in_mean=np.array([seen.mean("final_in", 0, g) for g in groups]),
        final_out=np.maximum(np.float64(seen.peak("final_out", 0)), 1e-6)
        * HEADROOM
        / ((1 << 15) - 1),
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
