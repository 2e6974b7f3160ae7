"""Scores of forecast frames, against the field's library and by hand."""

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import DataError


@pytest.fixture(scope="module")
def frame(panel, config) -> pd.DataFrame:
    return fc.cross_validation(panel, config, n_windows=6, step_size=4, seed=1)


def test_a_cross_validation_holds_every_cutoff_with_what_came(panel, config, frame):
    assert len(frame) == len(panel.ids) * 6 * config.horizon
    assert frame["cutoff"].nunique() == 6
    cutoffs = np.searchsorted(panel.times, np.sort(frame["cutoff"].unique()))
    assert (np.diff(cutoffs) == 4).all() and cutoffs[-1] == len(panel.times) - 1 - config.horizon
    actual = panel.to_frame().set_index(["unique_id", "ds"])["adj_close"]
    at = pd.MultiIndex.from_frame(frame[["unique_id", "ds"]])
    np.testing.assert_allclose(frame["y"], actual.loc[at])
    before = pd.MultiIndex.from_frame(frame[["unique_id", "cutoff"]])
    known = before.isin(actual.index)
    np.testing.assert_allclose(frame.loc[known, "Naive"], actual.loc[before[known]])
    assert (frame["ds"] > frame["cutoff"]).all()


def test_utilsforecast_takes_the_frame_as_it_is(frame):
    from utilsforecast.evaluation import evaluate
    from utilsforecast.losses import coverage, mae, rmse

    theirs = evaluate(frame.drop(columns="cutoff"), metrics=[mae, rmse], models=["LSTM", "Naive"])
    bands = evaluate(frame.drop(columns="cutoff"), metrics=[coverage], models=["LSTM"], level=[80])
    ours = fc.evaluate(frame)
    for name, metric in (("mae", "mae"), ("rmse", "rmse")):
        for model in ("LSTM", "Naive"):
            mine = ours[ours["model"] == model].set_index("unique_id")[name]
            its = theirs[theirs["metric"] == metric].set_index("unique_id")[model]
            pd.testing.assert_series_equal(mine, its, check_names=False)
    mine = ours[ours["model"] == "LSTM"].set_index("unique_id")["coverage-80"]
    its = bands.set_index("unique_id")["LSTM"]
    pd.testing.assert_series_equal(mine, its, check_names=False)
    everything = evaluate(frame, metrics=[mae])  # no list of models: found by itself
    assert {"LSTM", "Naive"} <= set(everything)


def test_scores_by_hand():
    frame = pd.DataFrame(
        {
            "unique_id": ["a"] * 4,
            "ds": [1, 2, 2, 3],
            "cutoff": [0, 0, 1, 1],
            "y": [1.0, 2.0, 2.0, 3.0],
            "M": [2.0, 2.0, 2.0, 0.0],
            "M-lo-80": [1.5, 1.0, 2.0, 0.0],
            "M-hi-80": [2.5, 3.0, 2.0, 2.0],
            "Naive": [0.0, 0.0, 1.0, 1.0],
        }
    )
    scores = fc.evaluate(frame).query("model == 'M'").iloc[0]
    assert scores["mae"] == 1.0 and scores["rmse"] == np.sqrt(10 / 4)
    assert scores["mae_relative_to_naive"] == 1.0 / 1.5
    assert scores["coverage-80"] == 0.5 and scores["width-80"] == 1.25
    first = fc.evaluate(frame, by_horizon=True).query("model == 'M' and horizon == 1").iloc[0]
    assert first["mae"] == 0.5


@pytest.mark.parametrize(
    ("windows", "step", "message"),
    [
        (9999, 1, "9999 cutoffs 1 apart need more than 10002 times; the panel has"),
        (0, 1, "must be 1 or more; got 0 and 1"),
    ],
)
def test_impossible_cutoffs_are_refused(panel, config, windows, step, message):
    with pytest.raises(DataError, match=message):
        fc.cross_validation(panel, config, windows, step)
