"""Series aligned at their ends, and given their own times again."""

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import UsageError
from forecaster.series import OwnEnds, aligned_if
from tests.messages import refuses


def counted(**lengths: int) -> pd.DataFrame:
    parts = [
        pd.DataFrame({"unique_id": name, "ds": np.arange(1, rows + 1), "y": np.arange(rows) + 0.5})
        for name, rows in lengths.items()
    ]
    return pd.concat(parts, ignore_index=True)


@pytest.fixture
def panel() -> fc.Panel:
    return fc.Panel.from_frame(counted(long=9, short=6).drop(index=12))


def test_all_end_at_the_last_time_and_keep_their_gaps(panel):
    aligned, ends = OwnEnds.align(panel)
    assert aligned.mask[:, -1].all()
    assert ends.shifts.tolist() == [0, 3]
    np.testing.assert_array_equal(aligned.channel("y")[1, 3:], [0.5, 1.5, 2.5, np.nan, 4.5, 5.5])


def test_by_default_only_times_that_count_rows_are_aligned(panel):
    assert aligned_if("auto", panel)[1] is not None
    assert aligned_if("common", panel)[1] is None
    elsewhere = counted(long=9, short=6).assign(ds=lambda f: f["ds"] + (f["unique_id"] == "short"))
    assert aligned_if("auto", fc.Panel.from_frame(elsewhere))[1] is None
    days = pd.date_range("2024-01-01", periods=10)
    dated = counted(long=9, short=6).assign(ds=lambda f: days[f["ds"]])
    assert aligned_if("auto", fc.Panel.from_frame(dated))[1] is None
    assert aligned_if("own", fc.Panel.from_frame(dated))[1] is not None


def test_prices_and_other_words_are_refused(panel):
    prices = panel.to_frame().rename(columns={"y": "close"})
    with refuses(UsageError):
        aligned_if("own", fc.Panel.from_frame(prices))
    with refuses(UsageError):
        aligned_if("mine", panel)
