"""Exponential smoothing of many series: averages over forms, and what they rest on."""

import numpy as np
import pytest

from forecaster.classical import ets_ahead, fit_ets
from forecaster.classical.ets import squares_of

T = np.arange(60)
WAVE = np.sin(2 * np.pi * T / 12)


@pytest.mark.parametrize("logarithmic", [False, True])
def test_a_trend_with_a_season_goes_on(logarithmic):
    law = 100 * 1.03**T * (1 + 0.2 * WAVE) if logarithmic else 100 + 0.5 * T + 10 * WAVE
    noise = np.random.default_rng(0).normal(size=(6, 48)) * (not logarithmic)
    known = list(law[:48] + noise)
    averages = fit_ets(known, 12)
    assert averages[0][0].form.logarithmic == logarithmic
    made = np.array([one[-1] for one in ets_ahead(known, averages, [48] * 6, 12)])
    errors = np.abs(made - law[48:])
    assert (errors < 0.02 * law[48:]).all() if logarithmic else (errors.mean(1) < 1.5).all()


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
