"""Bands: exact against a slow oracle, with the coverage that they promise."""

import itertools

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from forecaster.forecasting.bands.conformal import calibrated, common_spread
from tests.bands import band_scores
from tests.slow import rest_slow

MEAN_SIZE = np.sqrt(2 / np.pi)


def long_run(scores, now, h, prior):
    """Return the long-run spread of one series at an origin."""
    seen = np.abs(scores[: max(0, now - h), h]) / MEAN_SIZE
    seen = seen[np.isfinite(seen)]
    weights = 0.998 ** np.arange(len(seen))[::-1]
    own = 100 * (h + 1)
    return (own * prior[h] + weights @ seen) / (own + weights.sum())


def spread_at(scores, now, h, prior):
    """Return the long-run spread times the recent factor."""
    relative = []
    for before in range(now + 1):
        sizes = {
            k: abs(scores[before - k - 1, k]) / MEAN_SIZE / long_run(scores, before, k, prior)
            for k in range(min(before, scores.shape[1]))
            if np.isfinite(scores[before - k - 1, k])
        }
        if sizes:
            worth = [1 / (k + 1) for k in sizes]
            relative.append(np.average(list(sizes.values()), weights=worth))
    weights = 0.98 ** np.arange(len(relative))[::-1]
    late = (25 + weights @ np.array(relative)) / (25 + weights.sum())
    return long_run(scores, now, h, prior) * late


def slow(scores, level, memory, count, prior, shrinkage):
    """Return bounds by their definition, one series and horizon at a time."""
    series, origins, horizon = scores.shape
    out = np.full((series, count, horizon), np.nan)
    miss = (1 - level / 100) / 2
    for k in range(series):
        for h in range(horizon):
            spread = [spread_at(scores[k], now, h, prior) for now in range(origins)]
            for place, now in enumerate(range(origins - count, origins)):
                seen = (scores[k, :, h] / spread)[max(0, now - memory) : max(0, now - h)]
                seen = np.sort(seen[np.isfinite(seen)])
                share = np.arange(1, len(seen) + 1) / (len(seen) + 1)
                weight = len(seen) / (len(seen) + shrinkage * (h + 1))
                drawn = weight * np.interp(miss, share, seen) + (1 - weight) * ndtri(miss)
                out[k, place, h] = drawn * spread[now]
    return out


@pytest.mark.parametrize("count", rest_slow([12, 1]))
def test_bounds_are_those_of_the_definition(count):
    random = np.random.default_rng(0)
    scores = random.standard_t(4, (3, 70, 2)) + 0.3
    scores[1, :15] = np.nan
    scores[:, -1] = np.nan
    prior = np.array([1.1, 1.4])
    got = band_scores(scores, [80, 95], 40, count, prior=prior, shrinkage=20)
    arguments = 40, count, prior, 20
    for level, (lower, upper) in zip((80, 95), got, strict=True):
        np.testing.assert_allclose(lower, slow(scores, level, *arguments))
        np.testing.assert_allclose(upper, -slow(-scores, level, *arguments))


def test_exchangeable_scores_are_covered_at_the_level_on_both_sides():
    random = np.random.default_rng(1)
    scores = random.gamma(3, size=(2000, 101, 1)) - 3  # skewed
    new = random.gamma(3, size=2000) - 3
    levels = (50, 80, 95)
    # The prior is the true spread, in units of which scores are exchangeable.
    prior = common_spread(scores)
    bands = band_scores(scores, levels, 100, prior=prior, shrinkage=0)
    for level, (lower, upper) in zip(levels, bands, strict=True):
        side = (1 - level / 100) / 2
        assert abs((new < lower[:, 0, 0]).mean() - side) < 0.02
        assert abs((new > upper[:, 0, 0]).mean() - side) < 0.02


def test_without_any_outcome_a_band_is_that_of_the_forecast_itself():
    scores = np.full((2, 30, 1), np.nan)
    bands = band_scores(scores, [80], 20)
    np.testing.assert_allclose(bands[0, :, :, 0, 0], [[ndtri(0.1)] * 2, [ndtri(0.9)] * 2])


def test_bands_follow_a_change_of_regime():
    """After forecasts become too sure, bands soon have their coverage again."""
    random = np.random.default_rng(2)
    scores = random.normal(size=(200, 900, 1))
    scores[:, 500:] *= 2
    lower, upper = band_scores(scores, [80], 252, count=900)[0]
    inside = (scores >= lower) & (scores <= upper)
    assert abs(inside[:, 300:500].mean() - 0.8) < 0.01
    assert inside[:, 500:520].mean() < 0.6
    assert abs(inside[:, 750:].mean() - 0.8) < 0.03


