"""Scores of single forecasts, by hand; test_scores.py has them against the field's library."""

import numpy as np
import pytest
from scipy import stats

from forecaster.evaluation.scores import metrics


def test_errors_of_points():
    actual, forecast = [1.0, -2.0, 0.0], [3.0, -2.0, 0.0]
    np.testing.assert_array_equal(metrics.absolute_error(actual, forecast), [2, 0, 0])
    np.testing.assert_array_equal(metrics.squared_error(actual, forecast), [4, 0, 0])
    np.testing.assert_array_equal(metrics.symmetric_error(actual, forecast), [100, 0, 0])
    assert np.isnan(metrics.symmetric_error([np.nan], [1.0])).all()


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


def test_counts_of_a_known_distribution_are_held_as_often_as_a_band_says():
    """Plain counting would have it that the band holds too many."""

    quantiles = np.arange(1, 20) / 20
    actual = np.random.default_rng(0).poisson(0.7, 4000)
    forecasts = np.tile(stats.poisson.ppf(quantiles, 0.7), (len(actual), 1))
    assert metrics.held(actual, forecasts, quantiles, 80).mean() == pytest.approx(0.8, abs=0.03)
    counted = (forecasts[:, 1] <= actual) & (actual <= forecasts[:, -2])
    assert counted.mean() > 0.93


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
