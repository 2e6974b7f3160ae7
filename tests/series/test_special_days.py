"""Special days are where calendars have them."""

import numpy as np
import pandas as pd
import pytest

from forecaster.series.calendar.special_days import GROUPS, day_numbers, special_days

FIRST, LAST = (int(day_numbers(np.array(day))) for day in ("1995-01-01", "2030-12-31"))
DAYS = pd.date_range("1995-01-01", "2030-12-31")


def columns(group: str) -> np.ndarray:
    ends = np.cumsum(list(GROUPS.values()))
    begin = dict(zip(GROUPS, ends - list(GROUPS.values()), strict=True))[group]
    return special_days(FIRST, LAST)[:, begin : begin + GROUPS[group]]


def days_of(group: str, day: str) -> list[pd.DatetimeIndex]:
    """The days of each column that holds a certain day."""
    made = columns(group)
    return [
        pd.DatetimeIndex(DAYS[made[:, c] == 1])
        for c in np.flatnonzero(made[DAYS.get_loc(day)] == 1)
    ]


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
    found = [days for days in days_of("holidays", day) if set(pd.to_datetime(same)) <= set(days)]
    assert len(found) == 1
    assert len(found[0]) == 36  # once in each year


@pytest.mark.parametrize("day", ["2024-06-12", "2024-08-20", "2023-03-09"])
def test_an_ordinary_day_is_none(day):
    assert not days_of("holidays", day)
    assert not days_of("month", day)


def test_ends_of_months_are_counted_from_both_sides():
    last, *_ = days_of("month", "2024-02-29")
    assert set(pd.to_datetime(["2023-02-28", "2024-02-29", "2024-04-30", "2024-12-31"])) <= set(
        last
    )
    assert last.is_month_end.all()
    assert len(last) == 36 * 12
    assert (days_of("month", "2024-02-01")[0].day == 1).all()


def test_the_time_of_year_comes_back_every_year():
    waves = columns("year")
    a, b = (waves[DAYS.get_loc(day)] for day in ("1996-06-01", "2028-06-01"))
    np.testing.assert_allclose(a, b, atol=0.1)
    assert abs(waves.mean(0)).max() < 0.01


def test_days_do_not_hang_on_the_span():
    cut = special_days(FIRST + 400, LAST - 400)
    np.testing.assert_array_equal(cut, special_days(FIRST, LAST)[400:-400])


def test_without_weekends_months_end_on_weekdays():
    days = pd.bdate_range("2024-01-01", "2025-12-31")
    first, last = day_numbers(days[[0, -1]].to_numpy(), 5).tolist()
    assert last - first + 1 == len(days)
    made = special_days(first, last, 5)
    at = GROUPS["holidays"]
    begins, ends = (days[made[:, at + offset] == 1] for offset in (0, 5))
    assert {*pd.to_datetime(["2024-06-03", "2024-07-01", "2025-02-03"])} <= set(begins)
    assert {*pd.to_datetime(["2024-08-30", "2024-03-29", "2025-05-30"])} <= set(ends)
    assert len(begins) == len(ends) == 24
    expiry = days[made[:, at + GROUPS["month"] - 1] == 1]
    assert {*pd.to_datetime(["2024-03-15", "2024-06-21", "2025-09-19"])} <= set(expiry)