def test_the_future_has_no_part_in_a_band():
    random = np.random.default_rng(3)
    scores = random.normal(size=(3, 90, 2))
    before = band_scores(scores, [80], 40, count=30)[0]
    for changed, known_late in itertools.product(range(60, 90), range(2)):
        edited = scores.copy()
        edited[:, changed:, known_late] = 9.0
        after = band_scores(edited, [80], 40, count=30)[0]
        # The outcome of an origin is known h + 1 steps later, and then moves all bands.
        same = changed + known_late + 1 - 60
        np.testing.assert_array_equal(after[:, :, :same], before[:, :, :same])
        if same < 30:
            assert (after[:, :, same:] != before[:, :, same:]).any((1, 2)).all()


def test_bands_lie_inside_each_other_around_the_calibrated_median():
    """Even where all outcomes lie on one side of the forecast distribution's median."""
    random = np.random.default_rng(3)
    scores = random.standard_t(3, (20, 300, 2)) + np.linspace(-1.5, 1.5, 20)[:, None, None]
    levels = [95, 10, 40, 90, 20, 80]
    bands = band_scores(scores, levels, 60, count=200)
    by_width = bands[np.argsort(levels)]
    median = np.stack([each.scores(np.zeros((1, 1))) for each in calibrated(scores, 60, 200)], 1)
    assert (np.diff(by_width[:, 0], axis=0) <= 0).all() and (by_width[:, 0] <= median).all()
    assert (np.diff(by_width[:, 1], axis=0) >= 0).all() and (by_width[:, 1] >= median).all()
    assert median[0].max() < 0 < median[-1].min()


def test_quantiles_are_continuous_and_probabilities_are_their_inverse():
    """Also where past scores lie on one side, and where the largest error limits them."""
    random = np.random.default_rng(5)
    scores = random.standard_t(3, (6, 300, 2)) + np.linspace(-1.5, 1.5, 6)[:, None, None]
    reach = np.array([-0.3, 0.4])[:, None, None, None] * np.ones((2, 6, 1, 2))
    for limit in (None, reach):
        (made,) = calibrated(scores, 250, reach=limit)
        usual = np.linspace(-4, 4, 8001)[:, None, None]
        steps = np.diff(made.scores(usual), axis=0)
        assert steps.min() >= 0 and steps[3500:4500].max() < 0.02
        for one in (-1.5, -0.01, 0.0, 0.3, 2.0):
            of_one = np.full((6, 2), one)
            share = made.probability_below(made.scores(of_one))
            np.testing.assert_allclose(made.scores(ndtri(share)), made.scores(of_one), atol=1e-9)
            assert limit is not None or abs(share - ndtr(one)).max() < 1e-9
        np.testing.assert_array_equal(made.probability_below(np.full((6, 2), np.inf)), 1)
        assert made.probability_below(np.full((6, 2), -np.inf)).max() < 1e-15


def test_the_spread_of_all_series_is_drawn_to_one_where_there_are_few():
    random = np.random.default_rng(4)
    many, few = 2 * random.normal(size=(100, 500, 2)), np.full((1, 5, 2), 3.0)
    np.testing.assert_allclose(common_spread(many), 2, rtol=0.02)
    np.testing.assert_allclose(common_spread(few), (15 / MEAN_SIZE + [25, 50]) / [30, 55])
    np.testing.assert_array_equal(common_spread(np.full((2, 5, 1), np.nan)), 1)


def test_past_scores_move_no_bound_beyond_the_largest_error_before():
    scores = np.full((1, 300, 1), 0.01)
    scores[:, ::5] = 8.0
    free = band_scores(scores, [90], 250)
    near = band_scores(scores, [90], 250, reach=np.full((2, 1, 1, 1), [[[[-2.5]]], [[[2.5]]]]))
    unknown = band_scores(scores, [90], 250, reach=np.full((2, 1, 1, 1), np.nan))
    assert 4 < free[0, 1] <= 8  # a score beyond 8 is none of a mixture's
    by_spread = band_scores(scores, [90], 250, shrinkage=1e12)[0, 1]
    np.testing.assert_allclose(near[0, 1], np.maximum(2.5, by_spread), rtol=1e-6)
    np.testing.assert_array_equal(unknown, free)
