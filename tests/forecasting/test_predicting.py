"""Forecasts of a fitted model: frame, units, times, bands, and errors."""

import numpy as np
import pandas as pd

import forecaster as fc
from forecaster.errors import ForecasterWarning, ModelError, UsageError
from forecaster.forecasting.predicting.forecast import _with_recent
from forecaster.series.panel.panel import UNCONFIRMED, Panel
from tests.conftest import TICKERS
from tests.messages import refuses, warns


def test_forecast_frames_are_those_of_the_field(panel, model):
    frame = fc.predict(model, panel, level=[95, 80])
    assert list(frame) == [
        "unique_id", "ds", "LSTM", "LSTM-lo-80", "LSTM-hi-80", "LSTM-lo-95", "LSTM-hi-95",
        "probability_of_rise",
    ]  # fmt: skip
    assert frame.groupby("unique_id").size().to_dict() == dict.fromkeys(TICKERS, 3)
    order = frame[["LSTM-lo-95", "LSTM-lo-80", "LSTM", "LSTM-hi-80", "LSTM-hi-95"]].to_numpy()
    assert (np.diff(order, axis=1) > 0).all()
    assert frame["probability_of_rise"].between(0.2, 0.8).all()
    assert frame["ds"].min() == pd.Timestamp("2026-01-02")  # New Year's Day is no session
    last = panel.channel("close")[:, -1]
    assert np.abs(frame.groupby("unique_id", sort=False)["LSTM"].first() / last - 1).max() < 0.05


def test_predict_and_cross_validation_agree(panel, config):
    """The last cutoff of a cross-validation is a prediction at that cutoff."""
    frame = fc.cross_validation(panel, config, n_windows=3, step_size=29, seed=1)
    first, last = frame["cutoff"].min(), frame["cutoff"].max()
    model = fc.fit(panel.until(first), config, seed=1)
    columns = ["unique_id", "ds", "LSTM", "LSTM-lo-80", "LSTM-hi-95"]
    expected = fc.predict(model, panel.until(last))[columns]
    got = frame.loc[frame["cutoff"] == last, columns]
    pd.testing.assert_frame_equal(
        got.reset_index(drop=True), expected, check_exact=False, rtol=1e-6
    )


def test_rows_known_to_be_wrong_are_left_out_and_a_jump_is_forecast_from(panel, config):
    times, ids = panel.times, panel.ids
    flags = pd.DataFrame(
        {"unique_id": ids[:2], "ds": times[[-30, -1]], "flag": ["copied", UNCONFIRMED],
         "known": times[[-20, -1]], "until": pd.NaT}
    )  # fmt: skip
    flagged = panel.with_flags(flags)
    model = fc.fit(flagged, config, seed=1)
    rows = panel.mask.sum(1)
    assert (model.report["rows"] == rows - [1, 1, *[0] * (len(ids) - 2)]).all()
    with warns(UserWarning):
        frame = fc.predict(model, flagged)
    there = fc.predict(model, panel.without(np.array([0]), np.array([len(times) - 30])))
    pd.testing.assert_frame_equal(frame, there, check_exact=True)


def test_a_panel_of_another_kind_is_refused(panel, model):
    lacking = Panel.from_frame(panel.to_frame().drop(columns="volume"))
    with refuses(ModelError):
        fc.predict(model, lacking)
    other = fc.load_panel("simulated", ["NVDA"], start="2023-01-01")
    with refuses(ModelError):
        fc.predict(model, other)
    both = Panel.from_frame(pd.concat([panel.to_frame(), other.to_frame()]))
    with warns(UserWarning):
        assert set(fc.predict(model, both)["unique_id"]) == set(TICKERS)
    with refuses(UsageError):
        fc.predict(model, panel, level=[80, 100])


def test_calibration_moves_on_with_new_prices(panel, config):
    """The scores since the fit stand behind the stored ones."""
    stored = np.arange(12.0).reshape(2, 6, 1)
    recent = -np.arange(8.0).reshape(2, 4, 1)
    got = _with_recent(stored, recent, np.array([3, 1]))[..., 0]
    nan = np.nan
    # The first series has 2 rows since the fit, the second none; the last origin is "now".
    np.testing.assert_array_equal(
        got, [[nan, 0, 1, 2, 3, 4, 5, -1, -2, -3], [nan, nan, nan, 6, 7, 8, 9, 10, 11, -7]]
    )


def test_each_series_goes_on_at_its_own_frequency(panel, config):
    """Series that trade on weekends, or once a week, change no dates of the others."""
    alone = fc.predict(fc.fit(panel, config, seed=1), panel)
    table = panel.to_frame()
    daily = table[table.unique_id == "KO"].assign(unique_id="BTC")
    daily["ds"] = pd.date_range("2023-11-01", periods=len(daily))
    weekly = table[table.unique_id == "KO"].assign(unique_id="WEEKLY")
    weekly["ds"] = pd.date_range("2012-01-06", periods=len(weekly), freq="7D")
    mixed = Panel.from_frame(pd.concat([table, daily, weekly]))
    frame = fc.predict(fc.fit(mixed, config, seed=1), mixed)
    pd.testing.assert_frame_equal(
        frame[frame.unique_id.isin(TICKERS)].reset_index(drop=True), alone, check_exact=True
    )
    assert (frame[frame.unique_id == "BTC"]["ds"].diff().dropna() == pd.Timedelta("1D")).all()
    assert (frame[frame.unique_id == "WEEKLY"]["ds"].diff().dropna() == pd.Timedelta("7D")).all()


def test_a_missing_last_close_does_not_change_the_units(panel, config):
    table = panel.to_frame().assign(adj_close=lambda t: t["close"] / 2)
    quoted = Panel.from_frame(table).channel("close")[:, -1]
    last = table["ds"] == table["ds"].max()
    for bad in (np.nan, 0.0):
        holed = Panel.from_frame(table.assign(close=table["close"].mask(last, bad)))
        frame = fc.predict(fc.fit(holed, config, seed=1), holed)
        first = frame.groupby("unique_id", sort=False)["LSTM"].first()
        assert np.abs(first / quoted - 1).max() < 0.1


def test_a_model_of_some_series_forecasts_them_as_before(panel, model):
    """Rows of weights, scores and report stay together, in any order."""
    some = [TICKERS[3], TICKERS[0]]
    part = model.only(some)
    assert part.ids == tuple(some) and part.report.index.tolist() == some
    expected = fc.predict(model, panel).set_index("unique_id").loc[some]
    got = fc.predict(part, panel.only(some)).set_index("unique_id")
    pd.testing.assert_frame_equal(got, expected, check_exact=True)
    with refuses(UsageError):
        model.only(["NVDA"])


def test_rows_that_are_further_apart_than_those_of_the_fit_are_no_history(panel, model):
    """A model of days must not forecast weeks silently."""
    frame = panel.to_frame()
    weekly = Panel.from_frame(frame[frame.groupby("unique_id").cumcount() % 5 == 0])
    for forecast in (fc.predict, fc.simulate):
        with refuses(ModelError):
            forecast(model, weekly)
    mixed = pd.concat(
        [weekly.to_frame().query("unique_id == 'KO'"), panel.to_frame().query("unique_id != 'KO'")]
    )
    with warns(ForecasterWarning):
        frame = fc.predict(model, Panel.from_frame(mixed))
    assert sorted(frame["unique_id"].unique()) == sorted(set(TICKERS) - {"KO"})
