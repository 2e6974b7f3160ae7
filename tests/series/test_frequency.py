"""The frequency is found from all rows: which times come next, and what is said of odd rows."""

import numpy as np
import pandas as pd
import pytest

from forecaster.series import (
    Frequency,
    default_season,
    infer_frequency,
    next_times,
    regular_sessions,
    seasons_of,
)
from forecaster.series.calendar.inferring import times_after_rows
from forecaster.series.findings import of_dates

RANDOM = np.random.default_rng(0)
MONTHS = ["MS", "ME", "BMS", "BME", "WOM-1MON", "WOM-3FRI", "LWOM-SAT", "LWOM-FRI"]
LAST = {  # aliases that pandas cannot read before version 3
    "LWOM-SAT": pd.offsets.LastWeekOfMonth(weekday=5),
    "LWOM-FRI": pd.offsets.LastWeekOfMonth(weekday=4),
}


def dated(convention: str, count: int, start: str = "2021-01-01") -> pd.DatetimeIndex:
    """Return dates from ``start`` on, by a pandas alias."""
    return pd.date_range(start, periods=count, freq=LAST.get(convention, convention))


def stamps(*texts: str) -> np.ndarray:
    return np.array(texts, "datetime64[ns]")


def and_last(freq: str, before: str, last: str) -> pd.DatetimeIndex:
    """Return regular dates that end before a date, and another one."""
    return pd.DatetimeIndex([*pd.date_range(end=before, periods=40, freq=freq), last])


def apart(days: list[int]) -> pd.DatetimeIndex:
    return pd.Timestamp("2021-01-04") + pd.to_timedelta(np.cumsum(np.resize(days, 40)), unit="D")


def clocks(last: str, *times: str) -> pd.DatetimeIndex:
    days = pd.bdate_range(end=last, periods=55)
    return pd.DatetimeIndex([day + pd.Timedelta(clock) for day in days for clock in times])


def of_month(day: int, months: int) -> pd.DatetimeIndex:
    first = pd.Timestamp(2023, 7 + (day == 29), day)
    return pd.DatetimeIndex([first + pd.DateOffset(months=k) for k in range(months)])


HOURS = pd.date_range("2026-08-01", periods=720, freq="h")
PURCHASES = pd.Timestamp("2026-08-01") + pd.to_timedelta(
    np.cumsum(RANDOM.exponential(1800, 300)).round(), unit="s"
)
NOON = "10:30:00", "11:30:00", "14:00:00", "15:00:00"
SATURDAY = pd.to_datetime(["2024-01-20"])
NYSE = regular_sessions("2014-01-02", "2024-06-28")
RELEASED = pd.to_timedelta(np.resize([-3, 2, 0, -1, 3, -2, 1], 60), unit="D")
ODD_MONTHS = pd.DatetimeIndex(  # named by their first and last days in turn
    [m.start_time if n % 2 else m.end_time.normalize()
     for n, m in enumerate(pd.period_range("2023-01", periods=24, freq="M"))]
)  # fmt: skip

