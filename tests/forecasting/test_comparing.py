"""What own networks add is said: all methods are compared on the same held-back rows."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtri

import forecaster as fc
from forecaster.forecasting.bands import KNOTS, Calibrated, spread_at_origins
from forecaster.forecasting.model import comparison
from tests import common_market
from tests.frames import long


@pytest.fixture(scope="module")
def panel() -> fc.Panel:
    """Return monthly series that are too short for networks."""
    random, dates = np.random.default_rng(0), pd.date_range("2018-01-01", periods=60, freq="MS")
    season = 50 + 10 * np.sin(np.arange(60) * 2 * np.pi / 12)
    return fc.load_panel(long({f"s{n}": season + random.normal(size=60) for n in range(3)}, dates))


@pytest.fixture(scope="module")
def model(panel) -> fc.Model:
    return fc.fit(panel, fc.Config(horizon=6))


def test_the_coverage_is_that_of_the_bands_that_are_forecast(model):
    scores, widths = model.normal_scores.astype(float), model.widths
    assert (widths.without > 1.02).any() or (widths.tails > KNOTS).any()
    spread, unlimited = (
        spread_at_origins(scores, widths.without),
        np.full((2, *scores.shape), np.nan),
    )
    bands = Calibrated(spread, unlimited, widths.tails, np.ones(len(scores), bool))
    low, high = bands.scores(ndtri(np.array([0.1, 0.9]))[:, None, None, None])
    held = ((low <= scores) & (scores <= high))[np.isfinite(scores)].mean()
    np.testing.assert_allclose(model.comparison.loc["combination", "coverage"], held, rtol=1e-6)


@pytest.mark.filterwarnings("ignore:These forecasts")
def test_a_component_errs_as_a_fit_by_it_alone_does(panel, model):
    report = model.report
    for name in ("ets", "theta"):
        alone = fc.fit(panel, fc.Config(model=name, horizon=6)).report["mae_relative_to_naive"]
        np.testing.assert_allclose(report[f"{name}_beside_naive"], alone, rtol=1e-9)
    whole = report["mae_relative_to_naive"]  # there are no networks
    np.testing.assert_allclose(report["combination_beside_naive"], whole, rtol=1e-9)
    assert (report["linear_beside_naive"] != whole).all()
    assert report["patterns_beside_naive"].isna().all()  # these have none


def test_every_means_is_compared_on_the_series_with_own_networks():
    report = pd.DataFrame(
        {
            "forecast_by": ["own networks", "own networks", "common network"],
            "validation_loss": [1.0, 1.2, np.nan],
            "mae_relative_to_naive": [0.4, 0.6, 9.0],
            "seasonal_naive_beside_naive": [0.8, 0.6, 9.0],
            "combination_beside_naive": [0.5, 0.9, np.nan],
            "combination_coverage-80": [0.8, 0.8, np.nan],
            "ets_beside_naive": [0.9, 0.9, np.nan],
            "theta_beside_naive": [0.7, 0.9, np.nan],
            "linear_beside_naive": [np.nan, np.nan, np.nan],
        }
    )
    table = comparison(report, {"training_seconds": 12.5, "coverage": 0.8})
    none = np.nan
    expected = {
        "own networks": [1.1, 0.5, 0.8, 12.5],
        "combination": [none, 0.7, 0.8, none],
        "theta": [none, 0.8, none, none],
        "season before": [none, 0.7, none, none],
        "last value": [none, 1.0, none, none],
    }
    assert list(table.index) == list(expected) and table.attrs["series"] == 2
    np.testing.assert_allclose(table, list(expected.values()))


def test_the_parts_of_a_band_of_prices_are_scored_alone_and_together():
    prices = common_market.panel()
    model = fc.fit(prices, fc.Config(horizon=2, hidden=4, members=1, epochs=3))
    table = model.comparison
    assert [*table.index] == ["combination", "own networks", "linear", "volatility of a month"]
    assert table["loss"].idxmax() == "volatility of a month" and table.attrs["series"] == 12
    # A move of a normal distribution has a CRPS of 0.56 of its deviation, which is 1.2 % a day.
    assert (table["loss"] > 0.3).all() and (table["loss"] < 1.5).all()
    found = table["coverage"].notna().tolist(), table["seconds"].notna().tolist()
    assert found == ([True, False, False, False], [False, True, False, False])
    one = fc.fit(prices, fc.Config(horizon=2, hidden=4, members=1, epochs=3, start="independent"))
    assert [*one.comparison.index] == ["own networks", "volatility of a month"]


def test_what_is_known_of_few_series_alone_is_not_compared():
    """A median over other series says nothing of the means."""
    columns = {"forecast_by": ["combination"] * 10, "mae_relative_to_naive": [0.5] * 9 + [np.nan]}
    some = [0.2, 0.2, *[np.nan] * 8]
    table = comparison(pd.DataFrame({**columns, "ets_beside_naive": some}), {})
    assert list(table.index) == ["combination", "last value"] and table.attrs["series"] == 9


def test_a_classical_model_that_forecasts_alone_has_its_error():
    report = pd.DataFrame({"forecast_by": ["theta"] * 2, "mae_relative_to_naive": [0.4, 0.6]})
    assert comparison(report, {})["error"].to_dict() == {"theta": 0.5, "last value": 1.0}
