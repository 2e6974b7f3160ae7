"""Bands: exact against a slow oracle, with the coverage that they promise."""

import itertools

import numpy as np
from scipy.special import ndtr, ndtri

from forecaster.forecasting.bands import KNOTS, common_spread
from tests.bands import band_scores, calibrated

MEAN_SIZE = np.sqrt(2 / np.pi)


def means_of(scores, now, prior):
    """Return the mean sizes of the scores of one series that became known at each origin."""
    means = []
    for before in range(now + 1):
        sizes = {
            k: abs(scores[before - k - 1, k]) / MEAN_SIZE / prior[k]
            for k in range(min(before, scores.shape[1]))
            if np.isfinite(scores[before - k - 1, k])
        }
        if sizes:
            means.append(np.average(list(sizes.values()), weights=[1 / (k + 1) for k in sizes]))
    return np.array(means)


def shrunk(values, decay, prior):
    """Return their exponentially weighted mean, shrunk to 1."""
    weights = decay ** np.arange(len(values))[::-1]
    return (prior + weights @ values) / (prior + weights.sum())


def spread_at(scores, now, h, prior):
    """Return the spread of all series times the long-run and the recent factor of one."""
    means = means_of(scores, now, prior)
    usual = np.array([shrunk(means[: n + 1], 0.998, 100) for n in range(len(means))])
    return prior[h] * shrunk(means, 0.998, 100) * shrunk(means / usual, 0.98, 20)


def test_bounds_are_those_of_the_definition():
    random = np.random.default_rng(0)
    scores = random.standard_t(4, (3, 70, 2)) + 0.3
    scores[1, :15] = np.nan
    scores[:, -1] = np.nan
    prior = np.array([1.1, 1.4])
    got = band_scores(scores, [80, 95], 12, prior=prior)
    for (series, origin), level in itertools.product(np.ndindex(3, 12), range(2)):
        spread = [spread_at(scores[series], 58 + origin, h, prior) for h in range(2)]
        lower, upper = got[level, :, series, origin]
        np.testing.assert_allclose(upper, ndtri((0.9, 0.975)[level]) * np.array(spread))
        np.testing.assert_allclose(lower, -upper)


def test_bands_follow_a_change_of_regime():
    """After forecasts become too sure, bands soon have their coverage again."""
    random = np.random.default_rng(2)
    scores = random.normal(size=(200, 900, 1))
    scores[:, 500:] *= 2
    lower, upper = band_scores(scores, [80], count=900)[0]
    inside = (scores >= lower) & (scores <= upper)
    assert abs(inside[:, 300:500].mean() - 0.8) < 0.01
    assert inside[:, 500:520].mean() < 0.6
    assert abs(inside[:, 750:].mean() - 0.8) < 0.03


def test_quantiles_are_continuous_and_probabilities_are_their_inverse():
    """Also with tails, and where the largest error limits them."""
    random = np.random.default_rng(5)
    scores = random.standard_t(3, (6, 300, 2))
    tails, some = np.stack([KNOTS, KNOTS * (1 + KNOTS / 8)]), np.arange(6) < 3
    reach = np.array([-2.3, 2.4])[:, None, None, None] * np.ones((2, 6, 1, 2))
    odd = np.array([0.5, 2.4])[:, None, None, None] * np.ones((2, 6, 1, 2))
    for chosen, limit in ((None, None), (tails, None), (tails, reach), (tails, odd)):
        used = None if chosen is None else some
        made = calibrated(scores, tails=chosen, tailed=used, reach=limit)
        usual = np.linspace(-4, 4, 8001)[:, None, None, None]
        steps = np.diff(made.scores(usual), axis=0)
        assert steps.min() >= 0 and steps[3500:4500].max() < 0.02
        for one in (-1.5, -0.01, 0.0, 0.3, 2.0):
            of_one = np.full((6, 1, 2), one)
            share = made.probability_below(made.scores(of_one))
            np.testing.assert_allclose(made.scores(ndtri(share)), made.scores(of_one), atol=1e-9)
            assert limit is not None or abs(share - ndtr(one)).max() < 1e-9
        np.testing.assert_array_equal(made.probability_below(np.full((6, 1, 2), np.inf)), 1)
        assert made.probability_below(np.full((6, 1, 2), -np.inf)).max() < 1e-15


def test_the_spread_of_all_series_is_drawn_to_one_and_then_to_the_step_before():
    random = np.random.default_rng(4)
    many, few = 2 * random.normal(size=(100, 500, 2)), np.full((1, 5, 2), 3.0)
    np.testing.assert_allclose(common_spread(many), 2, rtol=0.02)
    first = (15 / MEAN_SIZE + 25) / 30
    second = (15 / MEAN_SIZE + 600 * first) / 605
    np.testing.assert_allclose(common_spread(few), (first, second))
    far = np.concatenate([2 * random.normal(size=(100, 500, 1)), np.full((100, 500, 3), np.nan)], 2)
    np.testing.assert_allclose(common_spread(far), common_spread(far)[0], rtol=1e-12)
    np.testing.assert_array_equal(common_spread(np.full((2, 5, 1), np.nan)), 1)
