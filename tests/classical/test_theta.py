"""The Theta model of many series, against its authors' recursion, one series at a time."""

import numpy as np
import pytest

from forecaster.classical import fit_theta, theta_ahead
from forecaster.classical.theta import Theta, seasonal_pattern


def one_by_one(y: np.ndarray, model: Theta, horizon: int) -> np.ndarray:
    """Forecasts after the last value by the recursion of Fiorucci et al. (2016), equation 15."""
    a, level = model.smoothing, model.level
    known = list(y)
    for t in range(len(y) + horizon):
        if t < 2:
            intercept, slope = known[0], 0.0
        else:
            slope, centre = np.polyfit(np.arange(1, t + 1), known[:t], 1)
            intercept = centre
        line = (1 - a) ** t * intercept + (1 - (1 - a) ** (t + 1)) / a * slope
        mean = level + model.share * line
        if t >= len(y):
            known.append(mean)
        level = a * known[t] + (1 - a) * level
    return np.array(known[len(y) :])


def rows(seed: int = 0, count: int = 5) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [100 + np.cumsum(rng.normal(0.3, 1, 25 + 4 * k)) for k in range(count)]


def test_forecasts_are_those_of_the_recursion():
    some = rows()
    models = fit_theta(some, 1)
    made = theta_ahead(some, models, 6)
    for row, model, forecasts in zip(some, models, made, strict=True):
        assert model is not None
        np.testing.assert_allclose(forecasts[-1], one_by_one(row, model, 6), rtol=1e-8)
        np.testing.assert_allclose(forecasts[9], one_by_one(row[:10], model, 6), rtol=1e-8)


@pytest.mark.parametrize("multiplied", [True, False])
def test_a_season_is_found_and_goes_on(multiplied):
    t = np.arange(60)
    wave = np.sin(2 * np.pi * t / 12)
    row = (100 + t) * (1 + 0.2 * wave) if multiplied else 0.1 * t - 3 + 5 * wave
    pattern, by_factor = seasonal_pattern(row, 12)
    assert len(pattern) == 12 and by_factor == multiplied
    assert np.mean(pattern) == pytest.approx(float(multiplied), abs=1e-9)
    later = np.arange(60, 72)
    wave = np.sin(2 * np.pi * later / 12)
    truth = (100 + later) * (1 + 0.2 * wave) if multiplied else 0.1 * later - 3 + 5 * wave
    made = theta_ahead([row], fit_theta([row], 12), 12)[0][-1]
    assert np.abs(made - truth).mean() < 0.05 * np.abs(truth).mean() + 0.5
