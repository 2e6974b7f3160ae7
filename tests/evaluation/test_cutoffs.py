"""How many cutoffs an evaluation forecasts from, and what to ask for where rows are too few."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import NoSeries
from forecaster.evaluation.cutoffs import usual_windows
from forecaster.series import Panel
from tests.messages import refuses


def months(rows):
    frame = pd.DataFrame({"ds": pd.date_range("2000-01-01", periods=rows, freq="MS")})
    frame["y"] = np.random.default_rng(0).normal(size=rows).cumsum() + 100
    return Panel.from_frame(frame.assign(unique_id="a"))


@pytest.mark.parametrize(
    ("rows", "horizon", "step", "expected"),
    [(1200, 5, 1, 250), (300, 12, 1, 117), (300, 12, 12, 10), (60, 5, 1, 11), (60, 24, 1, 1)],
)
def test_short_series_are_forecast_from_fewer_cutoffs(rows, horizon, step, expected):
    # With a transform that is asked for, all series need rows for networks.
    config = fc.Config(horizon=horizon, transform="log_return")
    assert usual_windows(np.array([rows]), rows, "close", config, step) == expected
    asked = dataclasses.replace(config, transform="difference")
    assert usual_windows(np.array([rows]), rows, "y", asked, step) == expected
    left = rows - horizon - (expected - 1) * step
    assert left >= config.rows_to_fit or expected == 1


@pytest.mark.parametrize(
    ("rows", "horizon", "step", "expected"),
    [
        ([20] * 4, 6, 1, 3),  # years: forecast from 12, 13 and 14 rows
        ([20] * 4, 6, 6, 1),
        ([15] * 4, 6, 1, 1),  # the last cutoff has 9 rows, which has to do
        ([51] * 4, 12, 1, 14),
        ([3, 9, 48, 48, 60], 12, 1, 13),  # the shortest have no cutoff, and no say
        ([20, 48, 48, 48, 48], 8, 1, 9),  # the first cutoff leaves 4 rows of the shortest
        ([20] + [48] * 199, 8, 1, 16),  # one in two hundred does not count
        ([2], 12, 1, 1),
        ([1200] * 4, 5, 1, 250),
        ([700, 960, 960], 48, 1, 39),  # networks need 576 rows, at the first cutoff, too
        ([623, 960, 960], 48, 1, 169),
    ],
)
def test_series_that_may_be_short_keep_rows_at_every_cutoff(rows, horizon, step, expected):
    config, panel_times = fc.Config(horizon=horizon), max(rows) + 7
    assert usual_windows(np.array(rows), panel_times, "y", config, step) == expected


@pytest.mark.slow
def test_a_series_is_not_forecast_from_its_first_rows_where_it_has_later_cutoffs():
    lengths = {"long": 40, "short": 7, "shortest": 5}
    parts = [
        pd.DataFrame(
            {"unique_id": name, "ds": pd.RangeIndex(40 - rows, 40), "y": 1.0 + np.arange(rows)}
        )
        for name, rows in lengths.items()
    ]
    panel = fc.load_panel(pd.concat(parts))
    frame = fc.cross_validation(panel, fc.Config(horizon=2), n_windows=3, ends="common")
    known = frame["cutoff"] - 40 + frame["unique_id"].map(lengths) + 1
    assert known.groupby(frame["unique_id"]).min().to_dict() == {
        "long": 36, "short": 4, "shortest": 2,
    }  # fmt: skip
    assert known.groupby(frame["unique_id"]).max().to_dict() == {
        "long": 38, "short": 5, "shortest": 3,
    }  # fmt: skip


def test_where_the_first_cutoff_leaves_too_few_rows_fewer_are_advised():
    config = fc.Config(horizon=12, epochs=1, members=1, hidden=2, transform="difference")
    windows = 120 - 12 - config.rows_to_fit + 1
    with refuses(NoSeries):
        fc.cross_validation(months(120), config, n_windows=windows + 1)
