"""Series whose rows come on some days of the week, or at some hours, as where a shop is closed."""

import numpy as np
import pandas as pd
import pytest

from forecaster.series import default_season, infer_frequency
from forecaster.series.calendar.frequency import open_numbers
from forecaster.series.calendar.inferring import times_after_rows
from forecaster.series.calendar.spacing import regular_rows, seasons_of, without_gaps

DAYS = pd.date_range("2022-01-03", periods=200)  # from a Monday on
HOURS = pd.date_range("2022-01-03", periods=24 * 70, freq="h")
OF_WEEK = DAYS.day_of_week
SOME = {
    "six days": DAYS[OF_WEEK != 6],
    "Tuesday to Sunday": DAYS[OF_WEEK != 0],
    "three days": DAYS[np.isin(OF_WEEK, [0, 2, 4])],
    "six days and two Sundays": DAYS[(OF_WEEK != 6) | np.isin(np.arange(200), [181, 188])],
    "six days without holidays": DAYS[(OF_WEEK != 6) & ~np.isin(np.arange(200), [100, 150, 151])],
    "opening hours": HOURS[(HOURS.hour >= 9) & (HOURS.hour < 20) & (HOURS.day_of_week != 6)],
}


@pytest.mark.parametrize("name", list(SOME))
def test_times_ahead_are_those_at_which_rows_come(name):
    times = SOME[name].to_numpy("datetime64[ns]")
    usual = np.unique(SOME["six days" if name.startswith("six") else name].strftime("%a %H"))
    later = infer_frequency(times).after(times[-1], 140)
    assert (np.diff(later) > np.timedelta64(0, "ns")).all() and later[0] > times[-1]
    assert set(pd.DatetimeIndex(later).strftime("%a %H")) == set(usual)
    np.testing.assert_array_equal(times_after_rows(times, 5)[-1], later[:5])


@pytest.mark.parametrize(
    "times",
    [
        DAYS,
        HOURS,
        DAYS[np.random.default_rng(0).uniform(size=200) < 0.5],  # rows are missing at random
        DAYS[OF_WEEK != 6][:12],  # two weeks may be chance
        DAYS[::3],
    ],
)
def test_where_rows_come_on_all_days_no_slot_is_closed(times):
    assert infer_frequency(times.to_numpy("datetime64[ns]")).open == ()


def test_a_season_has_the_rows_of_a_week_and_of_a_day():
    for name, seasons in {"six days": (6,), "opening hours": (11, 66)}.items():
        frequency = infer_frequency(SOME[name].to_numpy("datetime64[ns]"))
        assert seasons_of(frequency, np.ones(99)) == seasons
        assert default_season(frequency) == seasons[0]


@pytest.mark.parametrize(("closed", "season"), [([6], 6), ([5, 6], 5), ([0], 6)])
def test_holidays_are_filled_so_that_each_weekday_keeps_its_place(closed, season):
    rows = np.flatnonzero(~np.isin(OF_WEEK, closed))
    there = np.delete(rows, [40, 41, 90])
    times = DAYS[there].to_numpy("datetime64[ns]")
    values = OF_WEEK[there].to_numpy(float)
    spacing, slots = regular_rows(times, infer_frequency(times))
    filled, steps = without_gaps(values, times, spacing, season, slots)
    np.testing.assert_array_equal(filled, OF_WEEK[rows].to_numpy(float))
    np.testing.assert_array_equal(rows[steps], there)
    assert (np.diff(open_numbers(DAYS.to_numpy(), 86_400, slots)) <= 1).all()
