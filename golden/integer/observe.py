"""What the tensors of the float model look like over whole sampling runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from golden.model.dit import DiT, modulate
from golden.sampling import sample

Observer = Callable[[str, int, Tensor], None]
"""(tensor, layer, value [B, N, channels])."""


def observed_forward(model: DiT, z: Tensor, t: Tensor, y: Tensor, observe: Observer) -> Tensor:
    """`model(z, t, y)`, showing every tensor that the integer core quantises on the way.

    Names are those of `Calibration`; "qkv" is q, k and v of all heads side by side, "residual"
    is seen in several places.  The final layer's tensors have layer 0.
    """
    block: Any  # modules have no types
    x, c = model.embed(z), model.condition(t, y)
    observe("residual", 0, x)
    for layer, block in enumerate(model.blocks):
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = block.modulation(c)
        inner = block.attention_input(x, shift_a, scale_a)
        observe("attention_in", layer, inner)
        q, k, v = block.attn.split_heads(inner)
        for name, value in (("q", q), ("k", k), ("v", v)):
            observe(name, layer, value.transpose(1, 2).flatten(2))
        out = block.attn.core(q, k, v, layer)
        observe("attention_out", layer, out.transpose(1, 2).flatten(2))
        x = x + gate_a[:, None] * block.attn.merge_heads(out)
        observe("residual", layer, x)
        inner = modulate(block.norm2(x), shift_m, scale_m)
        observe("mlp_in", layer, inner)
        hidden = block.mlp.fc1(inner)
        observe("hidden_in", layer, hidden)
        hidden = nn.functional.gelu(hidden, approximate="tanh")
        observe("hidden_out", layer, hidden)
        x = x + gate_m[:, None] * block.mlp.fc2(hidden)
        observe("residual", layer, x)
    final: Any = model.final_layer
    shift, scale = final.adaLN_modulation(c).chunk(2, dim=1)
    inner = modulate(final.norm_final(x), shift, scale)
    observe("final_in", 0, inner)
    patches = final.linear(inner)
    observe("final_out", 0, patches)
    return model.unpatchify(patches)


@dataclass
class Observations:
    """Peak of every channel, and a sample of rows, by tensor, layer and group."""

    groups: int
    peaks: dict[tuple[str, int, int], NDArray[np.float32]] = field(default_factory=dict)
    """[channels], largest magnitude."""
    rows: dict[tuple[str, int, int], list[NDArray[np.float32]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """Each [rows, channels]."""

    def add(
        self, name: str, layer: int, group: int, value: Tensor, tokens: NDArray[np.int64]
    ) -> None:
        """Take note of a tensor [B, N, channels]; of `tokens` as examples."""
        array = value.numpy()
        if not np.isfinite(array).all():
            raise ValueError(f"{name}: holds NaN or infinity in layer {layer}")
        key = (name, layer, group)
        peak = np.abs(array).max(axis=(0, 1))
        self.peaks[key] = np.maximum(self.peaks.get(key, peak), peak)
        self.rows[key].append(array[:, tokens].reshape(-1, array.shape[2]).copy())

    def peak(self, name: str, layer: int, group: int | None = None) -> NDArray[np.float32]:
        """Largest magnitudes [channels], in one group or in all."""
        chosen = range(self.groups) if group is None else [group]
        return np.maximum.reduce([self.peaks[name, layer, g] for g in chosen])

    def sample(self, name: str, layer: int, group: int | None = None) -> NDArray[np.float32]:
        """Rows [n, channels] of one group, or of all."""
        chosen = range(self.groups) if group is None else [group]
        return np.concatenate([x for g in chosen for x in self.rows[name, layer, g]])


def observe_sampling(
    model: DiT,
    labels: Sequence[int],
    seeds: Sequence[int],
    *,
    steps: int,
    groups: int,
    rows: int = 4,
    batch: int = 10,
) -> Observations:
    """Sample images densely and return what the tensors looked like.

    Parameters
    ----------
    labels, seeds
        One each per image.
    steps
        Of a sampling run.
    groups
        Spans of diffusion time to keep apart.
    rows
        Tokens of an image and step that are kept as examples.
    """
    seen = Observations(groups)
    pick = np.random.default_rng(0)
    count = min(rows, model.config.tokens)

    def denoise(z: Tensor, t: Tensor, y: Tensor) -> Tensor:
        group = min(int((1 - float(t[0]) / 1000) * groups), groups - 1)
        tokens = np.sort(pick.choice(model.config.tokens, count, replace=False))
        return observed_forward(
            model, z, t, y, lambda name, layer, value: seen.add(name, layer, group, value, tokens)
        )

    for i in range(0, len(labels), batch):
        sample(model, labels[i : i + batch], seeds[i : i + batch], steps=steps, denoiser=denoise)
    return seen
