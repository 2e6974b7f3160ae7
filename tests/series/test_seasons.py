"""Seasons: of dates by their frequency, of whole numbers by the values."""

import numpy as np
import pandas as pd
import pytest

from forecaster.series.calendar.inferring import infer_frequency
from forecaster.series.calendar.seasons import default_season, find_seasons, seasons_of


@pytest.mark.parametrize(
    ("frequency", "seasons", "shortest"),
    [("h", (24, 168), 24), ("30min", (48, 336), 48), ("15min", (96, 672), 96), ("D", (7,), 7),
     ("B", (5,), 5), ("W-SUN", (52,), 1), ("MS", (12,), 12), ("QE", (4,), 4), ("YS", (), 1),
     ("5min", (288, 2016), 1)],
)  # fmt: skip
@pytest.mark.parametrize("gap", [False, True])
def test_dates_have_the_usual_seasons_of_their_frequency(frequency, seasons, shortest, gap):
    """Others are compared with the shortest; a day of minutes is longer than most series."""
    times = pd.date_range("1970-01-05", periods=60, freq=frequency).to_numpy("datetime64[ns]")
    times = np.delete(times, 20) if gap else times
    assert seasons_of(times, np.arange(float(len(times)))) == seasons
    assert default_season(infer_frequency(times)) == shortest


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
