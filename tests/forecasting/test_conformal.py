"""Bands: exact against a slow oracle, and covering what they promise."""

import numpy as np
import pytest
from scipy.special import ndtri

from forecaster.forecasting.conformal import band_scores


def slow(scores, first_new, level, memory, count, rate, shrinkage):
    """The lower bound of one series and horizon at a time, by the definition."""
    series, origins, horizon = scores.shape
    out = np.full((series, count, horizon), np.nan)
    nominal = (1 - level / 100) / 2
    for k in range(series):
        for h in range(horizon):
            miss, bounds = nominal, {}
            for now in range(min(int(min(first_new)), origins - count), origins):
                known = now - h - 1
                if known in bounds and known >= first_new[k] and np.isfinite(scores[k, known, h]):
                    miss += rate * (nominal - (scores[k, known, h] < bounds[known]))
                seen = scores[k, max(0, now - memory) : max(0, now - h), h]
                seen = np.sort(seen[np.isfinite(seen)])
                share = np.arange(1, len(seen) + 1) / (len(seen) + 1)
                weight = len(seen) / (len(seen) + shrinkage)
                own = ndtri(np.clip(miss, 1e-4, 0.5))
                bounds[now] = min(0, weight * np.interp(miss, share, seen) + (1 - weight) * own)
            out[k, :, h] = [bounds[n] for n in range(origins - count, origins)]
    return out


@pytest.mark.parametrize("count", [1, 12])
def test_bounds_are_those_of_the_definition(count):
    random = np.random.default_rng(0)
    scores = random.standard_t(4, (3, 70, 2)) + 0.3
    scores[1, :15] = np.nan
    scores[:, -1] = np.nan
    first_new = np.array([60, 69, 50])
    got = band_scores(scores, first_new, [80, 95], 40, count, rate=0.05, shrinkage=20)
    arguments = 40, count, 0.05, 20
    for level, (lower, upper) in zip((80, 95), got, strict=True):
        np.testing.assert_allclose(lower, slow(scores, first_new, level, *arguments))
        np.testing.assert_allclose(upper, -slow(-scores, first_new, level, *arguments))


def test_exchangeable_scores_are_covered_at_the_level_on_both_sides():
    random = np.random.default_rng(1)
    scores = random.normal(size=(2000, 101, 1)) ** 2 - 1  # skewed
    first_new = np.full(2000, 100)
    new = random.normal(size=2000) ** 2 - 1
    levels = (50, 80, 95)
    bands = band_scores(scores, first_new, levels, 100, shrinkage=0)
    for level, (lower, upper) in zip(levels, bands, strict=True):
        side = (1 - level / 100) / 2
        assert abs((new < lower[:, 0, 0]).mean() - side) < 0.02
        assert abs((new > upper[:, 0, 0]).mean() - side) < 0.02


def test_without_any_outcome_a_band_is_that_of_the_forecast_itself():
    scores = np.full((2, 30, 1), np.nan)
    bands = band_scores(scores, np.full(2, 29), [80], 20)
    np.testing.assert_allclose(bands[0, :, 0, 0, 0], [ndtri(0.1), ndtri(0.9)])


def test_bands_follow_a_change_of_regime():
    """Errors double after the fit; a plain split would cover far less than promised."""
    random = np.random.default_rng(2)
    scores = random.normal(size=(200, 900, 1))
    scores[:, 200:] *= 2
    first_new = np.full(200, 200)
    lower, upper = band_scores(scores, first_new, [80], 200, count=400)[0]
    covered = (scores[:, 500:] >= lower) & (scores[:, 500:] <= upper)
    assert abs(covered.mean() - 0.8) < 0.01
    lower, upper = band_scores(scores[:, :201], first_new, [80], 200)[0, :, :, 0]
    assert ((scores[:, 500:, 0] >= lower) & (scores[:, 500:, 0] <= upper)).mean() < 0.55


def test_the_future_has_no_part_in_a_band():
    random = np.random.default_rng(3)
    scores = random.normal(size=(2, 80, 3))
    first_new = np.array([50, 60])
    before = band_scores(scores, first_new, [80], 40, count=30)[0]
    scores[:, 65:] *= 100  # the band of origin p uses scores up to p - h only
    after = band_scores(scores, first_new, [80], 40, count=30)[0]
    np.testing.assert_array_equal(before[:, :, : 66 - 50], after[:, :, : 66 - 50])
    assert (before[:, :, -1] != after[:, :, -1]).any()


def test_bands_lie_inside_each_other_around_the_median():
    """Also where levels adapt to misses apart, and outcomes lie on one side of the median."""
    random = np.random.default_rng(3)
    scores = random.standard_t(3, (20, 300, 2)) + np.linspace(-1.5, 1.5, 20)[:, None, None]
    levels = [95, 10, 40, 90, 20, 80]
    bands = band_scores(scores, np.full(20, 60), levels, 60, count=200, rate=0.05)
    by_width = bands[np.argsort(levels)]
    assert (np.diff(by_width[:, 0], axis=0) <= 0).all() and (by_width[:, 0] <= 0).all()
    assert (np.diff(by_width[:, 1], axis=0) >= 0).all() and (by_width[:, 1] >= 0).all()
