"""Exponential smoothing of many series: averages over forms, and what they rest on."""

import numpy as np
import pytest

from forecaster.classical import ets_ahead, fit_ets
from forecaster.classical.innovations import squares_of


def rows(seed: int = 0, count: int = 6, length: int = 48) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    t = np.arange(length)
    return [
        100 + k + 0.5 * t + 10 * np.sin(2 * np.pi * t / 12) + rng.normal(size=length)
        for k in range(count)
    ]


def latest(some: list[np.ndarray], horizon: int = 12, season: int = 12) -> np.ndarray:
    made = ets_ahead(some, fit_ets(some, season), [len(row) for row in some], horizon)
    return np.array([each[-1] for each in made])


def test_a_trend_with_a_season_goes_on():
    some = rows()
    t = np.arange(48, 60)
    for k, forecast in enumerate(latest(some)):
        truth = 100 + k + 0.5 * t + 10 * np.sin(2 * np.pi * t / 12)
        assert np.abs(forecast - truth).mean() < 1.5


def test_growth_by_a_factor_is_smoothed_in_logarithms():
    t = np.arange(60)
    grown = [100 * 1.03**t * (1 + 0.2 * np.sin(2 * np.pi * t / 12))]
    average = fit_ets(grown, 12)[0]
    assert average[0].form.logarithmic
    truth = 100 * 1.03 ** np.arange(60, 72) * (1 + 0.2 * np.sin(2 * np.pi * np.arange(60, 72) / 12))
    np.testing.assert_allclose(latest(grown)[0], truth, rtol=0.02)


@pytest.mark.parametrize("length", [12, 16, 60])
def test_forms_are_weighted_by_the_criterion_that_is_corrected_for_short_series(length):
    """It is that of Hurvich & Tsai (1989), Biometrika 76."""
    free = {"none": 3, "additive": 5, "damped": 6}  # parameters, initial states, and a variance
    row = (1 + np.random.default_rng(0).normal(size=length)).cumsum() - 500  # has no logarithm
    average = fit_ets([row], 1)[0]
    assert len(average) > 1
    logs = []
    for form, parameters, weight in average:
        z, space = (row - row[0])[None], form.space(np.array([parameters]))
        squares = float(squares_of(z, np.array([length]), space)[0][0])
        k = free[form.trend]
        criterion = length * np.log(squares / length) + 2 * k + 2 * k * (k + 1) / (length - k - 1)
        logs.append(np.log(weight) + criterion / 2)
    np.testing.assert_allclose(logs, logs[0], rtol=1e-6)
