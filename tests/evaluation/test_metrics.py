"""Elementwise errors and scores, by hand; test_scores.py has them against the field's library."""

import numpy as np
import pytest

from forecaster.evaluation.scores import metrics


def test_errors_of_points():
    actual, forecast = [1.0, -2.0, 0.0], [3.0, -2.0, 0.0]
    np.testing.assert_array_equal(metrics.absolute_error(actual, forecast), [2, 0, 0])
    np.testing.assert_array_equal(metrics.squared_error(actual, forecast), [4, 0, 0])
    np.testing.assert_array_equal(metrics.symmetric_error(actual, forecast), [100, 0, 0])
    assert np.isnan(metrics.symmetric_error([np.nan], [1.0])).all()


def test_bounds_belong_to_the_band_and_without_a_band_nothing_is_covered():
    actual, low, high = [1.0, 2.0, 2.1, 0.0], [1.0, 1.0, 1.0, np.nan], [2.0, 2.0, 2.0, 3.0]
    np.testing.assert_array_equal(metrics.covered(actual, low, high), [1, 1, 0, np.nan])


@pytest.mark.parametrize(("actual", "score"), [(1.5, 1.0), (0.5, 1 + 10 * 0.5), (4.0, 1 + 10 * 2)])
def test_winkler_is_the_width_and_ten_times_the_miss_at_80_percent(actual, score):
    assert metrics.winkler([actual], [1.0], [2.0], 80)[0] == pytest.approx(score)


def test_pinball_weighs_the_sides_by_the_quantile():
    losses = metrics.pinball([2.0], [[1.0, 2.0, 4.0]], [0.1, 0.5, 0.9])
    np.testing.assert_allclose(losses, [[0.1 * 1, 0, 0.1 * 2]])


def test_crps_weighs_each_quantile_by_the_levels_nearest_to_it():
    quantiles, forecasts = [0.1, 0.5, 0.9], [[1.0, 2.0, 4.0]]
    losses = metrics.pinball([3.0], forecasts, quantiles)[0]
    expected = 2 * (0.3 * losses[0] + 0.4 * losses[1] + 0.3 * losses[2])
    np.testing.assert_allclose(metrics.crps([3.0], forecasts, quantiles), [expected])


def test_crps_of_one_quantile_is_the_absolute_error():
    np.testing.assert_allclose(metrics.crps([3.0], [[1.0]], [0.5]), [2.0])
