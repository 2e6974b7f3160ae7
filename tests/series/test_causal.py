"""Causal functions: the bits of a series do not depend on the others beside it."""

import numpy as np
import pytest

from forecaster.series.causal import decayed_mean


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_mean_is_the_same_in_company(dtype):
    random = np.random.default_rng(0)
    values = random.normal(size=(70, 60)).astype(dtype)  # more than are taken one by one
    values[random.random(values.shape) < 0.2] = np.nan
    values[3, 10], values[4, :5], values[5] = np.inf, np.nan, np.nan
    together = decayed_mean(values, 0.9)
    alone = np.concatenate([decayed_mean(row[None], 0.9) for row in values])
    np.testing.assert_array_equal(together, alone)
    assert together.dtype == alone.dtype


@pytest.mark.parametrize("missing", ["none", "the same", "before", "before some"])
def test_a_mean_is_the_same_in_company_whatever_is_missing(missing):
    random = np.random.default_rng(1)
    values = random.normal(size=(40, 30))
    if missing == "the same":
        values[:, [0, 7, 8, 29]] = np.nan
    elif missing == "before":
        values[:, :3] = np.nan
    elif missing == "before some":
        for row in range(0, 40, 3):
            values[row, :row] = np.nan
    alone = np.concatenate([decayed_mean(row[None], 0.9) for row in values])
    before = values.copy()
    np.testing.assert_array_equal(decayed_mean(values, 0.9), alone)
    np.testing.assert_array_equal(values, before)


def test_a_mean_is_that_of_the_known_values_so_far():
    means = decayed_mean(np.array([[np.nan, 1.0, np.nan, 3.0]]), 0.5)
    np.testing.assert_allclose(means, [[np.nan, 1.0, 1.0, (0.25 * 1 + 0.5 * 3) / 0.75]])
