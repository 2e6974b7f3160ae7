"""Steps are counted without gaps, and each knows what is special in it."""

import numpy as np
import pandas as pd
import pytest

from forecaster.series import infer_frequency
from forecaster.series.calendar.rhythms import GROUPS, RHYTHMS, day_numbers, rhythm_of

DAYS = pd.date_range("1995-01-01", "2030-12-31")
SPECIAL = RHYTHMS["D"].special(*day_numbers(DAYS[[0, -1]].to_numpy()).tolist())
CUTS = np.cumsum(list(GROUPS.values()))[:-1]
COLUMNS = dict(zip(GROUPS, np.split(SPECIAL, CUTS, axis=1), strict=True))


@pytest.mark.parametrize("freq", ["h", "D", "B", "MS", "ME", "BME", "W-WED", "W-SUN"])
def test_a_rhythm_counts_its_rows_without_gaps(freq):
    times = pd.date_range("1965-03-07", periods=700, freq=freq).to_numpy()
    rhythm = RHYTHMS[rhythm_of(infer_frequency(times))]
    assert rhythm.name == ("M" if "M" in freq else freq)
    steps = rhythm.numbers(times)
    np.testing.assert_array_equal(np.diff(steps), 1)
    special = rhythm.special(int(steps[0]), int(steps[-1]))
    assert special.shape == (700, rhythm.columns)
    cut = rhythm.special(int(steps[123]), int(steps[-50]))
    np.testing.assert_array_equal(cut, special[123:-49])


@pytest.mark.parametrize("freq", [None, "YS", "QS", "2MS", "15min", "2W"])
def test_other_series_have_no_rhythm(freq):
    dates = None if freq is None else pd.date_range("2024-01-01", periods=60, freq=freq)
    times = np.arange(60) if dates is None else dates.to_numpy()
    assert rhythm_of(infer_frequency(times)) == ""


def test_a_week_that_is_named_by_the_day_after_a_holiday_is_the_same():
    mondays = pd.date_range("2020-01-06", periods=200, freq="W-MON")
    moved = mondays + pd.to_timedelta(np.where(mondays.day > 24, 1, 0), unit="D")
    weeks = RHYTHMS["W-MON"].numbers(mondays.to_numpy())
    np.testing.assert_array_equal(RHYTHMS["W-MON"].numbers(moved.to_numpy()), weeks)


@pytest.mark.parametrize(("weekday", "begin"), [("SUN", "2024-12-23"), ("MON", "2024-12-24")])
def test_a_week_knows_its_holidays_and_those_beside_it(weekday, begin):
    rhythm = RHYTHMS[f"W-{weekday}"]
    days = pd.date_range(begin, periods=7).to_numpy()
    step = int(rhythm.numbers(days[-1:])[0])  # the week ends on its weekday
    week = rhythm.special(step, step)[0, : rhythm.sizes["holidays"]].reshape(3, -1)
    after, within, before = week  # of the following week, of this one, of the week before
    christmas, new_year = 5, 6
    assert within[christmas] == after[new_year] == 1
    assert within[new_year] == (days == np.datetime64("2025-01-01")).sum()
    assert not before.any()


def months(first: str, last: str) -> np.ndarray:
    a, b = RHYTHMS["M"].numbers(np.array([first, last], "datetime64[D]"))
    return RHYTHMS["M"].special(int(a), int(b))


def test_a_month_has_its_trading_days_and_its_share_of_easter():
    march, april, may = months("2024-03-01", "2024-05-01")  # Easter Sunday is the 31st of March
    usual = 30.436875 / 7
    assert march[:7] == pytest.approx([4 - usual] * 4 + [5 - usual] * 3)
    assert march[7:9] == pytest.approx([1, 3 / 4])  # Easter Monday is in April
    assert april[7:9] == pytest.approx([0, 1 / 4])
    assert may[9] == 1  # Ascension to Whit Monday, the 20th of May


def days_of(group: str, day: str) -> list[pd.DatetimeIndex]:
    """The days of each column that holds a certain day."""
    made = COLUMNS[group]
    return [DAYS[made[:, column] == 1] for column in np.flatnonzero(made[DAYS.get_loc(day)] == 1)]


@pytest.mark.parametrize(
    ("day", "same"),
    [
        ("2024-03-31", ["1998-04-12", "2019-04-21", "2025-04-20"]),  # Easter Sunday
        ("2024-05-19", ["1998-05-31", "2019-06-09", "2025-06-08"]),  # Pentecost
        ("2023-11-23", ["2020-11-26", "2024-11-28"]),  # Thanksgiving
        ("2024-05-27", ["2023-05-29", "2022-05-30"]),  # Memorial Day, the last Monday of May
        ("2024-01-15", ["2023-01-16"]),  # Martin Luther King Day
        ("2024-12-25", ["1996-12-25", "2030-12-25"]),
    ],
)
def test_a_holiday_is_found_in_other_years(day, same):
    (found,) = (days for days in days_of("holidays", day) if {*pd.to_datetime(same)} <= {*days})
    assert len(found) == 36  # once in each year
