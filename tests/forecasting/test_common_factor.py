"""The common factor of errors: as large as forecast, and nothing else changes."""

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.forecasting.predicting import simulating
from forecaster.forecasting.predicting.simulating import scaled_to_now
from tests.frames import long
from tests.slow import rest_slow

SERIES, TIMES = 20, 250


def every_time(series: int = SERIES, times: int = TIMES) -> np.ndarray:
    return np.tile(np.arange(times), (series, 1))


def errors(common: np.ndarray, random: np.random.Generator, series: int = SERIES) -> np.ndarray:
    """Return errors (series, time, 1) of unit variance; ``common``: its share, by time."""
    shared = np.sqrt(common) * random.normal(size=len(common))
    own = np.sqrt(1 - common) * random.normal(size=(series, len(common)))
    return (shared + own)[:, :, None]


def correlation(units: np.ndarray) -> float:
    return float(np.corrcoef(units[:, :, 0])[np.triu_indices(len(units), 1)].mean())


def changed(before: float, after: float) -> np.ndarray:
    """Return a share of common variance that changes thirty times before now."""
    return np.where(np.arange(TIMES) < TIMES - 30, before, after)


@pytest.mark.parametrize(("before", "after"), [(0.2, 0.7), (0.6, 0.1)])
def test_series_move_together_more_like_lately(before, after):
    """At least a quarter of the way: the forecast is shrunk towards the average."""
    units = errors(changed(before, after), np.random.default_rng(0))
    found, average = correlation(scaled_to_now(units, every_time())), correlation(units)
    assert abs(found - after) < 0.75 * abs(average - after)


def walks(common: np.ndarray) -> dict[str, np.ndarray]:
    """Return values by series, whose changes have this common share."""
    moves = 0.01 * errors(common, np.random.default_rng(5), 6)[:, :, 0]
    return {f"s{row}": 100 * np.exp(np.cumsum(one)) for row, one in enumerate(moves)}


@pytest.mark.slow
@pytest.mark.parametrize(("column", "wider"), rest_slow([("close", True), ("y", False)]))
def test_paths_of_prices_and_no_others_follow_the_factor(column, wider, monkeypatch):
    common = np.where(np.arange(400) < 375, 0.1, 0.9)
    days = pd.bdate_range("2020-01-01", periods=400)
    panel = fc.load_panel(long(walks(common), days, column))
    config = fc.Config(horizon=1, hidden=4, members=1, epochs=2, lookback=20)
    model = fc.fit(panel, config)

    def deviation_of_sums() -> float:
        paths = fc.simulate(model, panel, 1000)
        return float(paths.groupby("sample_id")["LSTM"].sum().std())

    ours = deviation_of_sums()
    monkeypatch.setattr(simulating, "scaled_to_now", lambda units, positions: units)
    assert (ours > 1.05 * deviation_of_sums()) == wider
    assert wider or ours == deviation_of_sums()
