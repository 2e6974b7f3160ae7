"""The mean of a price grows by the premium, and nothing else moves its median."""

import dataclasses

import jax
import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.forecasting.methods import growth_of

DAY = np.log(1.05) / 365.25  # the premium of 5 % a year for a calendar day


def test_of_each_row_it_is_that_of_the_mean_time_between_two(panel, config):
    growth = growth_of(config, panel)
    for one, seen in zip(growth, panel.mask, strict=True):
        times = panel.times[seen]
        days = (times[-1] - times[0]) / np.timedelta64(1, "D") / (len(times) - 1)
        assert one == pytest.approx(DAY * days)


def test_only_dated_prices_in_logarithms_have_one(panel, config):
    def none(panel, **changes):
        return np.isnan(growth_of(dataclasses.replace(config, **changes), panel)).all()

    assert not none(panel) and not none(panel, transform="log_return")
    assert none(panel, premium=None)
    assert none(panel, transform="difference") and none(panel, model="ets")
    numbered = dataclasses.replace(panel, times=np.arange(len(panel.times)))
    assert none(numbered)
    series = panel.to_frame()[["unique_id", "ds", "close"]].rename(columns={"close": "y"})
    assert none(fc.load_panel(series), transform="log_return")


def test_the_mean_of_each_price_and_of_a_basket_grows_by_the_premium(panel, model):
    paths = fc.simulate(model, panel, 4000).groupby(["unique_id", "ds"], sort=False)["LSTM"]
    means = paths.mean().to_numpy().reshape(len(panel.ids), -1)
    now = panel.channel("close")[:, -1:]
    ahead = np.arange(1, means.shape[1] + 1)
    spread = paths.std().to_numpy().reshape(means.shape) / now
    off = means / now - np.exp(model.growth[:, None] * ahead)
    # Half the variance is the shift.
    assert np.abs(off).max() < 0.05 * (spread**2).max()
    assert np.abs(off.mean(0)).max() < 0.05 * (spread**2).mean()


def test_networks_are_trained_as_without_it_and_say_nothing_of_the_median(panel, config, model):
    learned = fc.fit(panel, dataclasses.replace(config, premium=None), seed=1)
    jax.tree.map(np.testing.assert_array_equal, model.params, learned.params)
    moved = dataclasses.replace(model, growth=model.growth + 0.002)
    before, after = fc.predict(model, panel), fc.predict(moved, panel)
    change = 0.002 * np.tile(np.arange(1, 4), len(panel.ids))
    np.testing.assert_allclose(np.log(after["LSTM"] / before["LSTM"]), change, rtol=2e-3)
    # Bands are calibrated on the errors since the fit, too, few here, which are others then.
    for column in ("LSTM-lo-95", "LSTM-lo-80", "LSTM-hi-80", "LSTM-hi-95"):
        np.testing.assert_allclose(np.log(after[column] / before[column]), change, atol=5e-4)
    assert (after["probability_of_rise"] > before["probability_of_rise"]).all()
    basket = [
        fc.simulate(one, panel, 500).groupby("sample_id")["LSTM"].mean() for one in (model, moved)
    ]
    assert isinstance(basket[0], pd.Series) and (basket[1] > basket[0]).all()
