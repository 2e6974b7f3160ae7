"""Dates by business days, weekdays of the month and weeks: their seasons, and the dates ahead."""

import numpy as np
import pandas as pd
import pytest

from forecaster.series.calendar.exchanges import regular_sessions
from forecaster.series.calendar.frequency import infer_frequency
from forecaster.series.calendar.seasons import default_season, seasons_of
from forecaster.series.findings.latest import of_dates

MONTHS = ["MS", "ME", "BMS", "BME", "WOM-1MON", "WOM-3FRI", "LWOM-SAT", "LWOM-FRI"]
LAST = {  # aliases that pandas cannot read before version 3
    "LWOM-SAT": pd.offsets.LastWeekOfMonth(weekday=5),
    "LWOM-FRI": pd.offsets.LastWeekOfMonth(weekday=4),
}


def dated(convention: str, count: int, start: str = "2021-01-01") -> pd.DatetimeIndex:
    """Return dates from ``start`` on, by a pandas alias."""
    return pd.date_range(start, periods=count, freq=LAST.get(convention, convention))


def ahead_of(times: pd.DatetimeIndex, count: int) -> list[pd.Timestamp]:
    stamps = times.to_numpy("datetime64[ns]")
    return list(pd.DatetimeIndex(infer_frequency(stamps).after(stamps[-1], count)))


@pytest.mark.parametrize(
    ("conventions", "season"),
    [
        (MONTHS, 12),
        (["QS", "QE", "BQS", "BQE", "QS-FEB", "BQE-NOV", "3WOM-3FRI", "13W-SUN", "91D"], 4),
        (["2MS", "2ME", "2BME"], 6),
        (["4ME"], 3),
        (["6MS", "2QE", "26W-SAT"], 2),
        (["4W-FRI", "28D"], 13),
        (["2W-TUE"], 26),
        (["SMS", "SME", "SME-14"], 24),
        (["YS", "YE-JUN", "BYE", "2YE", "52W-SUN"], 1),
    ],
)
def test_the_season_is_a_year_whatever_the_convention(conventions, season):
    for convention in conventions:
        times = dated(convention, 40, "1970-01-01").to_numpy("datetime64[ns]")
        expected = () if season == 1 else (season,)
        assert seasons_of(times, np.arange(40.0)) == expected, convention
        assert default_season(infer_frequency(times)) == season, convention


@pytest.mark.parametrize(
    "convention", [*MONTHS, "BQS", "BQE", "3WOM-3FRI", "13W-SUN", "4W-FRI", "2W-TUE", "SMS", "SME"]
)
@pytest.mark.parametrize("missing", [[], [7], [7, 8, 20]])
@pytest.mark.parametrize("count", [36, 37, 38])
def test_dates_go_on_by_their_convention_despite_missing_rows(convention, missing, count):
    times = dated(convention, count + 15)
    assert ahead_of(times[:count].delete(missing), 15) == list(times[count:])
    closing = times + pd.Timedelta(hours=17)
    assert ahead_of(closing[:count].delete(missing), 15) == list(closing[count:])


def test_the_last_sessions_of_months_lead_to_last_weekdays():
    """The session of 28 March 2024 was followed by Good Friday, the month's last weekday."""
    sessions = regular_sessions("2020-01-01", "2024-03-31").to_series()
    times = pd.DatetimeIndex(sessions.groupby(sessions.dt.to_period("M")).last())
    assert [str(day.date()) for day in ahead_of(times, 2)] == ["2024-04-30", "2024-05-31"]
    frequency = infer_frequency(times.to_numpy("datetime64[ns]"))
    assert frequency.elapsed("2024-03-28", "2024-03-31") == 0
    assert frequency.elapsed("2024-03-28", "2024-04-30") == 1


@pytest.mark.parametrize(
    ("dates", "odd", "following"),
    [
        # The latest row is of a period that runs, or dated by another day.
        (["W-MON", "2026-11-27"], "2026-11-27", "2026-11-30"),
        (["QE", "2026-11-17"], "2026-11-17", "2026-12-31"),
        (["MS", "2026-11-17"], "2026-11-17", "2026-12-01"),
        (["YE", "2027-06-30"], "2027-06-30", "2027-12-31"),
        # A few days before its period ends it is that of its period.
        (["ME", "2026-11-28"], None, "2026-12-31"),
    ],
)
def test_dates_go_on_by_the_rule_of_nearly_all_rows(dates, odd, following):
    freq, latest = dates
    last = pd.Timestamp(latest)
    before = pd.date_range(end=last - pd.Timedelta(days=5), periods=30, freq=freq)
    times = pd.DatetimeIndex([*before, last])
    assert ahead_of(times, 1) == [pd.Timestamp(following)]
    found = of_dates(times.to_numpy("datetime64[ns]"), of_values=False)
    assert found == ([] if odd is None else [("odd", f"{odd}; next {following}", 1)])


@pytest.mark.parametrize(
    ("gaps", "apart"),
    [
        ([14, 7, 15, 14, 21, 21, 14, 14, 21, 13], 14),  # auctions, mostly every other week
        ([49, 42, 42, 42, 56, 42, 42, 49], 42),  # eight meetings a year
        ([28, 28, 35], None),  # periods of 4, 4 and 5 weeks
        ([10, 10, 11, 10, 10, 8], 10),
    ],
)
def test_dates_without_a_rule_are_warned_of_and_go_on_at_their_usual_distance(gaps, apart):
    days = np.cumsum(np.resize(gaps, 40)).astype("timedelta64[D]")
    times = np.datetime64("2021-01-04", "ns") + days
    assert of_dates(times, of_values=False) == [("irregular", "", 1)]
    later = infer_frequency(times).after(times[-1], 2)
    assert apart is None or (np.diff(later) == np.timedelta64(apart, "D")).all()


@pytest.mark.parametrize("apart", ["500ms", "59990ms", "605s"])
def test_times_go_on_at_their_exact_distance(apart):
    times = pd.date_range("2026-11-01 10:00", periods=60, freq=apart)
    assert ahead_of(times[:-2], 2) == list(times[-2:])


def test_a_break_at_noon_is_kept():
    days = pd.bdate_range("2026-09-07", "2026-11-20")
    clocks = pd.to_timedelta(["10:30:00", "11:30:00", "14:00:00", "15:00:00"])
    times = pd.DatetimeIndex([day + clock for day in days for clock in clocks])
    assert ahead_of(times[:-2], 2) == list(times[-2:])
    assert default_season(infer_frequency(times.to_numpy("datetime64[ns]"))) == 4


@pytest.mark.parametrize("rows", [6, 7, 24])
def test_months_named_by_their_first_or_last_day_in_turn_are_months(rows):
    months = pd.period_range("2023-01", periods=rows + 3, freq="M")
    every = [m.start_time if n % 2 else m.end_time.normalize() for n, m in enumerate(months)]
    made = ahead_of(pd.DatetimeIndex(every)[:rows], 3)
    assert [day.to_period("M") for day in made] == list(months[rows:])
