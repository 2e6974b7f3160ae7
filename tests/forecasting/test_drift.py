"""The drift of prices is a premium and what a series' own history allows, not what was learned."""

import dataclasses

import jax
import numpy as np
import pytest

import forecaster as fc
from forecaster.forecasting.bands.drift import KEPT, change_of, drift_of
from forecaster.forecasting.model import Networks
from forecaster.forecasting.predicting.forecast import at_origins, distributions

DAY = np.log(1.05) / 365.25  # the premium of 5 % a year for a calendar day


def walk(rows: int, drift: float, deviation: float, seed: int = 0) -> np.ndarray:
    """Return prices of ``rows`` days whose mean change is exactly ``drift``."""
    steps = deviation * np.random.default_rng(seed).normal(size=rows - 1)
    return np.exp(np.cumsum(np.concatenate([[0.0], steps - steps.mean() + drift])))


def days(rows: int) -> np.ndarray:
    return np.datetime64("1700-01-01") + np.arange(rows)


def half_variance(prices: np.ndarray) -> float:
    """Return by how much less the median grows than the mean."""
    return np.diff(np.log(prices)).var(ddof=1) / 2


def test_of_a_long_history_it_is_its_own_mean_as_far_as_the_standard_error_allows():
    rows, own = 100_000, np.log(1.2) / 365.25
    for deviation in (0.0001, 0.01, 0.1):
        prices = walk(rows, own, deviation)
        got, low, high = change_of(prices, days(rows), 0.05)
        usual = DAY - half_variance(prices)
        error = deviation / np.sqrt(rows - 1) * 365.25  # of the mean change of a year
        weight = 0.025**2 / (0.025**2 + error**2)
        assert got == pytest.approx(usual + weight * (own - usual), rel=1e-3)
        assert (high - own, own - low) == pytest.approx((3 * error / 365.25,) * 2, rel=0.01)


def test_only_dated_prices_in_logarithms_have_one(panel, config):
    def none(panel, **changes):
        return drift_of(panel, dataclasses.replace(config, **changes)) is None

    assert not none(panel) and not none(panel, transform="log_return")
    assert none(panel, premium=None)
    assert none(panel, transform="difference") and none(panel, model="ets")
    numbered = dataclasses.replace(panel, times=np.arange(len(panel.times)))
    assert none(numbered)
    series = panel.to_frame()[["unique_id", "ds", "close"]].rename(columns={"close": "y"})
    assert none(fc.load_panel(series), transform="log_return")


@pytest.fixture(scope="module")
def learned(panel, config) -> fc.Model:
    """Return the same networks as those of ``model``, with the drift that they learned."""
    return fc.fit(panel, dataclasses.replace(config, premium=None), seed=1)


def made_by(networks: Networks, model: fc.Model, panel: fc.Panel):
    transformed = model.transform.apply(panel, model.config.horizon)
    steps = transformed.z.shape[1]
    origins = np.tile(np.arange(steps - 90, steps), (len(panel.ids), 1))
    outcomes = at_origins(transformed.targets(), origins)
    made, _ = distributions(networks, transformed, origins, outcomes)
    return made, transformed, origins


def test_networks_are_trained_as_without_it_and_a_quarter_of_their_moves_is_kept(
    panel, model, learned
):
    jax.tree.map(np.testing.assert_array_equal, model.params, learned.params)
    drift = model.networks.drift
    assert drift is not None and learned.networks.drift is None
    ours, transformed, origins = made_by(model.networks, model, panel)
    theirs, _, _ = made_by(learned.networks, model, panel)
    np.testing.assert_array_equal(ours.scale, theirs.scale)
    moves = theirs.location - drift.usual[:, None]
    unit = np.take_along_axis(transformed.scale, origins[:, :, None], axis=1)
    expected, low, high = drift.per_row.T[:, :, None, None] * np.arange(1, 4) / unit
    location = np.clip(KEPT * moves + expected, low, high)
    np.testing.assert_allclose(ours.location, location, atol=1e-6)
    # Over the rows that were held back, networks moved by nothing but the drift, on average.
    known = (ours.location - expected)[:, :-3].mean(1)
    assert np.abs(known).max() < 0.2 * np.abs(moves).max()
    series = panel.channel(panel.target)
    for row, name in enumerate(panel.ids):
        seen = panel.mask[row]
        alone = change_of(series[row, seen], panel.times[seen], 0.05)
        assert tuple(drift.per_row[row]) == alone, name


def test_medians_bands_the_chance_of_a_rise_and_paths_all_move_with_it(panel, model):
    drift = model.networks.drift
    assert drift is not None
    more = drift._replace(per_row=drift.per_row + 0.002)
    moved = dataclasses.replace(model, networks=dataclasses.replace(model.networks, drift=more))
    before, after = fc.predict(model, panel), fc.predict(moved, panel)
    ahead = np.tile(np.arange(1, 4), len(panel.ids))
    np.testing.assert_allclose(np.log(after["LSTM"] / before["LSTM"]), 0.002 * ahead, rtol=1e-4)
    # Bands are calibrated on the errors since the fit, too, few here, which are others then.
    for column in ("LSTM-lo-95", "LSTM-lo-80", "LSTM-hi-80", "LSTM-hi-95"):
        change = np.log(after[column] / before[column])
        np.testing.assert_allclose(change, 0.002 * ahead, atol=0.0005)
    assert (after["probability_of_rise"] > before["probability_of_rise"]).all()
    paths = [fc.simulate(one, panel, 20, seed=3)["LSTM"].to_numpy() for one in (model, moved)]
    change = np.log(paths[1] / paths[0]).reshape(-1, 3)
    np.testing.assert_allclose(change.mean(0), 0.002 * np.arange(1, 4), rtol=0.05)


def test_a_basket_of_many_prices_grows_by_the_premium():
    """Under normal changes, the mean of a price is its median times e to half the variance."""
    grown = []
    for seed, deviation in enumerate(np.linspace(0.005, 0.03, 40)):
        prices = walk(500, 0.0, deviation, seed)
        median = change_of(prices, days(500), 0.05)[0]
        grown.append(np.exp(median + half_variance(prices)))
    assert np.log(np.mean(grown)) == pytest.approx(DAY, rel=0.1)
