"""Linear layers, requantisation, and the gated sum into the residual stream."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from disc.config import NumberConfig
from disc.tables import MULTIPLIER_BITS, VECTOR_BITS
from golden.integer.matmul import exact_matmul
from golden.integer.rounding import Int, require_range, round_shift, saturate


@dataclass(frozen=True, eq=False)
class Linear:
    """A layer's constants.  `out = x @ weight.T + bias`, then requantised per output channel."""

    weight: Int
    """[out, in] signed `operand_bits`."""
    bias: Int
    """[out] signed, in units of the accumulator."""

    def __post_init__(self) -> None:
        if self.weight.ndim != 2 or self.bias.shape != self.weight.shape[:1]:
            raise ValueError(
                f"weight, bias: want [out, in] and [out], got {self.weight.shape} and "
                f"{self.bias.shape}"
            )


@dataclass(frozen=True, eq=False)
class Requantisation:
    """Accumulator to result, per channel: `multiplier * 2**-shift`."""

    multiplier: Int
    """[out] unsigned `MULTIPLIER_BITS`."""
    shift: Int
    """[out], 0 .. 63."""

    def __post_init__(self) -> None:
        if self.multiplier.ndim != 1 or self.multiplier.shape != self.shift.shape:
            raise ValueError(
                f"multiplier, shift: want two vectors of one length, got "
                f"{self.multiplier.shape} and {self.shift.shape}"
            )
        require_range("multiplier", self.multiplier, MULTIPLIER_BITS, signed=False)
        require_range("shift", self.shift, 6, signed=False)


@dataclass(frozen=True, eq=False)
class Gate:
    """Accumulator to residual stream, per channel: `multiplier * 2**-shift`."""

    multiplier: Int
    """[D] signed `VECTOR_BITS`."""
    shift: int
    """0 .. 63, one for the vector."""

    def __post_init__(self) -> None:
        if self.multiplier.ndim != 1:
            raise ValueError(f"multiplier: want a vector, got {self.multiplier.shape}")
        require_range("multiplier", self.multiplier, VECTOR_BITS)
        if not 0 <= self.shift <= 63:
            raise ValueError(f"shift: must be in [0, 63], got {self.shift}")


def accumulate(x: Int, linear: Linear, number: NumberConfig) -> Int:
    """Return `x @ weight.T + bias` exactly, [rows, out].

    Raises ValueError if an operand or the sum leaves its format.
    """
    if x.ndim != 2 or x.shape[1] != linear.weight.shape[1]:
        raise ValueError(f"x: want [rows, {linear.weight.shape[1]}], got {x.shape}")
    require_range("x", x, number.operand_bits)
    require_range("weight", linear.weight, number.operand_bits)
    acc = exact_matmul(x, linear.weight.T) + linear.bias
    require_range("acc", acc, number.accumulator_bits)
    return acc


def requantise(acc: Int, scale: Requantisation, bits: int) -> Int:
    """Return `saturate(round_shift(acc * multiplier, shift), bits)` per channel, [rows, out]."""
    if acc.ndim != 2 or acc.shape[1] != len(scale.multiplier):
        raise ValueError(f"acc: want [rows, {len(scale.multiplier)}], got {acc.shape}")
    return saturate(round_shift(acc * scale.multiplier, scale.shift), bits)


def gate_residual(x: Int, acc: Int, gate: Gate, number: NumberConfig) -> Int:
    """Add a gated branch to the residual stream, saturated.

    Parameters
    ----------
    x
        [rows, D] signed `residual_bits`.
    acc
        [rows, D] accumulators of the branch's last linear layer.
    """
    if x.shape != acc.shape or x.shape[1:] != gate.multiplier.shape:
        raise ValueError(
            f"x, acc: want two of [rows, {len(gate.multiplier)}], got {x.shape} and {acc.shape}"
        )
    require_range("x", x, number.residual_bits)
    branch = round_shift(acc * gate.multiplier, gate.shift)
    return saturate(np.asarray(x, dtype=np.int64) + branch, number.residual_bits)
