"""The combination of anchors is causal, and about as good as the best of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.series.combination.anchors import combine, decayed_errors


def walk(seed: int, rows: int = 400) -> np.ndarray:
    return np.cumsum(np.random.default_rng(seed).normal(size=rows))


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(20, 118),
    st.integers(1, 9),
    st.sampled_from([(), (4,), (4, 12)]),
)
def test_nothing_later_changes_a_combination(seed, cutoff, horizon, seasons):
    z = walk(seed, 120)
    edited = z.copy()
    edited[cutoff + 1 :] = 1e6
    before, after, cut = (combine(v, seasons, horizon) for v in (z, edited, z[: cutoff + 1]))
    for part in ("base", "error"):
        a, b = getattr(before, part)[: cutoff + 1], getattr(after, part)[: cutoff + 1]
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, getattr(cut, part))


def test_a_random_walk_stays_one():
    """The error is within one percent of that of the last value, near and far."""
    ratios = []
    for seed in range(40):
        z = walk(seed)
        base = combine(z, (), 13).base
        for ahead in (1, 13):
            z_later = z[200 + ahead :]
            made = slice(200, len(z) - ahead)
            naive = np.abs(z_later - z[made]).mean()
            ratios.append(np.abs(z_later - base[made, ahead - 1]).mean() / naive)
    assert np.mean(ratios) < 1.01


def test_an_anchor_that_erred_as_much_as_the_last_value_counts_less():
    """A jump after a thousand equal values: all anchors have forecast it equally badly."""
    z = np.append(np.zeros(1000), 1.0)
    less = 1.05**-6  # errors count 5 % more than those of the last value, to the sixth power
    levels = np.array([-0.7, -0.95])  # what the latest value lacks in the smoothed levels
    trends = np.array([0.1 * 0.9, 0.02 * 1.0])  # its share of the mean change, damped
    expected = less * (levels.sum() + trends.sum()) / (1 + 4 * less)
    base = combine(z, (), 1, doubt=0.0).base[-1, 0]
    np.testing.assert_allclose(base - z[-1], expected, rtol=1e-6)


@pytest.mark.parametrize("level", [0.0, 0.02])
def test_two_seasons_are_both_found_in_the_forecast(level):
    time = np.arange(24 * 7 * 5)
    z = np.sin(time * 2 * np.pi / 24) * (1 + (time // 24 % 7 < 5)) + level * walk(1, len(time))
    base = combine(z, (24, 168), 48).base
    made = len(z) - 49
    error = np.abs(z[made + 1 :] - base[made]).mean()
    naive = np.abs(z[made + 1 :] - z[made]).mean()
    assert error < (0.02 if level == 0 else 0.5) * naive


def test_errors_are_those_known_at_a_step():
    z = walk(0, 30)
    forecasts = np.repeat(z[:, None], 3, axis=1)
    known = decayed_errors(forecasts, z, 0.0)  # the latest alone
    for step in range(3, 30):
        np.testing.assert_allclose(known[step], [abs(z[step] - z[step - h]) for h in (1, 2, 3)])
    assert np.isnan(known[0]).all()


@pytest.mark.parametrize("rows", [16, 18, 21])
def test_a_season_is_forecast_from_its_second_year_on(rows):
    """Forecasts made in the first year knew no season, which says nothing about later ones."""
    random = np.random.default_rng(0)
    month = np.arange(rows + 6)
    season = 0.3 * np.sin(2 * np.pi * month / 12) + 0.1 * np.cos(4 * np.pi * month / 12)
    z = season + 0.05 * random.normal(size=(40, rows + 6))
    base = combine(z[:, :rows], (12,), 6).base[:, -1]
    error = np.abs(base - z[:, rows:]).mean()
    before = np.abs(z[:, rows - 12 : rows - 6] - z[:, rows:]).mean()
    last = np.abs(z[:, rows - 1 : rows] - z[:, rows:]).mean()
    assert error < 1.5 * before < 0.5 * last


@pytest.mark.parametrize("rows", [16, 21])
def test_a_random_walk_of_a_year_and_a_half_has_no_season(rows):
    z = np.random.default_rng(1).normal(size=(300, rows + 6)).cumsum(1)
    base = combine(z[:, :rows], (12,), 6, doubt=1.0).base[:, -1]
    error, last = (np.abs(each - z[:, rows:]).mean() for each in (base, z[:, rows - 1 : rows]))
    assert error < 1.03 * last
