"""From float tensors of one head to integer operands, scales and a `FuseCommand`.

Symmetric quantisation, one scale per tensor (here: per head).  Also the level between float and
integer: the same quantised operands in floating-point softmax, to tell apart what is lost by
quantising the operands and what by integer softmax.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from disc.config import CoreConfig
from disc.program import FuseCommand, MaskMode
from disc.tables import MULTIPLIER_BITS, SHIFT_BITS, THRESHOLD_BITS
from golden.integer.rounding import Int

Float = NDArray[np.floating]


def fixed_multiplier(value: float, *, name: str = "multiplier") -> tuple[int, int]:
    """Return (m, s) with `value ~ m * 2**-s`, m in [2**15, 2**16), relative error below 2**-16.

    Raises ValueError if s would leave [0, 63].
    """
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name}: must be positive and finite, got {value}")
    mantissa, exponent = math.frexp(value)  # value = mantissa * 2**exponent, mantissa in [.5, 1)
    m = round(mantissa * (1 << MULTIPLIER_BITS))
    shift = MULTIPLIER_BITS - exponent
    if m == 1 << MULTIPLIER_BITS:
        m, shift = m >> 1, shift - 1
    limit = (1 << SHIFT_BITS) - 1
    if not 0 <= shift <= limit:
        raise ValueError(f"{name}: {value} needs a shift of {shift}, outside [0, {limit}]")
    return m, shift


def symmetric_scale(x: Float, bits: int) -> float:
    """Return the scale that maps the largest magnitude to the largest positive integer."""
    if not np.all(np.isfinite(x)):
        raise ValueError("tensor: holds NaN or infinity; cannot choose a scale")
    peak = float(np.abs(x).max(initial=0.0))
    return (peak or 1.0) / ((1 << (bits - 1)) - 1)


def quantise(x: Float, scale: float, bits: int) -> Int:
    """Round to nearest integer multiple of `scale`, halves away from zero, and clamp."""
    limit = (1 << (bits - 1)) - 1
    magnitude = np.floor(np.abs(x) / scale + 0.5)
    return np.clip(np.copysign(magnitude, x), -limit, limit).astype(np.int64)


@dataclass(frozen=True)
class QuantisedHead:
    """Operands of one head and the scales that give them their meaning."""

    q: Int
    k: Int
    v: Int
    q_scale: float
    k_scale: float
    v_scale: float
    out_scale: float
    """Value of one unit of the result."""

    @property
    def head_dim(self) -> int:
        """Elements of a row."""
        return self.q.shape[1]

    def command(
        self,
        config: CoreConfig,
        mode: MaskMode,
        *,
        alpha: float = 0.0,
        diagonal: bool = True,
    ) -> FuseCommand:
        """Return the command, with K at the start of the banks and V behind it.

        Parameters
        ----------
        alpha
            Softmax threshold relative to the uniform probability 1/N.

        Raises
        ------
        ValueError
            The head does not fit the configuration; the message names the field.
        """
        columns = len(self.k)
        if not (math.isfinite(alpha) and 0 <= alpha <= columns):
            raise ValueError(f"alpha: must be in [0, {columns}] (N), got {alpha}")
        to_log2 = self.q_scale * self.k_scale / math.sqrt(self.head_dim) * math.log2(math.e)
        score_multiplier, score_shift = fixed_multiplier(
            to_log2 * (1 << config.number.score_fraction_bits), name="score_multiplier"
        )
        output_multiplier, output_shift = fixed_multiplier(
            self.v_scale / self.out_scale, name="output_multiplier"
        )
        beats = -(-self.head_dim // config.array.lanes)
        groups = -(-columns // config.array.banks)
        command = FuseCommand(
            mode=mode,
            columns=columns,
            beats=beats,
            dot_base=0,
            axpy_base=groups * beats,
            score_multiplier=score_multiplier,
            score_shift=score_shift,
            output_multiplier=output_multiplier,
            output_shift=output_shift,
            threshold=round(alpha / columns * (1 << THRESHOLD_BITS)),
            diagonal=diagonal,
        )
        command.validate(config)
        return command


def quantise_head(q: Float, k: Float, v: Float, config: CoreConfig) -> QuantisedHead:
    """Quantise the float q [rows, d], k and v [columns, d] of one head, scales from the tensors.

    The result's scale is that of the dense float output, as calibration would choose it, and at
    most that of v: attention averages rows of v, so a smaller scale keeps more of the result.
    """
    bits = config.number.operand_bits
    q_scale, k_scale, v_scale = (symmetric_scale(x, bits) for x in (q, k, v))
    out_scale = symmetric_scale(float_attention(q, k, v), bits)
    return QuantisedHead(
        q=quantise(q, q_scale, bits),
        k=quantise(k, k_scale, bits),
        v=quantise(v, v_scale, bits),
        q_scale=q_scale,
        k_scale=k_scale,
        v_scale=v_scale,
        # A result of zeros has no scale of its own.
        out_scale=min(out_scale, v_scale) if np.any(v) else v_scale,
    )


def float_attention(
    q: Float, k: Float, v: Float, mask: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    """Softmax attention of one head in float64, over kept columns only."""
    score = q.astype(np.float64) @ k.astype(np.float64).T / math.sqrt(q.shape[1])
    if mask is not None:
        score = np.where(mask, score, -np.inf)
    e = np.exp(score - score.max(axis=1, keepdims=True))
    return (e / e.sum(axis=1, keepdims=True)) @ v.astype(np.float64)


def quantised_attention(
    head: QuantisedHead, mask: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    """Quantised-float level: quantised operands, exact softmax, unquantised result."""
    return float_attention(
        head.q * head.q_scale, head.k * head.k_scale, head.v * head.v_scale, mask
    )
