"""The MLP as the fused operation: GELU table, hidden units, hot columns."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from disc.config import NumberConfig
from golden.integer.linear import Linear, Requantisation
from golden.integer.mlp import hidden_units, hot_columns, look_up
from golden.integer.parameters import gelu, gelu_table

N8 = NumberConfig()


@pytest.mark.parametrize(
    ("in_scale", "out_scale"), [(0.02, 0.02), (0.05, 0.0125), (1e-3, 1e-3), (1.0, 0.5)]
)
def test_gelu_table_is_the_rounded_float_in_all_entries(in_scale: float, out_scale: float):
    table = gelu_table(in_scale, out_scale, N8)
    x = torch.arange(-128, 128, dtype=torch.float64) * in_scale
    exact = torch.nn.functional.gelu(x, approximate="tanh").numpy() / out_scale
    halves = np.abs(np.abs(exact) % 1 - 0.5) < 1e-9
    assert not halves.any()  # otherwise the rule for halves would matter
    assert table.tolist() == np.clip(np.rint(exact), -127, 127).astype(int).tolist()


def test_gelu_of_few_bits():
    number = NumberConfig(operand_bits=4)
    table = gelu_table(0.5, 0.5, number)
    assert len(table) == 16
    assert look_up(np.array([-8, -1, 0, 7]), table, number).tolist() == [0, 0, 0, 7]


def test_gelu_is_that_of_the_model():
    x = np.linspace(-6, 6, 1001)
    wanted = torch.nn.functional.gelu(torch.tensor(x), approximate="tanh").numpy()
    assert np.abs(gelu(x) - wanted).max() < 1e-14


def test_look_up_covers_every_input_once():
    table = np.arange(256) * 3
    assert look_up(np.arange(-128, 128), table, N8).tolist() == table.tolist()
    with pytest.raises(ValueError, match=r"x: values must be in \[-128, 127\]"):
        look_up(np.array([128]), table, N8)
    with pytest.raises(ValueError, match="table: want 256 entries, got shape"):
        look_up(np.array([0]), table[:255], N8)


@pytest.fixture
def layer():
    rng = np.random.default_rng(3)
    up = Linear(rng.integers(-127, 128, (24, 8)), rng.integers(-9999, 9999, 24))
    scale = Requantisation(np.full(24, 50000), np.full(24, 24))
    return rng.integers(-128, 128, (5, 8)), up, scale, gelu_table(0.03, 0.03, N8)


def test_hidden_units_column_by_column(layer):
    x, up, scale, table = layer
    hidden = hidden_units(x, up, scale, table, N8)
    for row in range(5):
        for column in range(24):
            acc = int(x[row] @ up.weight[column]) + int(up.bias[column])
            q = max(-128, min(math.floor(acc * 50000 / 2**24 + 0.5), 127))
            assert hidden[row, column] == table[q + 128]
    assert np.unique(hidden).size > 20


def test_cold_columns_are_zero_and_hot_ones_unchanged(layer):
    x, up, scale, table = layer
    dense = hidden_units(x, up, scale, table, N8)
    hot = np.arange(24) % 3 == 0
    sparse = hidden_units(x, up, scale, table, N8, hot=hot)
    assert np.array_equal(sparse[:, hot], dense[:, hot])
    assert not sparse[:, ~hot].any()
    assert np.array_equal(hidden_units(x, up, scale, table, N8, hot=np.ones(24, bool)), dense)
    with pytest.raises(ValueError, match=r"hot: want bool \[24\], got bool \(3,\)"):
        hidden_units(x, up, scale, table, N8, hot=np.ones(3, bool))
    with pytest.raises(ValueError, match=r"hot: want bool \[24\], got int64"):
        hidden_units(x, up, scale, table, N8, hot=np.ones(24, np.int64))


def test_a_column_is_hot_if_any_row_exceeds_the_threshold():
    hidden = np.array([[0, 5, -6, 4], [0, -5, 1, 6]])
    assert hot_columns(hidden, 5).tolist() == [False, False, True, True]
    assert hot_columns(hidden, 0).tolist() == [False, True, True, True]
    assert hot_columns(np.zeros((0, 3), np.int64), 0).tolist() == [False] * 3
    with pytest.raises(ValueError, match="threshold: must not be negative, got -1"):
        hot_columns(hidden, -1)
