"""Series without a network of their own are forecast by the one that all others started from."""

import dataclasses
import warnings

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import ForecasterWarning, ModelError
from forecaster.forecasting.predicting.predicting import match_panel
from tests.messages import refuses, warns


@pytest.fixture(scope="module")
def fitted(panel, config) -> fc.Model:
    """Return a model of all tickers but the last."""
    pooled = dataclasses.replace(config, start="pooled", members=2)
    return fc.fit(panel.only(panel.ids[:-1]), pooled, seed=1)


def test_one_that_came_later_is_forecast_and_named(panel, fitted, tmp_path):
    new = panel.ids[-1]
    with warns(ForecasterWarning):
        frame = fc.predict(fitted, panel)
    known = fc.predict(fitted, panel.only(fitted.ids))
    pd.testing.assert_frame_equal(frame[frame["unique_id"] != new], known, rtol=1e-6)
    of_new = frame[frame["unique_id"] == new]
    assert len(of_new) == fitted.config.horizon
    assert (of_new["LSTM-lo-80"] < of_new["LSTM"]).all()
    assert (of_new["LSTM"] < of_new["LSTM-hi-80"]).all()
    loaded = fc.load(fc.save(fitted, tmp_path / "model"))
    with warns(ForecasterWarning):
        pd.testing.assert_frame_equal(fc.predict(loaded, panel), frame, check_exact=True)
    with warns(ForecasterWarning):
        paths = fc.simulate(fitted, panel, 50)
    assert set(paths["unique_id"]) == set(panel.ids)


def test_too_few_rows_for_any_forecast_are_still_refused(panel, fitted):
    new = panel.only([panel.ids[-1]])
    with refuses(ModelError):
        match_panel(fitted, new.between(str(new.times[-1])))


def test_a_series_that_begins_after_the_date_is_left_out():
    days = pd.date_range("2024-01-01", periods=40)
    parts = [
        pd.DataFrame({"unique_id": name, "ds": some, "y": np.arange(len(some)) % 7 + 10.0})
        for name, some in (("old", days), ("young", days[30:]))
    ]
    panel = fc.load_panel(pd.concat(parts))
    model = fc.fit(panel, fc.Config(horizon=2))
    with warns(ForecasterWarning):
        frame = fc.predict(model, panel.until("2024-01-25"))
    assert set(frame["unique_id"]) == {"old"}


def test_a_price_of_two_days_has_the_bands_of_its_panel(panel, fitted):
    new = panel.only([panel.ids[-1]])
    young = new.between(str(new.times[-2]))
    with warns(ForecasterWarning):
        forecast = fc.predict(fitted, young)
    low, high = (forecast[f"LSTM-{side}-80"].to_numpy(float) for side in ("lo", "hi"))
    width = np.log(high / low)
    # 80 % of a normal distribution of the usual volatility of the panel, within a factor of 1.5.
    expected = (
        2
        * 1.2816
        * (fitted.transform.learned.volatility or 0.0)
        * np.sqrt(np.arange(1, len(forecast) + 1))
    )
    assert (width > expected / 1.5).all()
    assert (width < expected * 1.5).all()


def test_a_forecast_of_what_was_learned_from_is_named_as_none(panel, fitted):
    early = panel.until(panel.times[-40])
    for function in (fc.predict, fc.simulate):
        with warns(ForecasterWarning):
            function(fitted, early)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fc.predict(fitted, panel.only(fitted.ids))


def test_a_series_of_one_row_is_forecast_for_the_days_of_the_others():
    days = pd.date_range("2022-01-01", periods=360)  # the last is a Monday
    rng = np.random.default_rng(0)
    each = {"a": days, "b": days, "friday": days[-4:-3], "week": days[-8:-3]}
    frame = pd.concat(
        pd.DataFrame({"unique_id": name, "ds": its, "y": rng.poisson(30.0, len(its)) * 1.0})
        for name, its in each.items()
    )
    model = fc.fit(frame, fc.Config(horizon=7, model="ets"), seed=0)
    for asked in (frame, frame[frame["unique_id"].isin(["friday", "week"])]):
        ahead = fc.predict(model, asked).groupby("unique_id")["ds"]
        for name in asked["unique_id"].unique():
            after = pd.date_range(each[name][-1] + pd.Timedelta(days=1), periods=7)
            assert list(ahead.get_group(name)) == list(after), name
    paths = fc.simulate(model, frame[frame["unique_id"] == "friday"], n_paths=3)
    assert list(paths["ds"].unique()) == list(pd.date_range("2022-12-24", periods=7))
