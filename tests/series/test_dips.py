"""A stretch of low rows that is over says nothing about the season or about errors."""

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import ForecasterWarning
from forecaster.series import infer_frequency
from forecaster.series.combination.nature import Nature, dip_of
from tests.messages import warns

SEASON = 12
USUAL = 100 + 30 * np.sin(2 * np.pi * np.arange(96) / SEASON)


def with_low(*stretches: tuple[int, int], size: float = 0.1) -> np.ndarray:
    """Return eight years of months with low stretches."""
    values = USUAL.copy()
    for begin, end in stretches:
        values[begin:end] *= size
    return values


@pytest.mark.parametrize(
    ("values", "seasons", "dip"),
    [
        (with_low((50, 62)), (12,), (50, 61)),
        (with_low((30, 60)), (12,), (30, 59)),
        (with_low((50, 62)), (4, 12), (50, 61)),
        (with_low((50, 61)), (12,), None),  # shorter than a season
        (with_low((50, 62), size=0.6), (12,), None),  # milder
        (with_low((10, 22)), (12,), None),  # as many rows before as in it
        (with_low((80, 92)), (12,), None),  # not over for a season
        (with_low((30, 42), (60, 72)), (12,), None),  # more than one
        (with_low((50, 62)), (), None),
        (with_low((50, 62)) - 60, (12,), None),  # values below zero have no share
        (USUAL * np.linspace(0.1, 3, 96), (12,), None),  # growth
        (with_low((20, 32))[:40], (12,), None),  # fewer than four seasons
    ],
)
def test_a_dip_is_one_stretch_of_low_rows_that_is_over(values, seasons, dip):
    rows = dip_of(values, seasons)
    assert (None if rows is None else (rows[0], rows[-1])) == dip


def test_season_and_bands_come_from_sound_years_and_this_is_said():
    random = np.random.default_rng(0)
    values = with_low((62, 76)) * np.exp(0.02 * random.normal(size=96))
    frame = pd.DataFrame({"ds": pd.date_range("2018", periods=96, freq="MS"), "y": values})
    frame.insert(0, "unique_id", "hall")
    with warns(ForecasterWarning):
        model = fc.fit(frame, fc.Config(horizon=12))
    made = fc.predict(model, frame, (95,))
    error = np.abs(made["LSTM"] - USUAL[:12]).mean()
    assert error < 1.2 * np.abs(values[-12:] - USUAL[:12]).mean()
    assert made["LSTM-hi-95"].max() < 1.5 * values.max()


def test_a_dip_after_missing_rows_is_replaced_in_phase():
    there = np.r_[0:55, 58:96]  # three months are missing in the season before the dip
    times = pd.date_range("2018", periods=96, freq="MS").to_numpy("datetime64[s]")[there]
    values = with_low((62, 76))[there]
    nature = Nature.from_rows(times, values, infer_frequency(times), (SEASON,))
    assert nature.dip is not None
    made = nature.without_dip(values, times)
    np.testing.assert_allclose(made, USUAL[there], atol=8)
