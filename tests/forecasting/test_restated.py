"""A whole history in other units, under a model that was fitted before."""

import functools

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from tests.frames import long
from tests.slow import rest_slow

CONFIG = fc.Config(horizon=7)


def values(factor: float, column: str) -> pd.DataFrame:
    """Random walks with a season of a week, times a factor; ``column``: "y" or "close"."""
    random = np.random.default_rng(0)
    days = pd.date_range("2020-01-01", periods=60)
    season = 10 * np.sin(2 * np.pi * np.arange(60) / 7)
    walks = 100 + season + random.normal(0, 1, (6, 60)).cumsum(1)
    return long({f"s{row}": factor * walk for row, walk in enumerate(walks)}, days, column)


@functools.cache
def fitted(factor: float, column: str) -> fc.Model:
    return fc.fit(values(factor, column), CONFIG)


def forecasts(model: fc.Model, factor: float, column: str) -> np.ndarray:
    """Median and width of the band, in units of the factor."""
    made = fc.predict(model, values(factor, column), (80,))
    name = model.config.column
    width = made[f"{name}-hi-80"] - made[f"{name}-lo-80"]
    return np.stack([made[name], width]) / factor


@pytest.mark.parametrize("column", rest_slow(["y", "close"]))
@pytest.mark.parametrize("factor", [0.001, 100.0])
@pytest.mark.parametrize("known", ["new", "old"])
def test_a_new_fit_and_an_old_model_forecast_in_the_new_units(known, factor, column):
    expected = forecasts(fitted(1.0, column), 1.0, column)
    model = fitted(factor if known == "new" else 1.0, column)
    np.testing.assert_allclose(forecasts(model, factor, column), expected, rtol=1e-6)
