"""From float weights and scales to the integer constants of a network: the host's side.

Everything here is float arithmetic that runs before, or once a step; nothing of it is hardware.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from disc.config import NumberConfig
from disc.tables import NORM_FRACTION_BITS, VECTOR_BITS
from golden.integer.layernorm import Modulation
from golden.integer.linear import Gate, Linear, Requantisation
from golden.integer.quantise import Float, fixed_multiplier, quantise
from golden.integer.rounding import Int

Vector = NDArray[np.float64]


def common_fixed(values: Float, *, name: str, extra: int = 0) -> tuple[Int, int]:
    """Return (m, s) with `values ~ m * 2**-s`: signed `VECTOR_BITS`, one shift for the vector.

    The shift is the largest at which the largest magnitude fits, at most 63 - `extra`.

    Raises ValueError if a value is not finite, or too large even without a shift.
    """
    values = np.asarray(values, dtype=np.float64)
    if not np.all(np.isfinite(values)):
        raise ValueError(f"{name}: holds NaN or infinity")
    limit = (1 << (VECTOR_BITS - 1)) - 1
    peak = float(np.abs(values).max(initial=0.0))
    if peak > limit:
        raise ValueError(f"{name}: magnitudes must be at most {limit}, got {peak}")
    most = 63 - extra
    # limit / peak = f * 2**e with f in [1/2, 1): e - 1 is the exponent that still fits.
    shift = min(most, math.frexp(limit / peak)[1] - 1) if peak > 0 else most
    return np.rint(np.ldexp(values, shift)).astype(np.int64), shift


def quantise_linear(
    weight: Float, bias: Float, in_scale: float | Vector, number: NumberConfig
) -> tuple[Linear, Vector]:
    """Quantise a layer, symmetric, one scale per output channel.

    Parameters
    ----------
    weight, bias
        [out, in], [out].
    in_scale
        Value of one unit of the input, or [in] of each channel's, which the weights absorb.

    Returns
    -------
    The layer and the value of one unit of its accumulators, [out].
    """
    if not (np.all(np.isfinite(weight)) and np.all(np.isfinite(bias))):
        raise ValueError("weight, bias: hold NaN or infinity")
    limit = (1 << (number.operand_bits - 1)) - 1
    scaled = np.float64(weight) * in_scale
    unit = np.abs(scaled).max(axis=1) / limit
    # A channel of nearly no weight must not push its bias out of the accumulator.
    unit = np.maximum(unit, np.abs(bias) / 2.0 ** (number.accumulator_bits - 2))
    unit = np.where(unit > 0, unit, 1.0)
    rows = np.clip(np.rint(scaled / unit[:, None]), -limit, limit).astype(np.int64)
    return Linear(rows, np.rint(bias / unit).astype(np.int64)), unit


def requantisation(unit: Vector, out_scale: Vector | float, *, name: str) -> Requantisation:
    """Constants that turn accumulators, units [out], into results of scale `out_scale`."""
    ratio = np.broadcast_to(unit / out_scale, unit.shape)
    pairs = [fixed_multiplier(float(r), name=name) for r in ratio]
    multiplier, shift = (np.array(x, dtype=np.int64) for x in zip(*pairs, strict=True))
    return Requantisation(multiplier, shift)


def modulation(scale: Float, shift: Float, out_scale: float, *, name: str) -> Modulation:
    """Constants of `LN(x) (1 + scale) + shift`, vectors [D], requantised to `out_scale`."""
    channels = len(scale)
    both = np.concatenate([(1.0 + np.float64(scale)) / out_scale, np.float64(shift) / out_scale])
    fixed, s = common_fixed(both, name=name, extra=NORM_FRACTION_BITS)
    return Modulation(fixed[:channels], fixed[channels:], s + NORM_FRACTION_BITS)


def gate(values: Float, unit: Vector, residual_scale: float, *, name: str) -> Gate:
    """Constants that add accumulators, units [D], times a gate [D] to the residual stream."""
    return Gate(*common_fixed(np.float64(values) * unit / residual_scale, name=name))


def integer_epsilon(eps: float, channels: int, residual_scale: float) -> int:
    """LayerNorm's epsilon in units of V, `round(D**2 * eps / scale**2)`."""
    return round(channels**2 * eps / residual_scale**2)


def gelu(x: Float) -> Vector:
    """GELU in its tanh form (Hendrycks and Gimpel, arXiv 1606.08415), float64."""
    x = np.asarray(x, dtype=np.float64)
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def gelu_table(in_scale: float, out_scale: float, number: NumberConfig) -> Int:
    """Return the 2**operand_bits entries of `look_up`, rounded to nearest."""
    half = 1 << (number.operand_bits - 1)
    return quantise(gelu(np.arange(-half, half) * in_scale), out_scale, number.operand_bits)
