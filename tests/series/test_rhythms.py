"""Steps are counted without gaps, and each knows what is special in it."""

import numpy as np
import pandas as pd
import pytest

from forecaster.series.calendar.rhythms import RHYTHMS, rhythm_of

FREQUENCIES = {
    "h": "h", "D": "D", "B": "B", "W-WED": "W-WED", "W-SUN": "W-SUN", "MS": "M", "ME": "M",
    "BME": "M", "QS": "Q", "QE": "Q",
}  # fmt: skip


@pytest.mark.parametrize("freq", FREQUENCIES)
def test_a_rhythm_counts_its_rows_without_gaps(freq):
    times = pd.date_range("1965-03-07", periods=700, freq=freq).to_numpy()
    name = rhythm_of(times)
    assert name == FREQUENCIES[freq]
    steps = RHYTHMS[name].numbers(times)
    np.testing.assert_array_equal(np.diff(steps), 1)
    special = RHYTHMS[name].special(int(steps[0]), int(steps[-1]))
    assert special.shape == (700, RHYTHMS[name].columns)
    cut = RHYTHMS[name].special(int(steps[123]), int(steps[-50]))
    np.testing.assert_array_equal(cut, special[123:-49])


@pytest.mark.parametrize(
    "times",
    [
        np.arange(60),
        pd.date_range("2024-01-01", periods=60, freq="YS").to_numpy(),
        pd.date_range("2024-01-01", periods=60, freq="QS-FEB").to_numpy(),
        pd.date_range("2024-01-01", periods=60, freq="QE-JAN").to_numpy(),
        pd.date_range("2024-01-01", periods=60, freq="15min").to_numpy(),
        pd.date_range("2024-01-01", periods=60, freq="2MS").to_numpy(),
        pd.date_range("2024-01-01", periods=60, freq="2W").to_numpy(),
        pd.date_range("2024-01-01", periods=1).to_numpy(),
    ],
    ids=[
        "numbers",
        "years",
        "fiscal quarters",
        "their ends",
        "15 minutes",
        "2 months",
        "2 weeks",
        "one row",
    ],
)
def test_other_series_have_no_rhythm(times):
    assert rhythm_of(times) == ""


@pytest.mark.parametrize("freq", ["QS", "QE"])
def test_a_quarter_that_is_missing_leaves_the_rhythm(freq):
    times = np.delete(pd.date_range("2004-01-01", periods=60, freq=freq).to_numpy(), 30)
    assert rhythm_of(times) == "Q"
    assert np.diff(RHYTHMS["Q"].numbers(times)).tolist() == [1] * 29 + [2] + [1] * 28


def test_a_week_that_is_named_by_the_day_after_a_holiday_is_the_same():
    mondays = pd.date_range("2020-01-06", periods=200, freq="W-MON")
    moved = mondays + pd.to_timedelta(np.where(mondays.day > 24, 1, 0), unit="D")
    weeks = RHYTHMS["W-MON"].numbers(mondays.to_numpy())
    np.testing.assert_array_equal(RHYTHMS["W-MON"].numbers(moved.to_numpy()), weeks)
    np.testing.assert_array_equal(np.diff(weeks), 1)


def months(first: str, last: str) -> np.ndarray:
    a, b = RHYTHMS["M"].numbers(np.array([first, last], "datetime64[D]"))
    return RHYTHMS["M"].special(int(a), int(b))


def test_a_month_has_its_trading_days():
    (march,) = months("2024-03-15", "2024-03-15")  # five Fridays, Saturdays and Sundays
    usual = 30.436875 / 7
    assert march[:7] == pytest.approx([4 - usual] * 4 + [5 - usual] * 3)
    quarter = RHYTHMS["Q"].numbers(np.array("2024-02-29", "datetime64[D]"))
    (row,) = RHYTHMS["Q"].special(int(quarter), int(quarter))
    assert row == pytest.approx(months("2024-01-01", "2024-03-31").sum(0))


def test_easter_is_shared_by_the_months_it_falls_into():
    march, april, may = months("2024-03-01", "2024-05-01")  # Easter Sunday is the 31st of March
    assert march[7:9] == pytest.approx([1, 3 / 4])  # Easter Monday is in April
    assert april[7:9] == pytest.approx([0, 1 / 4])
    assert may[9] == 1  # Ascension to Whit Monday, the 20th of May
    assert months("2019-03-01", "2019-04-01")[:, 7].tolist() == [0, 1]


@pytest.mark.parametrize(("weekday", "begin"), [("SUN", "2024-12-23"), ("MON", "2024-12-24")])
def test_a_week_knows_its_holidays_and_those_beside_it(weekday, begin):
    rhythm = RHYTHMS[f"W-{weekday}"]
    first = pd.Timestamp(begin)
    days = pd.date_range(first, periods=7).to_numpy()
    step = rhythm.numbers(days[-1:])[0]  # the week ends on its weekday
    week = rhythm.special(int(step), int(step))[0, : rhythm.sizes["holidays"]].reshape(3, -1)
    after, within, before = week  # of the following week, of this one, of the week before
    christmas, new_year = 5, 6
    assert within[christmas] == 1
    assert within[new_year] == (days == np.datetime64("2025-01-01")).sum()
    assert after[new_year] == 1
    assert not before.any()


def test_hours_of_a_holiday_on_a_weekend_are_like_others():
    rhythm = RHYTHMS["h"]
    size = rhythm.sizes["holidays"]
    for day, there in [("2024-12-25", True), ("2022-12-25", False)]:  # a Wednesday, a Sunday
        hour = int(rhythm.numbers(np.array(f"{day}T10", "datetime64[h]")))
        assert rhythm.special(hour, hour)[0, :size].any() == there
