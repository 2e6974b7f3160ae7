"""Causal functions: a mean is that of a plain loop, whatever series stand beside it."""

import numpy as np

from forecaster.series.causal import decayed_mean, shrunk_to_usual


def test_a_mean_is_that_of_a_plain_loop_to_the_last_bit():
    random = np.random.default_rng(1)
    values = random.normal(size=(70, 30))
    values[random.random(values.shape) < 0.2] = np.nan
    values[1, 10], values[2, [9, 20]], values[66, 4] = np.inf, [np.inf, -np.inf], -np.inf
    values[3], values[4], values[5, :5] = -0.0, np.nan, np.nan
    given = values.copy()
    expected = np.array([_one_by_one(row, 0.9) for row in values])
    np.testing.assert_array_equal(decayed_mean(values, 0.9), expected)
    np.testing.assert_array_equal(values, given)
    np.testing.assert_array_equal(decayed_mean(values[7], 0.9), expected[7])


def _one_by_one(values, decay):
    total, weight, means = 0.0, 0.0, []
    for value in values:
        known = np.isfinite(value)
        total = decay * total + (1 - decay) * (value if known else 0.0)
        weight = decay * weight + (1 - decay) * known
        means.append(total / weight if weight else np.nan)
    return means


def test_few_changes_are_shrunk_to_what_is_usual():
    change = np.array([[np.nan, *[0.04] * 30]])
    known = np.arange(31)
    weight = 10 * np.maximum(1 - known / 10, 0)
    expected = np.sqrt((known * 0.04**2 + weight * 0.02**2) / (known + weight))
    shrunk = shrunk_to_usual(change, change, 0.02, 10)[0]
    np.testing.assert_allclose(shrunk, expected)
    assert (shrunk[10:] == 0.04).all()
    assert (np.diff(shrunk) >= 0).all()  # without a jump
