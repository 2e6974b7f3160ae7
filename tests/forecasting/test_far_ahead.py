"""Bands of a season with noise do not become narrower with the horizon, and hold far ahead."""

from typing import NamedTuple

import numpy as np
import pandas as pd

import forecaster as fc


class Far(NamedTuple):
    """The width of each band, and whether the outcome lay inside, both (series, step)."""

    width: np.ndarray
    inside: np.ndarray


def forecasts(series: int, season: float, rows: int, horizon: int, frequency: str) -> Far:
    """Forecast simulated series: a sine of one season and independent noise, whose bands are as
    wide at each step."""
    random = np.random.default_rng(0)
    times = pd.date_range("2015-01-01", periods=rows, freq=frequency)
    phase = random.uniform(0, 2 * np.pi, (series, 1))
    wave = np.sin(2 * np.pi * np.arange(rows + horizon) / season + phase)
    values = 100 + 20 * wave + random.normal(0, 5, wave.shape)
    frame = pd.concat(
        pd.DataFrame({"unique_id": f"s{row:02d}", "ds": times, "y": value[:rows]})
        for row, value in enumerate(values)
    )
    model = fc.fit(frame, fc.Config(horizon=horizon))
    made, name = fc.predict(model, frame, (80,)), model.config.column
    low, high = (made[f"{name}-{side}-80"].to_numpy().reshape(series, -1) for side in ("lo", "hi"))
    outcomes = values[:, rows:]
    return Far(high - low, (low <= outcomes) & (outcomes <= high))


def test_no_step_of_two_years_of_months_is_narrower_than_the_first():
    width = forecasts(12, 12, 60, 24, "MS").width
    assert (width / width[:, :1]).min() > 0.95
