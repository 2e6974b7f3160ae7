"""Prices of which no series has rows enough for networks are forecast by their last value."""

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import ForecasterWarning
from forecaster.forecasting import FORECAST_BY, Method
from tests.frames import long
from tests.messages import warns

ENOUGH = fc.Config().rows_to_fit
LEVELS = ["LSTM-lo-95", "LSTM-lo-80", "LSTM", "LSTM-hi-80", "LSTM-hi-95"]


def prices_of(rows: list[int], volatility: float = 0.02, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    moves = {f"T{n}": random.normal(0, volatility, count) for n, count in enumerate(rows)}
    prices = {name: 100 * np.exp(own.cumsum()) for name, own in moves.items()}
    return long(prices, pd.bdate_range("2024-01-02", periods=max(rows)), "close")


def fitted(frame: pd.DataFrame, config: fc.Config | None = None) -> fc.Model:
    with warns(ForecasterWarning):
        return fc.fit(frame, config)


@pytest.mark.parametrize("rows", [[25] * 5, [3] * 5, [1] * 5, [1], [ENOUGH - 1, 20, 10, 3, 2, 1]])
def test_short_prices_are_forecast_by_their_last_value(rows):
    frame = prices_of(rows)
    model = fitted(frame)
    assert not model.skipped and (model.report[FORECAST_BY] == Method.LAST_VALUE).all()
    made = fc.predict(model, frame)
    assert (made[FORECAST_BY] == Method.LAST_VALUE).all()
    last = frame.groupby("unique_id")["close"].last()
    np.testing.assert_allclose(made["LSTM"], last[made["unique_id"]], rtol=1e-12)
    assert (np.diff(made[LEVELS].to_numpy(), axis=1) > 0).all()
    width = np.log((made["LSTM-hi-80"] / made["LSTM-lo-80"]).to_numpy()).reshape(len(rows), -1)
    ahead = np.sqrt(np.arange(1, width.shape[1] + 1))
    np.testing.assert_allclose(width / width[:, :1], np.tile(ahead, (len(rows), 1)), rtol=0.3)
    assert np.isfinite(fc.simulate(model, frame, 10)["LSTM"]).all()


def test_bands_of_short_prices_hold():
    inside = []
    for seed in range(6):
        whole = prices_of([15] * 20, 0.03, seed)
        known = whole.groupby("unique_id").head(10)
        made = fc.predict(fitted(known), known).merge(whole, on=["unique_id", "ds"])
        assert len(made) == 100
        inside.append(made["close"].between(made["LSTM-lo-80"], made["LSTM-hi-80"]).mean())
    assert 0.72 < np.mean(inside) < 0.88


def test_a_price_that_never_changes_has_bands_and_what_is_no_price_is_named():
    odd = {"still": [5.0] * 12, "zeros": [0.0] * 12, "one zero": [1.0, 0.0, *[2.0] * 10]}
    odd["spread"] = list(np.linspace(-1, 1, 12))
    frame = long(odd, pd.bdate_range("2024-01-02", periods=12), "close")
    model = fitted(frame)
    assert model.ids == ("still",) and {*model.skipped} == {"zeros", "one zero", "spread"}
    made = fc.predict(model, frame)
    assert (made["LSTM-hi-80"] > made["LSTM-lo-80"]).all() and (made["LSTM-lo-95"] > 0).all()


@pytest.mark.parametrize("value", [0.0, -5.0])
def test_a_price_that_is_none_is_named_and_widens_no_other_band(value):
    frame = prices_of([8, 8, 8])
    clean = fc.predict(fitted(frame[frame["unique_id"] != "T1"]), frame, level=[80])
    frame.loc[(frame["unique_id"] == "T1").to_numpy().nonzero()[0][-1], "close"] = value
    model = fitted(frame)
    assert str(model.skipped["T1"]).endswith("; a price must be above zero")
    made = fc.predict(model, frame[frame["unique_id"] != "T1"], level=[80])
    others = clean[clean["unique_id"] != "T1"].reset_index(drop=True)
    pd.testing.assert_frame_equal(made, others, check_exact=True)
