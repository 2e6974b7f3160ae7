"""How far apart rows are, rows that are missing, and the steps in a season."""

import numpy as np
import pandas as pd
import pytest

from forecaster.series import infer_frequency, spaced_otherwise, spacing_of
from forecaster.series.calendar.spacing import find_seasons, seasons_of, without_gaps

DAY, HOUR = 86_400, 3_600


def times(**options):
    return pd.date_range("2024-01-01", **options).to_numpy()


KINDS = {
    "weekdays": (times(periods=300, freq="B"), DAY),
    "days": (times(periods=300, freq="D"), DAY),
    "weeks": (times(periods=300, freq="W-FRI"), 7 * DAY),
    "months": (times(periods=300, freq="MS"), 31 * DAY),
    "quarters": (times(periods=100, freq="QE"), 91 * DAY),
    "hours": (times(periods=300, freq="h"), HOUR),
    "half-hours": (times(periods=300, freq="30min"), HOUR / 2),
    "minutes": (times(periods=300, freq="5min"), 300),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", KINDS)
def test_only_other_frequencies_are_spaced_otherwise(kind, other):
    same = kind == other or {kind, other} == {"weekdays", "days"}
    assert (spaced_otherwise(KINDS[kind][0], KINDS[other][1]) is None) == same


@pytest.mark.parametrize("rows", [2, 3, 5, 20, 300])
def test_weekends_nights_and_holidays_do_not_matter(rows):
    days = times(periods=400, freq="B")
    days = days[~np.isin(np.arange(400) % 23, [3, 4])]  # holidays
    for last in range(350, 360):
        assert spaced_otherwise(days[last - rows : last], DAY) is None
    hours = times(periods=400 * 24, freq="h")
    hours = hours[pd.DatetimeIndex(hours).hour >= 17]
    assert spaced_otherwise(hours[-rows:], HOUR) is None
    twice = np.sort(np.concatenate([days, days + np.timedelta64(390, "m")]))
    assert spaced_otherwise(twice[: -1 - rows % 2], spacing_of(twice)) is None


def test_whole_numbers_have_gaps_too_and_both_are_named():
    assert spacing_of(np.arange(0, 50, 5)) == 5
    assert spaced_otherwise(np.arange(0, 50, 5), 5) is None
    assert spaced_otherwise(np.arange(0, 50, 5), 1) == (
        "its rows are 5 apart, those that the model was fitted on 1"
    )
    assert spaced_otherwise(KINDS["weeks"][0], DAY) == (
        "its rows are 7 days apart, those that the model was fitted on 1 day"
    )
    assert "5 minutes apart" in (spaced_otherwise(KINDS["minutes"][0], HOUR) or "")


def test_years_without_rows_are_not_filled_whole():
    days = np.concatenate([np.arange(20), 10_000 + np.arange(20)])
    filled, rows = without_gaps(np.arange(40.0), days, 1.0, 7)
    assert len(filled) < 50
    assert (days % 7 == rows % 7).all()


def test_gaps_are_filled_as_one_row_after_the_other_would_be():
    random = np.random.default_rng(0)
    for season in (2, 7, 52, 300):
        times = np.cumsum(random.choice([1, 1, 1, 2, 3, 30, 200], size=40))
        values = random.normal(size=40)
        filled, rows = without_gaps(values, times, 1.0, season)
        slowly = np.full(len(filled), np.nan)
        slowly[rows] = values
        for step in np.flatnonzero(np.isnan(slowly)):
            slowly[step] = slowly[step - season if step >= season else step - 1]
        np.testing.assert_array_equal(filled, slowly)


@pytest.mark.parametrize(
    ("season", "spacing"), [(86_400, 0.0001), (2**31 - 2, 1e-6), (7, 1e-308), (10**6, 0.001)]
)
def test_far_more_rows_than_there_are_are_not_filled(season, spacing):
    values = np.arange(80.0)
    filled, rows = without_gaps(values, np.arange(80), spacing, season)
    assert len(filled) <= 20_000
    np.testing.assert_array_equal(filled[rows], values)


@pytest.mark.parametrize("begin", ["2026-03-02 22:00", "2026-03-06 17:00"])
@pytest.mark.parametrize("rows", [26, 40, 75])
@pytest.mark.parametrize(("minutes", "day"), [(60, 24), (30, 48)])
def test_hours_without_a_gap_have_whole_days_and_weeks(begin, rows, minutes, day):
    """Whatever the hour of the first row: its day, and the last one, are not whole days."""
    times = np.datetime64(begin, "s") + np.arange(rows) * np.timedelta64(60 * minutes, "s")
    assert seasons_of(infer_frequency(times), np.arange(float(rows))) == (day, 7 * day)


def test_a_season_is_found_in_numbers_and_none_in_a_random_walk():
    random = np.random.default_rng(0)
    time = np.arange(1000)
    daily = 5 * np.sin(time * 2 * np.pi / 24) + random.normal(size=1000)
    assert find_seasons(daily)[0] == 24 and 168 in find_seasons(daily)
    assert find_seasons(10 * (time % 7 == 3) + random.normal(size=1000)) == (7,)
    walks = [find_seasons(np.cumsum(random.normal(size=300))) for _ in range(100)]
    assert sum(map(bool, walks)) <= 10
