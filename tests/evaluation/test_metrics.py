"""Scores of single forecasts, by hand; test_scores.py has them against the field's library."""

import numpy as np
import pytest
from scipy import stats

from forecaster.evaluation.scores import metrics


def test_errors_by_hand():
    got = metrics.symmetric_error([1.0, 0.0, np.nan], [3.0, 0.0, 1.0])
    np.testing.assert_array_equal(got, [100, 0, np.nan])
    np.testing.assert_allclose(metrics.winkler([0.5, 2, -1], 0, 2, 80), [2, 2, 2 + 10])


def test_outcomes_that_several_quantiles_equal_are_held_in_part():
    quantiles = [0.1, 0.25, 0.5, 0.75, 0.9]
    forecasts = np.array([[0.0, 0, 0, 1, 2]] * 4)
    around = metrics.probabilities_around([0, 1, 2, 3], forecasts, quantiles)
    # zero has a probability that ends between 0.5 and 0.75, so at 0.625
    np.testing.assert_allclose(around, [[0, 0.625, 0.825, 0.9], [0.625, 0.825, 0.95, 1]])
    expected = [0.525 / 0.625, 1.0, 0.075 / 0.125, 0.0]
    np.testing.assert_allclose(metrics.held([0, 1, 2, 3], forecasts, quantiles, 80), expected)
    sure, positive = np.full((1, 5), 3.0), np.array([[3.0, 3, 4, 5, 6]])
    np.testing.assert_array_equal(metrics.probabilities_around([3], sure, quantiles), [[0], [1]])
    around = metrics.probabilities_around([3], positive, quantiles)  # something may be lower
    np.testing.assert_allclose(around, [[0.05], [0.375]])
    smooth = np.array([[1.0, 2, 3, 4, 5]] * 5)
    got = metrics.held([0.5, 1.5, 4.9, 5.1, np.nan], smooth, quantiles, 80)
    np.testing.assert_array_equal(got, [0, 1, 1, 0, np.nan])
    assert np.isnan(metrics.held([1.0], [[np.nan, 1, 2, 3, 4]], quantiles, 80)).all()
    assert metrics.held([1.0], [[0.5, np.nan, 2, 3, 4]], quantiles, 80) == 1


def negative_binomials(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draw counts of a hundred distributions; return them, true quantiles and probabilities."""

    quantiles = np.array([0.025, *(np.arange(1, 20) / 20), 0.975])
    mean = np.exp(random.uniform(-2, 2, 100)).repeat(40)
    size = mean / random.uniform(0.1, 3, 100).repeat(40)
    made = stats.nbinom(size, size / (size + mean))
    return (
        made.rvs(random_state=random).astype(float),
        made.ppf(quantiles[:, None]).T,
        quantiles,
    )


def test_probabilities_of_true_distributions_of_counts_are_uniform():
    """Drawn between the two, as by the randomised probability integral transform."""
    random = np.random.default_rng(0)
    actual, forecasts, quantiles = negative_binomials(random)
    below, at_most = metrics.probabilities_around(actual, forecasts, quantiles)
    drawn = below + random.random(len(actual)) * (at_most - below)
    density = np.histogram(drawn, [0, *quantiles, 1], density=True)[0]
    np.testing.assert_allclose(density, 1, atol=0.35)
    for level in (80, 95):
        held = metrics.held(actual, forecasts, quantiles, level).mean()
        assert held == pytest.approx(level / 100, abs=0.01)
