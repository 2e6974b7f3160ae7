"""Missing rows are filled, so that each season keeps its length."""

import numpy as np
import pytest

from forecaster.series.calendar.spacing import without_gaps


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
