"""Seasons: of dates by their frequency, of whole numbers by the values."""

import numpy as np
import pytest

from forecaster.series import infer_frequency
from forecaster.series.calendar.spacing import find_seasons, seasons_of


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
