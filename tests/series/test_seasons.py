"""Seasons: of dates by their frequency, of whole numbers by the values."""

import numpy as np
import pandas as pd
import pytest

from forecaster.series.calendar.frequency import infer_frequency
from forecaster.series.calendar.seasons import (
    default_season,
    find_seasons,
    seasons_of,
)


@pytest.mark.parametrize(
    ("frequency", "expected"),
    [("h", (24, 168)), ("30min", (48, 336)), ("D", (7,)), ("B", (5,)), ("W-SUN", (52,)),
     ("MS", (12,)), ("ME", (12,)), ("QS", (4,)), ("YS", ())],
)  # fmt: skip
def test_dates_have_the_usual_seasons_of_their_frequency(frequency, expected):
    # An early start, as 400 years must end before 2262.
    times = pd.date_range("1820-01-05", periods=400, freq=frequency).to_numpy("datetime64[ns]")
    assert seasons_of(times, np.arange(400.0)) == expected


@pytest.mark.parametrize(
    ("frequency", "expected"),
    [("h", 24), ("15min", 96), ("D", 7), ("B", 5), ("W-SUN", 1), ("MS", 12), ("ME", 12), ("QS", 4),
     ("QE", 4), ("YS", 1)],
)  # fmt: skip
@pytest.mark.parametrize("gap", [False, True])
def test_what_others_are_compared_with_has_the_shortest_of_them(frequency, expected, gap):
    times = pd.date_range("1970-01-05", periods=60, freq=frequency).to_numpy("datetime64[ns]")
    assert default_season(infer_frequency(np.delete(times, 20) if gap else times)) == expected


@pytest.mark.parametrize("seconds", [1, 60, 300, 7200])
def test_other_times_of_day_are_compared_with_nothing_before(seconds):
    """A day of minutes is longer than most series, and may have no nights."""
    times = pd.date_range("2024-01-01", periods=300, freq=f"{seconds}s").to_numpy("datetime64[ns]")
    assert default_season(infer_frequency(times)) == 1


@pytest.mark.parametrize("begin", ["2026-03-02 22:00", "2026-03-06 17:00"])
@pytest.mark.parametrize("rows", [26, 40, 75])
@pytest.mark.parametrize(("minutes", "day"), [(60, 24), (30, 48)])
def test_hours_without_a_gap_have_whole_days_and_weeks(begin, rows, minutes, day):
    """Whatever the hour of the first row: its day, and the last one, are not whole days."""
    times = np.datetime64(begin, "s") + np.arange(rows) * np.timedelta64(60 * minutes, "s")
    assert seasons_of(times, np.arange(float(rows))) == (day, 7 * day)


def test_a_season_is_found_in_numbers_and_none_in_a_random_walk():
    random = np.random.default_rng(0)
    time = np.arange(1000)
    daily = 5 * np.sin(time * 2 * np.pi / 24) + random.normal(size=1000)
    assert find_seasons(daily)[0] == 24 and 168 in find_seasons(daily)
    assert find_seasons(10 * (time % 7 == 3) + random.normal(size=1000)) == (7,)
    walks = [find_seasons(np.cumsum(random.normal(size=300))) for _ in range(100)]
    assert sum(map(bool, walks)) <= 10
