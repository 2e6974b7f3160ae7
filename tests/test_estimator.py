"""The estimator follows the conventions of Nixtla's libraries, and equals the functions."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from utilsforecast.evaluation import evaluate
from utilsforecast.losses import coverage, mae

import forecaster as fc
from forecaster.errors import UsageError
from tests.messages import refuses

SETTINGS = {
    "hidden": 4, "lookback": 30, "burn_in": 10, "validation": 100, "epochs": 4, "patience": 4,
    "learning_rate": 1e-2, "start": "independent", "members": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def df(panel) -> pd.DataFrame:
    return panel.to_frame().rename(columns={"adj_close": "y"}).drop(columns="close")


@pytest.fixture(scope="module")
def fitted(df):
    return fc.Forecaster(horizon=3, seed=1, **SETTINGS).fit(df)


@pytest.mark.slow
def test_it_gives_what_the_functions_give(fitted, df, config):
    panel = fc.load_panel(df)
    expected = fc.predict(fc.fit(panel, config, seed=1), panel, level=[80])
    got = fitted.predict(level=[80])
    assert list(got) == ["unique_id", "ds", "LSTM", "LSTM-lo-80", "LSTM-hi-80"]
    pd.testing.assert_frame_equal(got, expected[list(got)], check_exact=True)
    pd.testing.assert_frame_equal(fitted.predict(df=df), got[["unique_id", "ds", "LSTM"]])
    first = fitted.predict(h=1)
    assert len(first) == 5 and first["ds"].nunique() == 1
    crossed = fc.Forecaster(3, seed=1, **SETTINGS).cross_validation(df, n_windows=2, level=[80])
    same = fc.cross_validation(panel, config, 2, level=[80], seed=1)
    same = same.drop(columns=["Naive", "forecast_by"])
    pd.testing.assert_frame_equal(crossed, same, check_exact=True)


@pytest.mark.slow
def test_columns_keep_the_names_that_they_came_with(fitted, df):
    own: dict[str, Any] = {"id_col": "store", "time_col": "day", "target_col": "net"}
    named = df.rename(columns={"unique_id": "store", "ds": "day", "y": "net"})
    estimator = fc.Forecaster(3, seed=1, **SETTINGS).fit(named, **own)
    forecast = estimator.predict()
    assert list(forecast) == ["store", "day", "LSTM"]
    np.testing.assert_array_equal(forecast["LSTM"], fitted.predict()["LSTM"])
    again = estimator.predict(df=named, target_col="net")
    pd.testing.assert_frame_equal(again, forecast)
    crossed = estimator.cross_validation(named, **own)
    assert list(crossed) == ["store", "day", "cutoff", "net", "LSTM"]


def test_it_stands_beside_a_model_of_statsforecast(df):
    statsforecast = pytest.importorskip("statsforecast")
    models = pytest.importorskip("statsforecast.models")
    plain = df[["unique_id", "ds", "y"]]
    plain = plain[plain["unique_id"].isin(["KO", "IBM"])]
    common: dict[str, Any] = {"h": 3, "n_windows": 2, "level": [80]}
    theirs = statsforecast.StatsForecast([models.RandomWalkWithDrift()], freq="B")
    ours = fc.Forecaster(3, **SETTINGS).cross_validation(plain, **common)
    both = ours.merge(
        theirs.cross_validation(df=plain, **common), on=["unique_id", "ds", "cutoff", "y"]
    )
    scores = evaluate(both.drop(columns="cutoff"), metrics=[mae, coverage], level=[80])
    assert len(both) > 0 and {"LSTM", "RWD"} <= set(scores) and not scores.isna().any(axis=None)
    maes = scores[scores["metric"] == "mae"].set_index("unique_id")["LSTM"]
    np.testing.assert_allclose(
        fc.evaluate(ours).set_index("unique_id")["mae"].loc[maes.index], maes
    )


def test_it_says_what_it_is_and_what_it_lacks(fitted):
    text = repr(fitted)
    assert text.startswith("Forecaster(horizon=3, hidden=4, lookback=30") and "seed=1)" in text
    assert "Model LSTM of 5 series" in text
    with refuses(UsageError):
        fc.Forecaster().predict()
    with refuses(UsageError):
        fitted.predict(h=4)
    with refuses(UsageError):
        fc.Forecaster(epoch=3)
