"""How far apart rows are, and which spacings count as the same."""

import numpy as np
import pandas as pd
import pytest

from forecaster.series import spaced_otherwise, spacing_of

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
