"""Frequencies, and the times that come next."""

import numpy as np
import pandas as pd
import pytest

from forecaster.series.calendar.exchanges import regular_sessions
from forecaster.series.calendar.frequency import Frequency, frequency_beside, infer_frequency


def days(times):
    return [str(t)[:10] for t in times]


def test_thanksgiving_and_weekends_are_no_sessions():
    nyse = Frequency("B", nyse=True)
    assert days(nyse.after("2026-11-24", 3)) == ["2026-11-25", "2026-11-27", "2026-11-30"]
    assert nyse.elapsed("2026-11-24", "2026-11-30") == 3
    assert nyse.elapsed("2026-11-30", "2026-11-24") == 0


@pytest.mark.parametrize(
    ("times", "expected", "following"),
    [
        (regular_sessions("2023-01-01", "2024-06-28"), Frequency("B", nyse=True), "2024-07-01"),
        (pd.bdate_range("2023-01-02", "2024-06-28"), Frequency("B"), "2024-07-01"),
        (pd.date_range("2024-01-01", "2024-06-28"), Frequency("D"), "2024-06-29"),
        (pd.date_range("2024-01-01", periods=48, freq="h"), Frequency("3600s"), "2024-01-03"),
    ],
)
def test_frequencies_are_inferred_despite_gaps(times, expected, following):
    times = times.to_numpy("datetime64[ns]")
    gappy = np.delete(times, 3)
    assert infer_frequency(gappy) == expected
    assert days(expected.after(times[-1], 2))[0] == following


@pytest.mark.parametrize(
    ("first", "months", "following"),
    [
        ("2023-09-28", 6, ["2024-03-28", "2024-04-28"]),
        ("2023-10-30", 5, ["2024-03-30", "2024-04-30"]),
        ("2023-08-31", 7, ["2024-03-31", "2024-04-30"]),
        ("2023-08-29", 7, ["2024-03-29", "2024-04-29"]),
    ],
)
def test_a_day_of_the_month_is_kept_over_short_months(first, months, following):
    dates = [pd.Timestamp(first) + pd.DateOffset(months=k) for k in range(months)]
    times = np.array(dates, "datetime64[ns]")
    assert days(infer_frequency(times).after(times[-1], 2)) == following


def test_a_special_saturday_or_a_row_on_a_holiday_changes_no_calendar():
    sessions = regular_sessions("2014-01-02", "2024-06-28")
    for odd in ("2024-01-20", "2024-01-01"):
        times = sessions.union([pd.Timestamp(odd)]).to_numpy("datetime64[ns]")
        assert infer_frequency(times) == Frequency("B", nyse=True)
    six_days = pd.date_range("2024-01-01", "2024-06-28")
    six_days = six_days[six_days.day_of_week < 6].to_numpy("datetime64[ns]")
    assert infer_frequency(six_days) == Frequency("D", open=(0, 1, 2, 3, 4, 5))


def stamps(*texts):
    return np.array(texts, "datetime64[ns]")


@pytest.mark.parametrize(
    ("times", "usual", "expected"),
    [
        (stamps("2024-07-05"), Frequency("D"), Frequency("D")),
        (stamps("2024-07-05"), Frequency("B", nyse=True), Frequency("B", nyse=True)),
        (stamps("2024-07-05"), Frequency("3600s"), Frequency("3600s")),
        (stamps("2024-07-05"), Frequency("W-SUN"), Frequency("W-FRI")),
        (stamps("2024-07-05"), Frequency("step", 7), Frequency("B")),
        (np.array([5]), Frequency("step", 7), Frequency("step", 7)),
        (np.array([5, 6]), Frequency("step", 7), Frequency("step", 1)),
        # Only after a weekend it shows whether weekends have rows.
        (pd.bdate_range("2024-07-01", periods=5).to_numpy(), Frequency("D"), Frequency("D")),
        (pd.bdate_range("2024-07-01", periods=6).to_numpy(), Frequency("D"), Frequency("B")),
        (stamps("2024-07-01", "2024-07-02"), Frequency("W-MON"), Frequency("B")),
        (stamps("2024-07-01", "2024-07-08"), Frequency("D"), Frequency("W-MON")),
    ],
)
def test_rows_too_few_to_tell_take_the_frequency_of_the_panel(times, usual, expected):
    assert frequency_beside(times, usual) == expected
