"""The times after each row, by the calendar as it was known then."""

import numpy as np
import pandas as pd
import pytest

from forecaster.forecasting.predicting.forecast import times_ahead
from forecaster.series import infer_frequency
from forecaster.series.calendar.frequency import times_after_rows

DAYS = pd.bdate_range("2020-01-01", "2022-06-30")
REGULAR = {
    "days": pd.date_range("2023-01-01", periods=100),
    "weekdays": DAYS,
    "weeks": pd.date_range("2020-01-05", periods=90, freq="W-SUN"),
    "months": pd.date_range("2015-01-31", periods=60, freq="ME"),
    "hours": pd.date_range("2023-01-01", periods=400, freq="h"),
}


@pytest.mark.parametrize("name", REGULAR)
def test_without_gaps_they_are_the_next_rows(name):
    times = REGULAR[name].to_numpy("datetime64[ns]")
    ahead = times_after_rows(times, 3)
    assert ahead.shape == (len(times), 3)
    rows = np.lib.stride_tricks.sliding_window_view(times[1:], 3)
    late = 12  # the first few rows tell little
    np.testing.assert_array_equal(ahead[late:-3], rows[late:])
    np.testing.assert_array_equal(ahead[-1], infer_frequency(times).after(times[-1], 3))


@pytest.mark.parametrize("rows", range(1, 9))
@pytest.mark.parametrize("usual", ["D", "B", "W-SUN", "ME"])
def test_after_few_rows_come_the_times_of_the_panel(usual, rows):
    """As those that are forecast; weekdays before a weekend do not tell whether it has rows."""
    whole = pd.date_range("2024-01-01", periods=90, freq=usual).to_numpy()
    panel = infer_frequency(whole)
    some = whole[:rows]
    if usual == "D":  # a series of weekdays among series of every day
        some = pd.bdate_range("2024-01-01", periods=rows).to_numpy()
    ahead = times_after_rows(some, 6, panel)[-1]
    np.testing.assert_array_equal(ahead, times_ahead(some, 6, panel))
