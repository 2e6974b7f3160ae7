"""Seasons: of dates by their frequency, of whole numbers by the values."""

import numpy as np
import pandas as pd
import pytest

from forecaster.series.calendar.frequency import Frequency, infer_frequency
from forecaster.series.calendar.seasons import (
    default_season,
    find_seasons,
    seasons_of,
    usual_seasons,
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


def test_hours_of_an_exchange_are_compared_with_the_day_before():
    days = pd.bdate_range("2024-03-01", periods=20)
    bars = np.sort(np.concatenate([days + pd.Timedelta(minutes=570 + 60 * k) for k in range(7)]))
    frequency = infer_frequency(bars)
    assert frequency.hours is not None and default_season(frequency) == 7


def test_sessions_of_an_exchange_have_as_many_rows_a_day_as_they_have():
    days = pd.bdate_range("2024-01-01", periods=30)
    times = np.sort(np.concatenate([days + pd.Timedelta(minutes=570 + 5 * k) for k in range(78)]))
    assert seasons_of(times, np.arange(float(len(times)))) == (78, 390)


@pytest.mark.parametrize("begin", ["2026-03-02 22:00", "2026-03-06 17:00"])
@pytest.mark.parametrize("rows", [26, 40, 75])
@pytest.mark.parametrize(("minutes", "day"), [(60, 24), (30, 48)])
def test_hours_without_a_gap_have_whole_days_and_weeks(begin, rows, minutes, day):
    """Whatever the hour of the first row: its day, and the last one, are not whole days."""
    times = np.datetime64(begin, "s") + np.arange(rows) * np.timedelta64(60 * minutes, "s")
    assert seasons_of(times, np.arange(float(rows))) == (day, 7 * day)


def test_days_that_are_cut_do_not_count_beside_whole_ones():
    """Sessions of nine hours, of which the first and the last day have three."""
    days = np.arange("2026-03-02", "2026-03-06", dtype="datetime64[D]")
    hours = days[:, None] + np.arange(8, 17) * np.timedelta64(3600, "s")
    times = hours.ravel()[6:-6]
    assert usual_seasons(Frequency("3600s"), times) == (9, 45)


@pytest.mark.parametrize(
    ("minutes", "a_day", "day"),
    [(5, (78, 78, 42, 78), 78), (5, (78, 42, 78), 78), (5, (78,), 78), (60, (9, 9, 5, 9), 9),
     (60, (9, 5, 9), 9)],
)  # fmt: skip
def test_a_short_day_among_few_is_not_the_usual_one(minutes, a_day, day):
    opens = np.datetime64("2026-03-02T09:30", "s")
    step = np.timedelta64(60 * minutes, "s")
    times = np.concatenate(
        [opens + n * np.timedelta64(86_400, "s") + np.arange(k) * step for n, k in enumerate(a_day)]
    )
    assert usual_seasons(Frequency(f"{60 * minutes}s"), times)[0] == day


@pytest.mark.parametrize("missing", [1, 12])
def test_missing_hours_of_a_day_do_not_shorten_it(missing):
    times = np.datetime64("2026-03-02T00", "s") + np.arange(72) * np.timedelta64(3600, "s")
    times = np.delete(times, np.arange(30, 30 + missing))
    assert usual_seasons(Frequency("3600s"), times)[0] == 24


def test_no_times_have_the_seasons_of_a_whole_day():
    assert usual_seasons(Frequency("3600s"), np.array([], "datetime64[s]"))[0] == 24


def test_a_season_is_found_in_numbers_and_none_in_a_random_walk():
    random = np.random.default_rng(0)
    time = np.arange(1000)
    daily = 5 * np.sin(time * 2 * np.pi / 24) + random.normal(size=1000)
    assert find_seasons(daily)[0] == 24 and 168 in find_seasons(daily)
    assert find_seasons(10 * (time % 7 == 3) + random.normal(size=1000)) == (7,)
    walks = [find_seasons(np.cumsum(random.normal(size=300))) for _ in range(100)]
    assert sum(map(bool, walks)) <= 10


@pytest.mark.parametrize("values", [[], [1.0], [1.0] * 50, [0.0, 1.0] * 4])
def test_too_little_to_look_at_has_no_season(values):
    assert find_seasons(np.array(values)) == ()
