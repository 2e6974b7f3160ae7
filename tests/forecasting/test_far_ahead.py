"""Bands of a season with noise do not become narrower with the horizon."""

import numpy as np
import pandas as pd

import forecaster as fc
from tests.frames import long


def widths(series: int, season: float, rows: int, horizon: int, frequency: str) -> np.ndarray:
    """Return the widths of bands (series, step) of a sine of one season and independent noise."""
    random = np.random.default_rng(0)
    times = pd.date_range("2015-01-01", periods=rows, freq=frequency)
    phase = random.uniform(0, 2 * np.pi, (series, 1))
    wave = np.sin(2 * np.pi * np.arange(rows + horizon) / season + phase)
    values = 100 + 20 * wave + random.normal(0, 5, wave.shape)
    frame = long({f"s{row:02d}": value[:rows] for row, value in enumerate(values)}, times)
    model = fc.fit(frame, fc.Config(horizon=horizon))
    made, name = fc.predict(model, frame, (80,)), model.config.column
    low, high = (made[f"{name}-{side}-80"].to_numpy().reshape(series, -1) for side in ("lo", "hi"))
    return high - low


def test_no_step_of_two_years_of_months_is_narrower_than_the_first():
    width = widths(12, 12, 60, 24, "MS")
    assert (width / width[:, :1]).min() > 0.95
