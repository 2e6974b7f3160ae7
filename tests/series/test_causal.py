"""Causal functions: the bits of a series do not depend on the others beside it."""

import numpy as np
import pytest

from forecaster.series.causal import decayed_mean


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_mean_is_the_same_in_company(dtype):
    random = np.random.default_rng(0)
    values = random.normal(size=(70, 60)).astype(dtype)  # more than one block
    values[random.random(values.shape) < 0.2] = np.nan
    values[3, 10], values[4, :5], values[5] = np.inf, np.nan, np.nan
    together = decayed_mean(values, 0.9)
    alone = np.concatenate([decayed_mean(row[None], 0.9) for row in values])
    np.testing.assert_array_equal(together, alone)
    assert together.dtype == alone.dtype


@pytest.mark.parametrize("missing", ["none", "the same", "before some", "some"])
def test_a_mean_is_that_of_a_plain_loop_to_the_last_bit(missing):
    random = np.random.default_rng(1)
    values = random.normal(size=(130, 30))  # three blocks
    if missing == "the same":
        values[:, [0, 7, 8, 29]] = np.nan
    elif missing == "before some":
        for row in range(0, 130, 3):
            values[row, : row % 31] = np.nan
    elif missing == "some":
        values[random.random(values.shape) < 0.2] = np.nan
    values[1, 10], values[2, [9, 20]], values[66, 4] = np.inf, [np.inf, -np.inf], -np.inf
    values[3] = -0.0
    given = values.copy()
    with np.errstate(invalid="ignore"):
        expected = np.array([_one_by_one(row, 0.9) for row in values])
    np.testing.assert_array_equal(decayed_mean(values, 0.9), expected)
    np.testing.assert_array_equal(values, given)


def _one_by_one(values, decay):
    total, weight, means = np.float64(0.0), 0.0, []
    for value in values:
        if not np.isnan(value):
            total, weight = decay * total + (1 - decay) * value, decay * weight + (1 - decay)
        means.append(total / weight if weight else np.nan)
    return means


def test_a_mean_is_that_of_the_known_values_so_far():
    means = decayed_mean(np.array([[np.nan, 1.0, np.nan, 3.0]]), 0.5)
    np.testing.assert_allclose(means, [[np.nan, 1.0, 1.0, (0.25 * 1 + 0.5 * 3) / 0.75]])
