"""Prices of which no series has rows enough for networks are forecast by their last value."""

import dataclasses
import warnings

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import DataError, ForecasterWarning
from forecaster.forecasting import FORECAST_BY, Rung, settled, usable_rows
from forecaster.series.features.last_value import walk_scale

ENOUGH = fc.Config().rows_to_fit
LEVELS = ["LSTM-lo-95", "LSTM-lo-80", "LSTM", "LSTM-hi-80", "LSTM-hi-95"]


def prices_of(rows: list[int], volatility: float = 0.02, seed: int = 0) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    days = pd.bdate_range("2024-01-02", periods=max(rows))
    parts = []
    for number, count in enumerate(rows):
        close = 100 * np.exp(random.normal(0, volatility, count).cumsum())
        named = {"unique_id": f"T{number}", "ds": days[-count:], "close": close}
        parts.append(pd.DataFrame(named))
    return pd.concat(parts, ignore_index=True)


def fitted(frame: pd.DataFrame, config: fc.Config | None = None) -> fc.Model:
    with pytest.warns(ForecasterWarning, match="each is forecast by its last value"):
        return fc.fit(frame, config)


@pytest.mark.parametrize("rows", [[25] * 5, [3] * 5, [1] * 5, [1], [ENOUGH - 1, 20, 10, 3, 2, 1]])
def test_short_prices_are_forecast_by_their_last_value(rows):
    frame = prices_of(rows)
    model = fitted(frame)
    assert not model.skipped and (model.report[FORECAST_BY] == Rung.LAST_VALUE).all()
    made = fc.predict(model, frame)
    assert (made[FORECAST_BY] == Rung.LAST_VALUE).all()
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


def test_the_fewer_rows_the_closer_a_band_is_to_that_of_usual_stocks():
    """One row says nothing of its own; with thirty, wild and calm stocks differ."""

    def widths(rows: int) -> np.ndarray:
        frames = [prices_of([rows] * 5, volatility) for volatility in (0.002, 0.08)]
        made = [fc.predict(fitted(frame), frame) for frame in frames]
        return np.array([np.log(one["LSTM-hi-80"] / one["LSTM-lo-80"]).mean() for one in made])

    one, three, thirty = (widths(rows) for rows in (1, 3, 30))
    assert one[0] == pytest.approx(one[1], rel=1e-9)
    assert one[0] < three[1] < thirty[1] and one[0] > three[0] > thirty[0]
    assert thirty[1] > 10 * thirty[0]


def test_a_price_that_never_changes_has_bands_and_what_is_no_price_is_named():
    days = pd.bdate_range("2024-01-02", periods=12)
    odd = {"still": [5.0] * 12, "zeros": [0.0] * 12, "one zero": [1.0, 0.0, *[2.0] * 10]}
    odd["spread"] = list(np.linspace(-1, 1, 12))
    frame = pd.concat(
        pd.DataFrame({"unique_id": n, "ds": days, "close": v}) for n, v in odd.items()
    )
    model = fitted(frame)
    assert model.ids == ("still",) and {*model.skipped} == {"zeros", "one zero", "spread"}
    made = fc.predict(model, frame)
    assert (made["LSTM-hi-80"] > made["LSTM-lo-80"]).all() and (made["LSTM-lo-95"] > 0).all()


def test_what_is_enough_for_one_series_stays_as_it_is():
    """A panel with a long series has networks; its short series are skipped by name, as before."""
    config, panel = fc.Config(), fc.load_panel(prices_of([ENOUGH, 25]))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ForecasterWarning)
        same, _ = settled(config, panel)
    assert same is config
    found = usable_rows(panel, same)
    assert found.trained == ["T0"]
    assert str(found.skipped["T1"]).startswith("25 rows; 34 needed")


def test_other_transforms_still_say_how_many_rows_they_need():
    with pytest.raises(DataError, match="25 rows; 34 needed"):
        fc.fit(prices_of([25] * 3), fc.Config(transform="log_return"))


def test_a_validation_that_is_too_long_is_named_while_another_would_do():
    config = fc.Config(lookback=20, validation=60)
    with pytest.raises(DataError, match="60 rows; 85 needed"):
        fc.fit(prices_of([60] * 3), config)
    assert not fitted(prices_of([25] * 3), config).skipped


def test_a_market_is_left_out():
    config = fc.Config(market="T0", start="independent")
    with pytest.warns(ForecasterWarning, match="the market T0 is left out"):
        model = fc.fit(prices_of([25] * 3), config)
    assert model.config.market is None and set(model.ids) >= {"T1", "T2"}


def test_a_forecast_says_when_networks_can_be_trained():
    frame = prices_of([40, 40, 30])
    early = frame[frame.groupby("unique_id").cumcount() < 28]
    model = fitted(early)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ForecasterWarning)
        fc.predict(model, early)
    with pytest.warns(ForecasterWarning, match="2 of 3 series now have the 34 rows"):
        fc.predict(model, frame)
    asked = fc.fit(frame, fc.Config(transform="last_value"))  # who asked for it knows
    with warnings.catch_warnings():
        warnings.simplefilter("error", ForecasterWarning)
        fc.predict(asked, frame)


def test_networks_are_never_trained_for_the_last_value():
    frame = prices_of([80] * 3).rename(columns={"close": "y"})
    model = fc.fit(frame, fc.Config(transform="last_value"))
    assert (model.report[FORECAST_BY] == Rung.LAST_VALUE).all()
    assert (model.report["epochs"] == 0).all()


def test_a_saved_model_forecasts_the_same(tmp_path):
    frame = prices_of([25, 3, 1])
    model = fitted(frame)
    fc.save(model, tmp_path / "model")
    read = fc.load(tmp_path / "model")
    assert read.transform == model.transform
    pd.testing.assert_frame_equal(fc.predict(read, frame), fc.predict(model, frame))


def test_an_evaluation_rests_on_the_rows_up_to_its_first_cutoff():
    frame = prices_of([30] * 4)
    with pytest.warns(ForecasterWarning, match="each is forecast by its last value"):
        made = fc.cross_validation(frame, n_windows=3)
    assert (made[FORECAST_BY] == Rung.LAST_VALUE).all() and made["cutoff"].nunique() == 3
    config = fc.Config(hidden=2, members=1, epochs=1)
    frame = prices_of([ENOUGH + 6] * 4)  # later rows do not decide, but a warning speaks of them
    few = f"{ENOUGH - 2} at most up to the first cutoff of 4; {ENOUGH} needed.*n_windows=2. or"
    with pytest.warns(ForecasterWarning, match=few):
        made = fc.cross_validation(frame, config, n_windows=4)
    assert (made[FORECAST_BY] == Rung.LAST_VALUE).all() and made["cutoff"].nunique() == 4
    with pytest.warns() as warned:
        made = fc.cross_validation(frame, config, n_windows=2)
        warnings.warn("none", stacklevel=1)
    assert not any("last value" in str(one.message) for one in warned) and FORECAST_BY not in made


def test_the_scale_is_causal_and_shrunk_to_the_usual_change():
    change = np.array([[np.nan, 0.1, -0.2, 0.3, 0.05]])
    unit = np.full(change.shape, 0.05)
    scale = walk_scale(change, unit)
    assert scale[0, 0] == pytest.approx(0.05)
    assert scale[0, 1] == pytest.approx(np.sqrt((0.1**2 + 10 * 0.05**2) / 11))
    for end in range(1, 5):
        np.testing.assert_array_equal(walk_scale(change[:, :end], unit[:, :end]), scale[:, :end])
    assert dataclasses.replace(fc.Config(), transform="last_value").transform == "last_value"


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
