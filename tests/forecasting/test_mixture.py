"""Mixtures: exact against SciPy's distributions, in the middle and far out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from forecaster.forecasting.bands.mixture import Mixture

MEMBERS = [
    ([0.3], [2.0], [5.0]),
    ([0.3, -1.0, 0.1], [2.0, 0.5, 1.0], [5.0, 2.5, 40.0]),
    ([1.0, -1.0], [1.0, 3.0], [np.inf, np.inf]),
]


def mixture(members) -> Mixture:
    return Mixture(*(np.array(part)[None] for part in members))


def by_scipy(members):
    """Return the members' distributions."""
    return [
        stats.norm(a, s) if np.isinf(dof) else stats.t(dof, a, s)
        for a, s, dof in zip(*members, strict=True)
    ]


@pytest.mark.parametrize("members", MEMBERS)
def test_scores_are_those_of_the_averaged_distribution(members):
    values = np.array([-30.0, -2.0, 0.0, 0.7, 25.0])
    below = np.mean([one.cdf(values) for one in by_scipy(members)], axis=0)
    above = np.mean([one.sf(values) for one in by_scipy(members)], axis=0)
    expected = np.clip(np.where(below < 0.5, stats.norm.ppf(below), stats.norm.isf(above)), -8, 8)
    got = [float(mixture(members).scores(np.array([v]))[0]) for v in values]
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)
    got = [float(mixture(members).probability_above(np.array([v]))[0]) for v in values]
    np.testing.assert_allclose(got, above, rtol=1e-9)


@pytest.mark.parametrize("members", MEMBERS)
@pytest.mark.parametrize("score", [-6.0, -1.3, 0.0, 0.2, 1.3, 6.0])
def test_quantiles_have_exactly_that_chance_below_them(members, score):
    quantile = mixture(members).quantiles(np.array([score]))
    tail = [one.cdf if score < 0 else one.sf for one in by_scipy(members)]
    chance = np.mean([function(quantile[0]) for function in tail])
    assert chance == pytest.approx(stats.norm.cdf(-abs(score)), rel=1e-6)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 4))
def test_quantiles_undo_scores(seed, count):
    random = np.random.default_rng(seed)
    shape = (3, 2, count)
    parts = random.normal(size=shape), random.uniform(0.2, 3, shape), random.uniform(2.1, 30, shape)
    one = Mixture(*parts)
    values = one.location.mean(-1) + random.uniform(-3, 3, shape[:2]) * one.scale.max(-1)
    np.testing.assert_allclose(one.quantiles(one.scores(values)), values, rtol=1e-7, atol=1e-7)


def test_what_is_unknown_stays_unknown():
    assert np.isnan(mixture(MEMBERS[1]).scores(np.array([np.nan]))).all()
    assert np.isnan(mixture(MEMBERS[1]).quantiles(np.array([np.nan]))).all()


def test_company_changes_no_bit_of_a_quantile():
    """The root search of a forecast stops when that forecast has converged."""
    random = np.random.default_rng(0)
    shape = (400, 3)
    parts = (
        random.normal(size=shape),
        random.uniform(0.01, 9, shape),
        random.uniform(2.1, 30, shape),
    )
    scores = random.normal(0, 2, 400)
    together = Mixture(*parts).quantiles(scores)
    alone = [
        Mixture(*(part[row : row + 1] for part in parts)).quantiles(scores[row : row + 1])[0]
        for row in range(400)
    ]
    np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize("count", [1, 3, 9])
def test_each_forecast_is_by_itself_and_the_distributions_stay(count):
    random = np.random.default_rng(count)
    shape = (4, 5, count)
    parts = random.normal(size=shape), random.uniform(0.2, 3, shape), random.uniform(2.1, 30, shape)
    parts[2][2] = np.inf
    one, before = Mixture(*parts), [part.copy() for part in parts]
    scores = random.normal(size=shape[:2])
    scores[0] = 0.0
    scores[1, 2] = np.nan
    quantiles, medians = one.quantiles(scores), one.quantiles(np.zeros(shape[:2]))
    found = one.scores(quantiles)
    for place in np.ndindex(shape[:2]):
        alone = Mixture(*(part[place][None] for part in parts))
        assert np.array_equal(alone.quantiles(scores[place][None])[0], quantiles[place], True)
        assert np.array_equal(alone.scores(quantiles[place][None])[0], found[place], True)
    np.testing.assert_array_equal(medians[0], quantiles[0])
    medians[:] = quantiles[:] = 99.0
    for part, then in zip(parts, before, strict=True):
        np.testing.assert_array_equal(part, then)


def test_bits_do_not_depend_on_how_the_arrays_lie_in_memory():
    random = np.random.default_rng(0)
    parts = random.normal(size=(9, 4, 5)), *random.uniform(0.5, 9, (2, 9, 4, 5))
    one = Mixture(*(np.moveaxis(part, 0, -1) for part in parts))
    other = Mixture(*(np.ascontiguousarray(np.moveaxis(part, 0, -1)) for part in parts))
    values = random.normal(size=(4, 5))
    for name in ("scores", "quantiles", "probability_above"):
        np.testing.assert_array_equal(getattr(one, name)(values), getattr(other, name)(values))


def test_values_of_another_shape_are_spread():
    one = mixture(MEMBERS[1])
    values = np.array([[-1.0], [0.5]])
    for got, expected in (
        (one.scores(values), [one.scores(value) for value in values]),
        (one.quantiles(values), [one.quantiles(value) for value in values]),
    ):
        np.testing.assert_array_equal(got, expected)


def test_medians_are_missing_where_degrees_of_freedom_are_impossible():
    one = Mixture(np.zeros((3, 2)), np.ones((3, 2)), np.array([[5.0, 5], [np.nan, 5], [-1, 5]]))
    assert np.isnan(one.quantiles(np.zeros(3))).tolist() == [False, True, True]
