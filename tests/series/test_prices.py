"""The volatility of prices that have hardly any rows."""

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.series.features.prices import usual_volatility, with_few_changes


def panel(moves: dict[str, np.ndarray]) -> fc.Panel:
    days = pd.bdate_range("2024-01-01", periods=60)
    return fc.load_panel(
        pd.concat(
            pd.DataFrame({"unique_id": n, "ds": days[: len(m)], "close": np.exp(np.cumsum(m))})
            for n, m in moves.items()
        )
    )


def test_the_usual_volatility_is_that_of_the_middle_series():
    turns = np.array([1, -1] * 30)
    made = panel({"A": 0.01 * turns, "B": 0.02 * turns, "C": 0.9 * turns, "D": 0.5 * turns[:5]})
    assert usual_volatility(made) == pytest.approx(0.02)


def test_without_long_series_none_is_usual():
    assert usual_volatility(panel({"A": 0.01 * np.array([1, -1, 1])})) is None


def test_few_changes_are_shrunk_to_what_is_usual():
    change = np.array([[np.nan, 0.04, 0.04]])
    scale = np.array([[np.nan, 0.04, 0.04]])
    known = np.array([0, 1, 2])
    expected = np.sqrt((known * 0.04**2 + 10 * 0.02**2) / (known + 10))
    np.testing.assert_allclose(with_few_changes(scale, change, 0.02)[0], expected)
