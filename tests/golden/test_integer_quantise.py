"""From float heads to integers and commands."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from disc.config import build, preset
from disc.program import MaskMode
from golden.integer.quantise import (
    QuantisedHead,
    fixed_multiplier,
    float_attention,
    quantise,
    quantise_head,
    quantised_attention,
    symmetric_scale,
)

TINY = preset("tiny")


def random_head(n: int = 12, d: int = 16, *, seed: int = 0) -> QuantisedHead:
    rng = np.random.default_rng(seed)
    return quantise_head(*(rng.normal(size=(n, d)) for _ in range(3)), TINY)


# -- multipliers -------------------------------------------------------------------------------


@given(st.floats(2.0**-40, 2.0**15))
@example(1.0)
@example(2.0**-47 * 0xFFFF)
@example(1 - 2.0**-30)  # rounds up to the next power of two
@example(np.nextafter(2.0**15, 0))
def test_multiplier_is_close_and_normalised(value):
    m, shift = fixed_multiplier(value)
    assert 1 << 15 <= m < 1 << 16
    assert 0 <= shift <= 63
    assert abs(math.ldexp(m, -shift) / value - 1) <= 2.0**-16


def test_multiplier_that_rounds_up_to_a_power_of_two():
    assert fixed_multiplier(1 - 2.0**-30) == fixed_multiplier(1.0) == (1 << 15, 15)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_multiplier_of_what_is_no_positive_number(value):
    with pytest.raises(ValueError, match=r"^output_multiplier: must be positive and finite"):
        fixed_multiplier(value, name="output_multiplier")


@pytest.mark.parametrize("value", [2.0**16, 2.0**-49])
def test_multiplier_that_no_shift_reaches(value):
    with pytest.raises(ValueError, match=r"^gain: .* needs a shift of -?\d+, outside \[0, 63\]"):
        fixed_multiplier(value, name="gain")


# -- quantisation ------------------------------------------------------------------------------


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20).filter(
        lambda x: max(map(abs, x)) > 1e-300
    ),
    st.integers(4, 8),
)
def test_quantise_rounds_to_nearest(values, bits):
    x = np.array(values)
    scale, limit = symmetric_scale(x, bits), (1 << (bits - 1)) - 1
    q = quantise(x, scale, bits)
    assert np.abs(q).max() == limit  # the peak takes the whole range, and never -128
    assert (np.abs(q * scale - x) <= scale * (0.5 + 1e-9)).all()
    assert np.array_equal(quantise(-x, scale, bits), -q)


def test_quantise_rounds_halves_away_from_zero_and_clamps():
    x = np.array([0.5, -0.5, 1.5, -1.5, 1000.0, -1000.0, 0.0])
    assert quantise(x, 1.0, 8).tolist() == [1, -1, 2, -2, 127, -127, 0]


def test_scale_of_a_tensor_of_zeros():
    assert symmetric_scale(np.zeros((2, 3)), 8) == 1 / 127
    head = quantise_head(*(np.zeros((3, 8)) for _ in range(3)), TINY)
    assert not head.q.any()
    assert not head.v.any()
    head.command(TINY, MaskMode.DENSE)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("operand", range(3))
def test_not_a_number(bad, operand):
    tensors = [np.ones((3, 8)) for _ in range(3)]
    tensors[operand][1, 2] = bad
    with pytest.raises(ValueError, match=r"^tensor: holds NaN or infinity"):
        quantise_head(*tensors, TINY)


def test_scales_belong_to_their_tensors():
    rng = np.random.default_rng(1)
    q, k, v = (size * rng.normal(size=(20, 16)) for size in (1.0, 3.0, 0.2))
    head = quantise_head(q, k, v, TINY)
    for name, x in (("q", q), ("k", k), ("v", v)):
        scale = getattr(head, f"{name}_scale")
        assert scale == np.abs(x).max() / 127
        assert np.abs(getattr(head, name) * scale - x).max() <= scale * 0.5000001
    assert head.out_scale == np.abs(float_attention(q, k, v)).max() / 127
    assert head.out_scale <= head.v_scale
    assert head.head_dim == 16


# -- command -----------------------------------------------------------------------------------


def test_command_has_the_scales_and_the_layout():
    head = random_head(21, 20)
    command = head.command(TINY, MaskMode.GENERATE, alpha=0.5, diagonal=False)
    wanted = head.q_scale * head.k_scale / math.sqrt(20) / math.log(2) * 64
    assert math.ldexp(command.score_multiplier, -command.score_shift) == pytest.approx(
        wanted, rel=2.0**-16
    )
    gain = math.ldexp(command.output_multiplier, -command.output_shift)
    assert gain == pytest.approx(head.v_scale / head.out_scale, rel=2.0**-16)
    assert (command.mode, command.columns, command.diagonal) == (MaskMode.GENERATE, 21, False)
    # 20 elements in words of 8; 21 columns in 4 banks.
    assert (command.beats, command.dot_base, command.axpy_base) == (3, 0, 6 * 3)
    assert command.threshold == round(0.5 / 21 * 2**20)


@pytest.mark.parametrize("alpha", [-0.1, 12.5, math.nan, math.inf])
def test_alpha_out_of_range(alpha):
    with pytest.raises(ValueError, match=r"^alpha: must be in \[0, 12\] \(N\), got"):
        random_head().command(TINY, MaskMode.GENERATE, alpha=alpha)


@pytest.mark.parametrize("alpha", [0, 12])
def test_alpha_at_its_limits(alpha):
    command = random_head().command(TINY, MaskMode.GENERATE, alpha=alpha)
    assert command.threshold == alpha // 12 * 2**20


@pytest.mark.parametrize(("n", "d", "field"), [(257, 8, "columns"), (4, 73, "beats")])
def test_head_that_does_not_fit(n, d, field):
    with pytest.raises(ValueError, match=rf"^{field}: must be in \[1, \d+\] for .*'tiny', got"):
        random_head(n, d).command(TINY, MaskMode.DENSE)


def test_head_that_the_banks_do_not_hold():
    fields = TINY.model_dump()
    fields["memory"]["bank_words"] = 128
    head = random_head(256, 16)
    with pytest.raises(ValueError, match=r"^axpy_base: must be in \[0, 0\]"):
        head.command(build(fields), MaskMode.DENSE)


# -- float levels ------------------------------------------------------------------------------


def test_float_attention_is_softmax():
    rng = np.random.default_rng(2)
    q, k, v = (rng.normal(size=(5, 4)) for _ in range(3))
    mask = rng.random((5, 5)) < 0.5
    mask[np.arange(5), np.arange(5)] = True
    for i in range(5):
        weights = [math.exp(q[i] @ k[j] / 2) * mask[i, j] for j in range(5)]
        expected = sum(w * v[j] for j, w in enumerate(weights)) / sum(weights)
        assert np.allclose(float_attention(q, k, v, mask)[i], expected)
    ones = np.ones((5, 5), dtype=bool)
    assert np.array_equal(float_attention(q, k, v, ones), float_attention(q, k, v))


def test_quantised_attention_uses_the_quantised_operands():
    head = random_head()
    q, k, v = head.q * head.q_scale, head.k * head.k_scale, head.v * head.v_scale
    assert np.array_equal(quantised_attention(head), float_attention(q, k, v))