# What is said of the rows, and the next times: dates or times of day, or how far they are apart.
CASES = {
    "days": (HOURS[::24], "", ["2026-08-31", "2026-09-01"]),
    "sessions": (NYSE[-500:-1], "", ["2024-06-28", "2024-07-01"]),
    "a special Saturday": (NYSE.union(SATURDAY), "", ["2024-07-01", "2024-07-02", "2024-07-03",
                                                      "2024-07-05"]),
    "every 30 days": (apart([30]), "", ["2024-05-18", "2024-06-17"]),
    "every 90 days": (apart([90]), "", ["2031-02-11", "2031-05-12"]),
    "the 28th": (of_month(28, 8), "", ["2024-03-28", "2024-04-28"]),
    "the 30th": (of_month(30, 8), "", ["2024-03-30", "2024-04-30"]),
    "the 31st": (of_month(31, 8), "", ["2024-03-31", "2024-04-30"]),
    "the 29th": (of_month(29, 7), "", ["2024-03-29", "2024-04-29"]),
    "days of release": (pd.date_range("2015-01-31", periods=60, freq="ME") + RELEASED, "irregular",
                        ["2020-01-30", "2020-02-29"]),
    "an eighth of the months missing": (
        (pd.date_range("2015-01-01", periods=60, freq="MS") + pd.Timedelta("14D") + RELEASED)[
            np.arange(60) % 8 != 3], "", ["2019-12-15", "2020-01-15"]),
    "first and last days": (ODD_MONTHS, "", ["2025-01-01", "2025-02-01"]),
    "half seconds": (pd.date_range("2026-11-01", periods=60, freq="500ms"), "", "500ms"),
    "59.99 s": (pd.date_range("2026-11-01", periods=60, freq="59990ms"), "", "59990ms"),
    "605 s": (pd.date_range("2026-11-01", periods=60, freq="605s"), "", "605s"),
    "seconds late": (HOURS + pd.to_timedelta(RANDOM.integers(0, 9, 720), unit="s"), "", "1h"),
    "a break at noon": (clocks("2026-11-20", *NOON), "",
                        ["2026-11-23 10:30", "2026-11-23 11:30", "2026-11-23 14:00"]),
    "twice a day": (clocks("2026-11-20", "9h", "17h"), "",
                    ["2026-11-23 09:00", "2026-11-23 17:00"]),
    # The latest row is of a period that runs, or at another time than the others.
    "Mondays": (and_last("W-MON", "2026-11-23", "2026-11-27"), "odd", ["2026-11-30"]),
    "quarter ends": (and_last("QE", "2026-09-30", "2026-11-17"), "odd", ["2026-12-31"]),
    "first days": (and_last("MS", "2026-11-01", "2026-11-17"), "odd", ["2026-12-01"]),
    "year ends": (and_last("YE", "2026-12-31", "2027-06-30"), "odd", ["2027-12-31"]),
    "fortnights": (and_last("14D", "2026-11-09", "2026-11-20"), "odd",
                   ["2026-11-23", "2026-12-07"]),
    "hours": (and_last("h", "2026-11-09 14:00", "2026-11-09 14:23"), "odd", ["2026-11-09 15:00"]),
    "today": (and_last("B", "2026-11-26", "2026-11-27 17:23"), "odd", ["2026-11-30"]),
    # A few days before its period ends it is that of its period.
    "early": (and_last("ME", "2026-10-31", "2026-11-28"), "", ["2026-12-31"]),
    # No rule: the usual distance.
    "auctions": (apart([14, 7, 15, 14, 21, 21, 14, 14, 21, 13]), "irregular", "14D"),
    "meetings": (apart([49, 42, 42, 42, 56, 42, 42, 49]), "irregular", "42D"),
    "4, 4, 5 weeks": (apart([28, 28, 35]), "irregular", ["2024-05-29", "2024-06-29"]),
    "about ten days": (apart([10, 10, 11, 10, 10, 8]), "irregular", "10D"),
    "orders": (HOURS[np.sort(RANDOM.choice(720, 200, replace=False))], "irregular", None),
    "days with sales": (pd.date_range("2024-01-01", periods=720)[
        np.sort(RANDOM.choice(720, 200, replace=False))], "irregular", None),
    "purchases": (PURCHASES, "irregular", None),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_series_go_on_by_the_rule_of_nearly_all_rows_or_are_said_to_have_none(name):
    index, said, following = CASES[name]
    times = index.to_numpy("datetime64[ns]")
    found = of_dates(times, Frequency("B"), of_values=False)
    assert [*found] == [said] * bool(said)
    later = next_times(times, 4)
    np.testing.assert_array_equal(times_after_rows(times, 4)[-1], later)
    if isinstance(following, list):
        assert list(later[: len(following)]) == [pd.Timestamp(one) for one in following]
        assert f"; next {following[0]}" in found.get("odd", f"; next {following[0]}")
    elif following:
        assert (np.diff([times[-1], *later]) == pd.Timedelta(following)).all()


@pytest.mark.parametrize(
    ("conventions", "seasons"),
    [
        (MONTHS, (12,)),
        (["QS", "QE", "BQS", "BQE", "QS-FEB", "BQE-NOV", "3WOM-3FRI", "13W-SUN", "91D"], (4,)),
        (["2MS", "2ME", "2BME"], (6,)),
        (["4ME"], (3,)),
        (["6MS", "2QE", "26W-SAT"], (2,)),
        (["4W-FRI", "28D"], (13,)),
        (["2W-TUE"], (26,)),
        (["SMS", "SME", "SME-14"], (24,)),
        (["YS", "YE-JUN", "BYE", "2YE", "52W-SUN"], ()),
        (["W-SUN"], (52,)),
        (["D"], (7,)),
        (["B"], (5,)),
        (["h"], (24, 168)),
        (["30min"], (48, 336)),
        (["15min"], (96, 672)),
        (["5min"], (288, 2016)),
    ],
)
@pytest.mark.parametrize("gap", [False, True])
def test_the_season_is_a_year_a_week_or_a_day_whatever_the_convention(conventions, seasons, gap):
    """Others are compared with the shortest; a day of minutes is longer than most series."""
    for convention in conventions:
        times = dated(convention, 60, "1970-01-05").to_numpy("datetime64[ns]")
        times = np.delete(times, 20) if gap else times
        frequency = infer_frequency(times)
        assert seasons_of(frequency, np.arange(float(len(times)))) == seasons, convention
        shortest = 1 if convention in ("W-SUN", "5min") else min(seasons, default=1)
        assert default_season(frequency) == shortest, convention


@pytest.mark.parametrize(
    "convention", [*MONTHS, "BQS", "BQE", "3WOM-3FRI", "13W-SUN", "4W-FRI", "2W-TUE", "SMS", "SME"]
)
@pytest.mark.parametrize("missing", [[], [7], [7, 8, 20]])
@pytest.mark.parametrize("count", [36, 37, 38])
def test_dates_go_on_by_their_convention_despite_missing_rows(convention, missing, count):
    for clock in (0, 17):
        times = dated(convention, count + 15) + pd.Timedelta(hours=clock)
        rows = times[:count].delete(missing).to_numpy("datetime64[ns]")
        assert list(next_times(rows, 15)) == list(times[count:])


@pytest.mark.parametrize(
    ("last", "now", "passed"),
    [
        ("2024-03-28", "2024-03-31", 0),
        ("2024-03-28", "2024-04-30", 1),
        ("2024-04-30", "2024-03", 0),
    ],
)
def test_the_last_sessions_of_months_lead_to_last_weekdays(last, now, passed):
    """The session of 28 March 2024 was followed by Good Friday, the month's last weekday."""
    sessions = regular_sessions("2020-01-01", "2024-03-31").to_series()
    times = sessions.groupby(sessions.dt.to_period("M")).last().to_numpy("datetime64[ns]")
    assert list(next_times(times, 2)) == [*pd.to_datetime(["2024-04-30", "2024-05-31"])]
    assert infer_frequency(times).elapsed(last, now) == passed


@pytest.mark.parametrize(
    ("times", "usual", "expected"),
    [
        (stamps("2024-07-05"), "D", "D"),
        (stamps("2024-07-05"), "3600s", "3600s"),
        (stamps("2024-07-05"), "W-SUN", "W-FRI"),
        (stamps("2024-07-05"), Frequency("step", 7), "B"),
        (np.array([5]), Frequency("step", 7), Frequency("step", 7)),
        (np.array([5, 6]), Frequency("step", 7), Frequency("step", 1)),
        # Only after a weekend it shows whether weekends have rows.
        (pd.bdate_range("2024-07-01", periods=5).to_numpy(), "D", "D"),
        (pd.bdate_range("2024-07-01", periods=6).to_numpy(), "D", "B"),
        (stamps("2024-07-01", "2024-07-02"), "W-MON", "B"),
        (stamps("2024-07-01", "2024-07-08"), "D", "W-MON"),
    ],
)
def test_rows_too_few_to_tell_take_the_frequency_of_the_panel(times, usual, expected):
    usual, expected = (Frequency(f) if isinstance(f, str) else f for f in (usual, expected))
    later = next_times(times, 9, usual)
    np.testing.assert_array_equal(later, expected.after(times[-1], 9))
    np.testing.assert_array_equal(times_after_rows(times, 9, usual)[-1], later)


@pytest.mark.parametrize("freq", ["D", "B", "W-SUN", "ME", "h"])
def test_the_times_after_each_row_are_the_next_rows(freq):
    times = dated(freq, 90).to_numpy("datetime64[ns]")
    ahead, late = times_after_rows(times, 3), 12  # the first few rows tell little
    rows = np.lib.stride_tricks.sliding_window_view(times[1:], 3)
    np.testing.assert_array_equal(ahead[late:-3], rows[late:])
