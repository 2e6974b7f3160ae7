"""Distributions of forecasts: exact against SciPy's, in the middle and far out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from forecaster.forecasting.bands.distribution import Distribution

ALONE = [(0.3, 2.0, 5.0), (-1.0, 0.5, 2.5), (1.0, 3.0, np.inf)]


def distribution(location: float, scale: float, dof: float) -> Distribution:
    return Distribution(np.array([location]), np.array([scale]), np.array([dof]))


def by_scipy(location: float, scale: float, dof: float):
    """Return the same distribution."""
    return stats.norm(location, scale) if np.isinf(dof) else stats.t(dof, location, scale)


def some(seed: int, shape: tuple[int, ...]) -> Distribution:
    random = np.random.default_rng(seed)
    parts = random.normal(size=shape), random.uniform(0.2, 3, shape), random.uniform(2.1, 30, shape)
    parts[2][..., 0] = np.inf
    return Distribution(*parts)


@pytest.mark.parametrize("parts", ALONE)
def test_scores_and_probabilities_are_exact_in_both_tails(parts):
    values, true = np.array([-30.0, -2.0, 0.0, 0.7, 25.0]), by_scipy(*parts)
    below, above = true.cdf(values), true.sf(values)
    expected = np.clip(np.where(below < 0.5, stats.norm.ppf(below), stats.norm.isf(above)), -8, 8)
    made = distribution(*parts)
    np.testing.assert_allclose(made.scores(values), expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(made.probability_above(values), above, rtol=1e-9)


@pytest.mark.parametrize("parts", ALONE)
@pytest.mark.parametrize("score", [-6.0, -1.3, 0.0, 0.2, 1.3, 6.0])
def test_quantiles_have_exactly_that_chance_below_them(parts, score):
    (quantile,) = distribution(*parts).quantiles(np.array([score]))
    true = by_scipy(*parts)
    chance = true.cdf(quantile) if score < 0 else true.sf(quantile)
    assert chance == pytest.approx(stats.norm.cdf(-abs(score)), rel=1e-6)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6))
def test_quantiles_undo_scores(seed):
    made = some(seed, (3, 2))
    random = np.random.default_rng(seed)
    values = made.location + random.uniform(-3, 3, made.shape) * made.scale
    np.testing.assert_allclose(made.quantiles(made.scores(values)), values, rtol=1e-7, atol=1e-7)


def test_networks_are_combined_by_their_quantiles():
    """Two that are equally sure of different places are together as sure as each."""
    members = np.array([[[-1.0, 1.0]], [[1.0, 4.0]], [[np.inf, np.inf]]])
    made = Distribution.of_members(*members)
    assert (made.location, made.scale, made.dof) == (0.0, pytest.approx(2.0), np.inf)
    alike = Distribution.of_members(
        *(np.array([[2.0, 2.0]]), np.ones((1, 2)), np.full((1, 2), 5.0))
    )
    scores = np.array([[-2.0], [0.0], [1.0]])
    same = distribution(2.0, 1.0, 5.0)
    np.testing.assert_allclose(alike.quantiles(scores), same.quantiles(scores), rtol=1e-12)


def test_what_is_unknown_stays_unknown():
    for parts in ALONE:
        made = distribution(*parts)
        assert np.isnan(made.scores(np.array([np.nan]))).all()
        assert np.isnan(made.quantiles(np.array([np.nan]))).all()


def test_each_forecast_is_by_itself_and_the_distributions_stay():
    made = some(3, (4, 5))
    parts = made.location, made.scale, made.dof
    before = [part.copy() for part in parts]
    scores = np.random.default_rng(3).normal(size=made.shape)
    scores[0] = 0.0
    scores[1, 2] = np.nan
    quantiles, medians = made.quantiles(scores), made.quantiles(np.zeros(made.shape))
    found = made.scores(quantiles)
    for place in np.ndindex(made.shape):
        alone = Distribution(*(part[place][None] for part in parts))
        np.testing.assert_array_equal(alone.quantiles(scores[place][None])[0], quantiles[place])
        np.testing.assert_array_equal(alone.scores(quantiles[place][None])[0], found[place])
    np.testing.assert_array_equal(medians[0], quantiles[0])
    medians[:] = quantiles[:] = 99.0
    for part, then in zip(parts, before, strict=True):
        np.testing.assert_array_equal(part, then)


def test_medians_are_missing_where_degrees_of_freedom_are_impossible():
    made = Distribution(np.zeros(3), np.ones(3), np.array([5.0, np.nan, -1.0]))
    assert np.isnan(made.quantiles(np.zeros(3))).tolist() == [False, True, True]
