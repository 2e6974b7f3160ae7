"""How many cutoffs an evaluation forecasts from, and what to ask for where rows are too few."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.cli.skipped import advised
from forecaster.errors import DataError, NoSeries
from forecaster.evaluation.origins.cutoffs import advised_of_windows, usual_windows
from forecaster.series import Panel
from forecaster.skipped import Kind, Skipped


def months(rows):
    frame = pd.DataFrame({"ds": pd.date_range("2000-01-01", periods=rows, freq="MS")})
    frame["y"] = np.random.default_rng(0).normal(size=rows).cumsum() + 100
    return Panel.from_frame(frame.assign(unique_id="a"))


@pytest.mark.parametrize(
    ("rows", "horizon", "step", "expected"),
    [(1200, 5, 1, 250), (300, 12, 1, 117), (300, 12, 12, 10), (60, 5, 1, 11), (60, 24, 1, 1)],
)
def test_short_series_are_forecast_from_fewer_cutoffs(rows, horizon, step, expected):
    config = fc.Config(horizon=horizon)
    assert usual_windows(rows, config, step) == expected
    left = rows - horizon - (expected - 1) * step
    assert left >= config.rows_to_fit or expected == 1


@pytest.mark.parametrize("step", [1, 3])
def test_where_the_first_cutoff_leaves_nothing_the_advice_does(step):
    panel, config = (
        months(120),
        fc.Config(horizon=12, epochs=1, members=1, hidden=2, transform="difference"),
    )
    fewest = config.rows_to_fit
    windows = (120 - 12 - fewest) // step + 1
    with pytest.raises(NoSeries, match=f"--windows {windows} ") as refused:
        fc.cross_validation(panel, config, n_windows=windows + 1, step_size=step)
    with pytest.raises(DataError, match=f"; {fewest} needed") as told, advised(config):
        raise refused.value
    assert f"--windows {windows} " in str(told.value)
    assert "--horizon" not in str(told.value)
    with advised_of_windows(120, config, windows, step):
        assert panel.until(panel.times[119 - 12 - (windows - 1) * step]).mask.sum() >= fewest


def test_where_fewer_cutoffs_would_not_help_nothing_is_said_of_them():
    config = fc.Config(horizon=24)
    with pytest.raises(NoSeries) as refused, advised_of_windows(60, config, 3, 1):
        short = Skipped(Kind.TOO_SHORT, 60, config.rows_to_fit, detail=config.why_rows)
        raise NoSeries({"a": short})
    assert not refused.value.advice
    with pytest.raises(DataError, match="--horizon 13 would admit it"), advised(config):
        raise refused.value
    assert dataclasses.replace(config, horizon=13).rows_to_fit <= 60
