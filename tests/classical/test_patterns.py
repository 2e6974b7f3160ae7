"""Patterns of several seasons: found where they are, and shrunk away where there is only noise."""

import numpy as np
import pytest

from forecaster.classical.patterns import decomposed, patterns_ahead

DAY, WEEK = 4, 12
TIME = np.arange(WEEK * 12)
DAILY = np.array([3.0, -1.0, -4.0, 2.0])[TIME % DAY]
WEEKLY = np.where(TIME % WEEK < DAY, 2.0, -1.0)


@pytest.mark.parametrize("factor", [1.0, 1e6, 1e-3, -1.0])
@pytest.mark.parametrize(
    ("y", "seasons"), [(DAILY, (DAY,)), (DAILY + WEEKLY + 20, (DAY, WEEK)), (DAILY, (DAY, WEEK))]
)
def test_exact_patterns_are_found_in_all_units(y, seasons, factor):
    y = factor * y
    made = patterns_ahead([y[: -2 * WEEK]], seasons, 2 * WEEK, [0])[0][-1]
    np.testing.assert_allclose(made, y[-2 * WEEK :], atol=0.02 * np.abs(factor) * np.ptp(DAILY))


def test_noise_shrinks_patterns_to_nothing():
    noise = np.random.default_rng(0).normal(size=(20, len(TIME)))
    sizes = [np.abs(decomposed(y, (DAY, WEEK), WEEK)[0]).mean() for y in noise]
    assert np.mean(sizes) < 0.15
    ahead, _ = decomposed(
        5 * DAILY + np.random.default_rng(0).normal(size=len(TIME)), (DAY, WEEK), WEEK
    )
    np.testing.assert_allclose(ahead, 5 * DAILY[:WEEK], atol=1.0)


def test_a_pattern_that_changed_is_forgotten():
    y = np.where(len(TIME) // 2 > TIME, DAILY, -DAILY)
    later = patterns_ahead([y], (DAY,), DAY, [0])[0][-1]
    assert np.corrcoef(later, -DAILY[:DAY])[0, 1] > 0.9


@pytest.mark.parametrize("rows", [0, 1, 2 * DAY - 1, 2 * DAY, 2 * DAY + 1])
def test_short_series_have_none(rows):
    for y in (np.zeros(rows), TIME[:rows] * 1e150):
        made = patterns_ahead([y], (DAY, WEEK), 5, [0])[0]
        assert made.shape == (rows, 5) and np.isnan(made[: 2 * DAY]).all()
        assert np.isfinite(made[2 * DAY :]).all()
