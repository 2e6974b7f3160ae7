"""Forecasts of prices by two scales: of a series' own networks, and the common volatility."""

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import ForecasterWarning
from forecaster.forecasting.bands import Distribution
from forecaster.forecasting.fitting.validating import scale_weights
from forecaster.forecasting.model import rename_series
from forecaster.forecasting.predicting.forecast import with_common
from tests.common_market import frame
from tests.conftest import run
from tests.messages import warns

SMALL: dict[str, Any] = {
    "hidden": 2, "lookback": 20, "burn_in": 5, "horizon": 2, "validation": 60, "epochs": 2,
    "members": 1, "patience": 2,
}  # fmt: skip
CONFIG = fc.Config(**SMALL)


@pytest.fixture(scope="module")
def prices() -> pd.DataFrame:
    return frame(12, 520)


@pytest.fixture(scope="module")
def market(prices) -> fc.Panel:
    return fc.load_panel(prices)


@pytest.fixture(scope="module")
def fitted(market) -> fc.Model:
    return fc.fit(market, CONFIG)


def test_logarithms_of_widths_are_weighted_sums():
    alone = np.full((1, 2, 2), 2.0)
    common = np.array([[[np.log(8.0), np.nan], [np.log(2.0), np.log(0.5)]]])
    made = with_common(alone, common, ((0.0, 0.5, 0.5), (np.log(3.0), 1.0, 0.5)))
    np.testing.assert_allclose(made, [[[4.0, 2.0], [2.0, 6.0 * np.sqrt(0.5)]]])
    assert with_common(alone, None, ()) is alone


def _scale_weights(size: float) -> tuple[Distribution, np.ndarray, np.ndarray]:
    """Both scale_weights, and outcomes whose true weights are 0.9 and 0.8."""
    random = np.random.default_rng(0)
    own, common = size * random.normal(size=(2, 40, 400, 1))
    outcomes = np.exp(0.3 + 0.9 * own + 0.8 * common) * random.standard_t(5, own.shape)
    outcomes[:, :50] = np.nan
    common[:5] = np.nan
    ones = np.ones(own.shape)
    return Distribution(0 * ones, np.exp(own), 5 * ones), common, outcomes


@pytest.mark.parametrize(("size", "expected"), [(0.5, (0.3, 0.9, 0.8)), (0.005, (0.3, 0.6, 0.6))])
def test_weights_of_both_scales_are_learned_where_they_differ_enough(size, expected):
    (weights,) = scale_weights(*_scale_weights(size))
    np.testing.assert_allclose(weights, expected, atol=0.03)


def test_a_fit_from_a_common_start_has_both_and_an_independent_one_its_networks_alone(
    market, fitted
):
    common = fitted.transform.learned.common_volatility
    assert common is not None and common.peers == market.ids
    for setting in ({"start": "independent"}, {"common_volatility": False}):
        alone = fc.fit(market, dataclasses.replace(CONFIG, **setting))
        assert alone.transform.learned.common_volatility is None
    assert "sees the market in 12 series" in repr(fitted)


def test_without_peers_networks_stand_alone_and_a_warning_says_so(market, fitted):
    with warns(ForecasterWarning):
        alone = fc.predict(fitted, market.only(["S03"]))
    transform = fitted.transform.with_learned(common_volatility=None)
    bare = dataclasses.replace(fitted, transform=transform)
    wanted = fc.predict(bare, market)
    wanted = wanted[wanted["unique_id"] == "S03"].reset_index(drop=True)
    pd.testing.assert_frame_equal(alone, wanted, check_exact=True)
    among = fc.predict(fitted, market).query("unique_id == 'S03'").reset_index(drop=True)
    assert not np.allclose(among["LSTM-hi-80"], alone["LSTM-hi-80"], rtol=1e-6)


def test_a_renamed_peer_is_still_one(market, fitted):
    new = rename_series(fitted.only(["S03"]), {"S01": "XYZ"})
    common = new.transform.learned.common_volatility
    assert common is not None and common.peers[:3] == ("S00", "XYZ", "S02")


def test_the_command_reads_the_peers_of_a_single_ticker(prices, tmp_path, monkeypatch):
    """Also where the series were fitted in shards of five."""
    # Eight more are refused; their number must not be taken for that of a shard's series.
    twice = prices[prices["ticker"] == "S00"].iloc[[0, *range(520)]]
    refused = [twice.assign(ticker=f"X{number}") for number in range(8)]
    pd.concat([prices, *refused]).to_csv(tmp_path / "p.csv", index=False)
    settings = "\n".join(f"{name} = {value}" for name, value in SMALL.items())
    (tmp_path / "c.toml").write_text(settings)
    fit = ("fit", "--source", f"files:{tmp_path / 'p.csv'}", "--config", tmp_path / "c.toml")
    for shard in (100, 5):
        home = tmp_path / str(shard)
        monkeypatch.setattr("forecaster.pipeline.beginning.MOST_PER_SHARD", shard)
        assert run(*fit, "--home", home).exit_code == 3
        made = run("predict", "S07", "--home", home, "--output", home / "one.csv")
        assert made.exit_code == 0 and "state of the market" not in made.output
        assert run("predict", "--all", "--home", home, "--output", home / "all.csv").exit_code == 0
        every = pd.read_csv(home / "all.csv")
        wanted = every[every["unique_id"] == "S07"].reset_index(drop=True)
        pd.testing.assert_frame_equal(pd.read_csv(home / "one.csv"), wanted, check_exact=True)
