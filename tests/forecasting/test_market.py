"""A declared market changes forecasts, and each series keeps its own network."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import DataError, ModelError, UsageError
from tests.messages import refuses

INDEX = "XOM"


@pytest.fixture(scope="module")
def declared(config) -> fc.Config:
    return dataclasses.replace(config, market=INDEX)


@pytest.fixture(scope="module")
def stocks(panel) -> fc.Panel:
    """Return a panel of four series with a market."""
    return panel.with_market(INDEX, forecast=False)


@pytest.fixture(scope="module")
def fitted(stocks, declared) -> fc.Model:
    return fc.fit(stocks, declared, seed=1)


def only(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    return frame[frame["unique_id"] == name].reset_index(drop=True)


def test_the_market_s_last_day_changes_the_forecast(fitted, stocks, panel):
    before = fc.predict(fitted, stocks)
    values = panel.values.copy()
    values[panel.ids.index(INDEX), -1] *= 0.8
    crashed = dataclasses.replace(panel, values=values)
    after = fc.predict(fitted, crashed)  # which takes the market from the panel by its name
    assert set(after["unique_id"]) == {"AAPL", "MSFT", "KO", "IBM"}
    assert not np.allclose(before["LSTM-hi-80"], after["LSTM-hi-80"], rtol=1e-6)


def test_a_saved_model_forecasts_one_series_alike(fitted, stocks, panel, tmp_path):
    loaded = fc.load(fc.save(fitted, tmp_path / "model"))
    assert loaded.config.market == INDEX and loaded.transform == fitted.transform
    assert f"market     {INDEX}" in repr(loaded)
    whole = fc.predict(fitted, stocks)
    for one in (stocks.only(["AAPL"]), panel.only(["AAPL", INDEX])):
        own = fc.predict(loaded, one)
        pd.testing.assert_frame_equal(only(whole, "AAPL"), own, rtol=1e-5)
    assert len(fc.simulate(loaded, stocks.only(["AAPL", "KO"]), 5)) == 2 * 5 * 3
    assert loaded.plot(panel, "KO").get_title(loc="left") == "KO"


def test_an_index_that_is_missing_or_ends_early_is_named(fitted, stocks, panel, declared):
    with refuses(ModelError):
        fc.predict(fitted, panel.only(["AAPL"]))
    assert stocks.market is not None
    early = dataclasses.replace(stocks, market=stocks.market.until(stocks.times[-10]))
    with refuses(ModelError):
        fc.predict(fitted, early)
    with refuses(DataError):
        fc.fit(early, declared)
    with refuses(DataError):
        fc.cross_validation(early, declared, 2)
    with refuses(UsageError):
        fc.fit(panel, dataclasses.replace(declared, market="SPX"))
