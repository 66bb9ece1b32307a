"""The level between float and integer: same values rounded at the same points, float in between.

Weights and activations are quantised as in the integer core, with the same scales.  Softmax,
LayerNorm, GELU, multipliers and accumulators are exact (float64).  So the distance to the float
model is the price of 8 bits, and the distance to the integer core that of integer arithmetic.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from disc.config import NumberConfig
from golden.integer.calibration import Calibration
from golden.integer.network import OUTPUT_BITS
from golden.model.dit import DiT

POINTS = (
    "weights",
    "residual",
    "attention_in",
    "q",
    "k",
    "v",
    "attention_out",
    "mlp_in",
    "hidden_in",
    "hidden_out",
    "final_in",
    "final_out",
)
"""Where values are rounded."""


class QuantisedFloatDiT:
    """Denoiser for `golden.sampling.sample`: all tokens, all attention entries.

    Parameters
    ----------
    model, calibration, number
        As for `IntegerDiT`.
    without
        Points (see `POINTS`) that are left unrounded, to see what each costs.
    """

    def __init__(
        self,
        model: DiT,
        calibration: Calibration,
        number: NumberConfig | None = None,
        *,
        without: Collection[str] = (),
    ) -> None:
        unknown = set(without) - set(POINTS)
        if unknown:
            raise ValueError(f"without: no point {sorted(unknown)}; choose of {list(POINTS)}")
        self.model, self.calibration = model, calibration
        self.number = number or NumberConfig()
        self.without = frozenset(without)

    def rounded(
        self, name: str, x: Tensor, unit: Tensor | float, bits: int | None = None
    ) -> Tensor:
        """Round to multiples of `unit`, halves up, and saturate, unless the point is left out."""
        if name in self.without:
            return x
        limit = 1 << ((bits or self.number.operand_bits) - 1)
        return torch.clamp(torch.floor(x / unit + 0.5), -limit, limit - 1) * unit

    def linear(self, x: Tensor, module: Any, units: Tensor | float = 1.0) -> Tensor:
        """Apply a layer with weights rounded per output channel, which absorb the input's units."""
        weight = module.weight.double() * units
        limit = (1 << (self.number.operand_bits - 1)) - 1
        unit = weight.abs().amax(dim=1, keepdim=True) / limit
        unit = torch.where(unit > 0, unit, 1.0)
        weight = self.rounded("weights", weight, unit) / units
        return nn.functional.linear(x, weight, module.bias.double())

    def block(self, x: Tensor, condition: Tensor, layer: int, group: int) -> Tensor:
        """Tokens [B, N, D] float64 under conditioning [B, D] float32 to [B, N, D]."""
        c, config = self.calibration, self.model.config
        module: Any = self.model.blocks[layer]
        parts = [p.double()[:, None] for p in module.modulation(condition)]
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = parts

        def head_units(scale: np.ndarray) -> Tensor:
            return torch.tensor(scale).repeat_interleave(config.head_dim)

        inner = module.norm1(x) * (1 + scale_a) + shift_a
        inner = self.rounded("attention_in", inner, float(c.attention_in[group, layer]))
        q, k, v = self.linear(inner, module.attn.qkv).chunk(3, dim=-1)
        q = self.rounded("q", q, head_units(c.q[group, layer]))
        k = self.rounded("k", k, head_units(c.k[layer]))
        v = self.rounded("v", v, head_units(c.v[layer]))
        q, k, v = (p.unflatten(-1, (config.heads, -1)).transpose(1, 2) for p in (q, k, v))
        out = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        out_unit = head_units(c.attention_out[layer])
        out = self.rounded("attention_out", out, out_unit)
        # The weights behind it absorb units that differ between heads.
        out = self.linear(out, module.attn.proj, out_unit)
        x = x + gate_a * out
        x = self.rounded("residual", x, float(c.residual), self.number.residual_bits)

        inner = module.norm2(x) * (1 + scale_m) + shift_m
        inner = self.rounded("mlp_in", inner, float(c.mlp_in[group, layer]))
        hidden = self.linear(inner, module.mlp.fc1)
        hidden = self.rounded("hidden_in", hidden, float(c.hidden_in[group, layer]))
        hidden = nn.functional.gelu(hidden, approximate="tanh")
        hidden = self.rounded("hidden_out", hidden, float(c.hidden_out[group, layer]))
        x = x + gate_m * self.linear(hidden, module.mlp.fc2)
        return self.rounded("residual", x, float(c.residual), self.number.residual_bits)

    @torch.no_grad()
    def __call__(self, z: Tensor, t: Tensor, y: Tensor) -> Tensor:
        """Predict the velocity, as `DiT` does; one timestep for the batch."""
        c, model = self.calibration, self.model
        group = c.group(float(t[0]))
        condition = model.condition(t, y)
        x = model.embed(z).double()
        x = self.rounded("residual", x, float(c.residual), self.number.residual_bits)
        for layer in range(model.config.depth):
            x = self.block(x, condition, layer, group)
        last: Any = model.final_layer
        parts = last.adaLN_modulation(condition).chunk(2, dim=1)
        shift, scale = (p.double()[:, None] for p in parts)
        inner = last.norm_final(x) * (1 + scale) + shift
        inner = self.rounded("final_in", inner, float(c.final_in[group]))
        patches = self.linear(inner, last.linear)
        patches = self.rounded("final_out", patches, torch.tensor(c.final_out), OUTPUT_BITS)
        return model.unpatchify(patches).float()
