"""Tests of forecasts against the field's libraries, slow oracles, and chance."""

import itertools

import numpy as np
import pytest
from scipy import stats

from forecaster.evaluation.scores import tables as significance
from forecaster.evaluation.scores.tables import FEWEST


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def overlapping(random: np.random.Generator, cutoffs: int, steps: int, *shape: int) -> np.ndarray:
    """Draw losses (cutoff, ...) of this many steps, all but one of them also the next cutoff's."""
    shocks = random.standard_t(4, size=(cutoffs + steps, *shape)).cumsum(0)
    return shocks[steps:] - shocks[:-steps]


def test_diebold_mariano_by_its_formulas_written_out(random):
    """The mean over its standard error by the slowest cosines, three where four of 60 overlap."""
    losses, others = random.normal(size=(2, 60)) ** 2
    difference, waves = losses - others, 3
    cosines = [
        sum(np.sqrt(2) * np.cos(np.pi * j * (t + 0.5) / 60) * difference[t] for t in range(60)) / 60
        for j in range(1, waves + 1)
    ]
    statistic = difference.mean() / np.sqrt(np.square(cosines).mean())
    got = significance.diebold_mariano(losses, others, lags=3)
    np.testing.assert_allclose(got, (statistic, 2 * stats.t.sf(abs(statistic), waves)))
    swapped = significance.diebold_mariano(others, losses, lags=3)
    assert swapped.statistic == -got.statistic and swapped.p_value == got.p_value


@pytest.mark.parametrize(
    ("cutoffs", "steps"), [(20, 1), (60, 1), (250, 1), (60, 6), (250, 10), (210, 21), (250, 21)]
)
def test_equal_forecasts_are_called_different_as_often_as_the_level_says(random, cutoffs, steps):
    """At five per cent; and one of a hundred series in at most a tenth of evaluations."""
    losses = overlapping(random, cutoffs, steps, 60, 100)
    p = np.array(
        [
            [significance.diebold_mariano(d, 0 * d, steps - 1).p_value for d in each]
            for each in losses.transpose(1, 2, 0)
        ]
    )
    assert 0.035 < (p < 0.05).mean() < 0.07
    any_of_a_hundred = [(significance.false_discovery(each) < 0.05).any() for each in p]
    assert np.mean(any_of_a_hundred) < 0.1 + 2 * np.sqrt(0.1 * 0.9 / 60)  # of sixty evaluations


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
def test_losses_that_differ_by_rounding_alone_do_not_differ(random, size):
    losses = size * random.normal(size=60) ** 2
    for other in (losses * (1 + 3e-16), losses + 0.1 * size):  # the same difference each time
        assert np.isnan(significance.diebold_mariano(other, losses)).all()
    other = losses * (1 + 1e-6)
    assert significance.diebold_mariano(losses, other).p_value < 0.01


def test_what_cannot_be_tested_has_no_p_value(random):
    few = random.normal(size=FEWEST - 1)
    assert np.isnan(significance.diebold_mariano(few, 2 * few).p_value)
    same = random.normal(size=50)
    assert np.isnan(significance.diebold_mariano(same, same).p_value)
    assert np.isnan(significance.diebold_mariano(same, np.full(50, np.nan)).p_value)
    assert np.isnan(significance.kupiec(few < 0, 0.1).p_value)
    assert np.isnan(significance.christoffersen(np.zeros(50, bool)).p_value)
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
