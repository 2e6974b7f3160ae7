"""Tests of forecasts against the field's libraries, slow oracles, and chance."""

import itertools

import numpy as np
import pytest
from scipy import stats

from forecaster.evaluation.scores import significance
from forecaster.evaluation.scores.significance import FEWEST


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def test_diebold_mariano_is_that_of_statsmodels(random):
    stattools = pytest.importorskip("statsmodels.tsa.stattools")
    theirs = getattr(stattools, "diebold_mariano_test", None)
    if theirs is None:
        pytest.skip("statsmodels before 0.15")
    y, a, b = random.normal(size=(3, 80))
    expected = theirs(y, a, b, lags=0, horizon=1, harvey_adj=True)
    got = significance.diebold_mariano((y - a) ** 2, (y - b) ** 2)
    np.testing.assert_allclose(got, (expected[0], expected[1]), rtol=1e-10)


def test_diebold_mariano_counts_autocorrelations(random):
    """Several steps ahead, by the formulas of the two papers written out."""
    losses, others = random.normal(size=(2, 60)) ** 2
    difference, steps, count = losses - others, 4, 60
    mean = difference.mean()
    covariance = [
        sum((difference[t] - mean) * (difference[t - k] - mean) for t in range(k, count)) / count
        for k in range(steps)
    ]
    variance = (covariance[0] + 2 * sum(covariance[1:])) / count
    factor = (count + 1 - 2 * steps + steps * (steps - 1) / count) / count
    statistic = mean / np.sqrt(variance) * np.sqrt(factor)
    got = significance.diebold_mariano(losses, others, lags=steps - 1)
    np.testing.assert_allclose(got.statistic, statistic)
    np.testing.assert_allclose(got.p_value, 2 * stats.t.sf(abs(statistic), count - 1))
    swapped = significance.diebold_mariano(others, losses, lags=steps - 1)
    assert swapped.statistic == -got.statistic and swapped.p_value == got.p_value


def test_equal_forecasts_are_called_different_as_often_as_chance_does(random):
    losses = random.normal(size=(2, 2000, 100)) ** 2
    p = [significance.diebold_mariano(a, b).p_value for a, b in zip(*losses, strict=True)]
    assert 0.035 < np.mean(np.array(p) < 0.05) < 0.065
    assert (significance.false_discovery(np.array(p)) < 0.05).mean() < 0.002


def test_what_cannot_be_tested_has_no_p_value(random):
    few = random.normal(size=FEWEST - 1)
    assert np.isnan(significance.diebold_mariano(few, 2 * few).p_value)
    same = random.normal(size=50)
    assert np.isnan(significance.diebold_mariano(same, same).p_value)
    assert np.isnan(significance.diebold_mariano(same, np.full(50, np.nan)).p_value)
    assert np.isnan(significance.kupiec(few < 0, 0.1).p_value)
    assert np.isnan(significance.christoffersen(np.zeros(50, bool)).p_value)
    assert np.isnan(significance.pesaran_timmermann(same, np.ones(50)).p_value)
    some = significance.false_discovery(np.array([np.nan, 0.01, 0.04]))
    np.testing.assert_allclose(some, [np.nan, 0.02, 0.04])
    assert np.isnan(significance.false_discovery(np.array([np.nan]))).all()


def test_value_at_risk_tests_by_likelihoods_written_out(random):
    exceeded = random.random(300) < 0.08
    hits, count, p = exceeded.sum(), 300, 0.05
    ratio = 2 * np.log(
        ((1 - hits / count) / (1 - p)) ** (count - hits) * (hits / count / p) ** hits
    )
    got = significance.kupiec(exceeded, p)
    np.testing.assert_allclose(got, (ratio, stats.chi2.sf(ratio, 1)))
    pairs = np.zeros((2, 2))
    for before, now in itertools.pairwise(exceeded):
        pairs[int(before), int(now)] += 1
    share = pairs[:, 1] / pairs.sum(1)
    together = pairs[:, 1].sum() / pairs.sum()
    log = lambda share, row: row[0] * np.log(1 - share) + row[1] * np.log(share)  # noqa: E731
    ratio = 2 * (log(share[0], pairs[0]) + log(share[1], pairs[1]) - log(together, pairs.sum(0)))
    np.testing.assert_allclose(significance.christoffersen(exceeded).statistic, ratio)


def test_value_at_risk_tests_find_what_they_are_for(random):
    honest = random.random((1000, 500)) < 0.05
    kupiec = [significance.kupiec(row, 0.05).p_value < 0.05 for row in honest]
    assert 0.03 < np.mean(kupiec) < 0.08
    clusters = np.repeat(random.random(60) < 0.1, 5)
    assert significance.christoffersen(clusters).p_value < 1e-6
    assert significance.kupiec(random.random(500) < 0.1, 0.05).p_value < 0.01


def test_pesaran_timmermann_is_that_of_statsmodels(random):
    diagnostic = pytest.importorskip("statsmodels.stats.diagnostic")
    theirs = getattr(diagnostic, "pesaran_timmermann", None)
    if theirs is None:
        pytest.skip("statsmodels before 0.15")
    actual = random.normal(0.1, 1, 120)
    forecast = 0.8 * actual + random.normal(size=120)
    expected = theirs(actual, forecast, alternative="larger")
    got = significance.pesaran_timmermann(actual, forecast)
    np.testing.assert_allclose(got, (expected[0], expected[1]), rtol=1e-6)
    assert got.p_value < 0.05


def test_a_forecast_that_repeats_yesterday_is_an_echo(random):
    prices = np.cumsum(random.normal(size=300))
    actual, latest = prices[1:], prices[:-1]
    right, repeated = significance.echo(actual, latest, latest)
    assert repeated == pytest.approx(1) and right < repeated
    right, repeated = significance.echo(actual, actual + 0.01 * random.normal(size=299), latest)
    assert right > repeated
    assert np.isnan(significance.echo(actual, np.ones(299), latest)).all()
