"""From a float `DiT` and its calibration to the integer constants of every group of steps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from disc.config import NumberConfig
from disc.program import FuseCommand, MaskMode
from golden.integer.block import BlockConstants, BlockVectors
from golden.integer.calibrate import fingerprint
from golden.integer.calibration import Calibration, CalibrationError
from golden.integer.linear import Linear
from golden.integer.network import NetworkConstants, StepVectors
from golden.integer.parameters import (
    Vector,
    gate,
    gelu_table,
    integer_epsilon,
    modulation,
    quantise_linear,
    requantisation,
)
from golden.integer.quantise import fixed_multiplier
from golden.model.dit import DiT


class Lowering:
    """Integer constants of a model, and of any step's conditioning.

    Parameters
    ----------
    model
        Float model, in evaluation mode.
    calibration
        Its scales.
    number
        Number formats.
    hot_tau
        Threshold of column sparsity in units of GELU's output; None computes all columns.

    Raises
    ------
    CalibrationError
        The calibration is of another model or size.
    """

    def __init__(
        self,
        model: DiT,
        calibration: Calibration,
        number: NumberConfig,
        *,
        hot_tau: float | None = None,
    ) -> None:
        if calibration.model != fingerprint(model) or calibration.tokens != model.config.tokens:
            raise CalibrationError(
                f"calibration: made for model {calibration.model} with {calibration.tokens} "
                f"tokens, not for {fingerprint(model)} with {model.config.tokens}; make one: "
                "python -m golden.integer.calibrate --help"
            )
        if hot_tau is not None and not hot_tau >= 0:
            raise ValueError(f"hot_tau: must be at least 0, got {hot_tau}")
        self.model, self.calibration, self.number = model, calibration, number
        self.hot_tau = hot_tau
        self.units: list[list[tuple[Vector, Vector]]] = []
        """[group][layer]: units of the accumulators of proj and of fc2."""
        self.constants = [self._group(g) for g in range(calibration.groups)]

    def _linear(self, module: Any, in_scale: float | Vector) -> tuple[Linear, Vector]:
        weight = module.weight.numpy().astype(np.float64)
        return quantise_linear(weight, module.bias.numpy(), in_scale, self.number)

    def _group(self, g: int) -> NetworkConstants:
        c, model = self.calibration, self.model
        self.units.append([])
        blocks = tuple(self._block(g, layer) for layer in range(model.config.depth))
        final, unit = self._linear(model.final_layer.linear, float(c.final_in[g]))
        return NetworkConstants(
            blocks=blocks,
            final_epsilon=self._epsilon(model.final_layer.norm_final),
            final=final,
            final_scale=requantisation(unit, c.final_out, name="final_scale"),
        )

    def _epsilon(self, norm: Any) -> int:
        return integer_epsilon(norm.eps, self.model.config.dim, float(self.calibration.residual))

    def _block(self, g: int, layer: int) -> BlockConstants:
        c, number, config = self.calibration, self.number, self.model.config
        module: Any = self.model.blocks[layer]
        d = config.head_dim

        qkv, qkv_unit = self._linear(module.attn.qkv, float(c.attention_in[g, layer]))
        scales = np.concatenate([c.q[g, layer], c.k[layer], c.v[layer]])
        # The weights absorb that the units of heads differ.
        proj, proj_unit = self._linear(module.attn.proj, np.repeat(c.attention_out[layer], d))
        up, up_unit = self._linear(module.mlp.fc1, float(c.mlp_in[g, layer]))
        hidden_in, hidden_out = float(c.hidden_in[g, layer]), float(c.hidden_out[g, layer])
        down, down_unit = self._linear(module.mlp.fc2, hidden_out)
        self.units[g].append((proj_unit, down_unit))
        return BlockConstants(
            heads=tuple(self._head(g, layer, h) for h in range(config.heads)),
            attention_epsilon=self._epsilon(module.norm1),
            qkv=qkv,
            qkv_scale=requantisation(qkv_unit, np.repeat(scales, d), name="qkv_scale"),
            proj=proj,
            mlp_epsilon=self._epsilon(module.norm2),
            up=up,
            up_scale=requantisation(up_unit, hidden_in, name="up_scale"),
            gelu=gelu_table(hidden_in, hidden_out, number),
            down=down,
            hot_threshold=None if self.hot_tau is None else math.floor(self.hot_tau / hidden_out),
        )

    def _head(self, g: int, layer: int, h: int) -> FuseCommand:
        c, config = self.calibration, self.model.config
        to_log2 = float(c.q[g, layer, h] * c.k[layer, h]) * math.log2(math.e)
        to_log2 /= math.sqrt(config.head_dim)
        score = fixed_multiplier(
            to_log2 * (1 << self.number.score_fraction_bits), name="score_multiplier"
        )
        output = fixed_multiplier(
            float(c.v[layer, h] / c.attention_out[layer, h]), name="output_multiplier"
        )
        return FuseCommand(
            mode=MaskMode.DENSE,
            columns=config.tokens,
            beats=1,
            dot_base=0,
            axpy_base=config.tokens,
            score_multiplier=score[0],
            score_shift=score[1],
            output_multiplier=output[0],
            output_shift=output[1],
        )

    @torch.no_grad()
    def vectors(self, t: Tensor, y: Tensor) -> StepVectors:
        """Conditioning of one image: timestep float [1] and class int64 [1]."""
        c, model = self.calibration, self.model
        g = c.group(float(t[0]))
        condition = model.condition(t, y)
        residual = float(c.residual)
        blocks = []
        module: Any
        for layer, module in enumerate(model.blocks):
            parts = [p[0].numpy() for p in module.modulation(condition)]
            shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = parts
            proj_unit, down_unit = self.units[g][layer]
            blocks.append(
                BlockVectors(
                    attention=modulation(
                        scale_a, shift_a, float(c.attention_in[g, layer]), name="attention"
                    ),
                    attention_gate=gate(gate_a, proj_unit, residual, name="attention_gate"),
                    mlp=modulation(scale_m, shift_m, float(c.mlp_in[g, layer]), name="mlp"),
                    mlp_gate=gate(gate_m, down_unit, residual, name="mlp_gate"),
                )
            )
        last: Any = model.final_layer
        shift, scale = (p[0].numpy() for p in last.adaLN_modulation(condition).chunk(2, dim=1))
        return StepVectors(
            tuple(blocks), modulation(scale, shift, float(c.final_in[g]), name="final")
        )
