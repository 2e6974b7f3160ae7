"""Scores of single forecasts, by hand; test_scores.py has them against the field's library."""

import numpy as np

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
