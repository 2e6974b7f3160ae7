"""Covariates, future and static, change the forecasts."""

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import DataError, ModelError
from forecaster.series import Panel
from tests.messages import refuses

DAYS = pd.date_range("2023-01-01", periods=308)
ENDS = 300  # rows of the series; covariates continue
SETTINGS = fc.Config(
    hidden=8, lookback=20, burn_in=5, horizon=3, validation=60, epochs=40, members=1,
    learning_rate=1e-2,
)  # fmt: skip


def shop(random: np.random.Generator, promoted: np.ndarray) -> np.ndarray:
    return 50 + 20 * promoted + random.normal(size=len(promoted))


@pytest.fixture(scope="module")
def shops() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return sales of twelve shops, and their promotions, also in the future."""
    random = np.random.default_rng(0)
    sales, promotions = [], []
    for k in range(12):
        promoted = (random.random(len(DAYS)) < 0.2).astype(float)
        y = shop(random, promoted)[:ENDS]
        sales.append(pd.DataFrame({"unique_id": f"s{k:02d}", "ds": DAYS[:ENDS], "y": y}))
        columns = {"unique_id": f"s{k:02d}", "ds": DAYS, "promotion": promoted}
        promotions.append(pd.DataFrame(columns))
    return pd.concat(sales), pd.concat(promotions)


@pytest.fixture(scope="module")
def panel(shops) -> Panel:
    sales, promotions = shops
    return Panel.from_frame(sales).with_future(promotions)


@pytest.fixture(scope="module")
def fitted(panel) -> fc.Model:
    return fc.fit(panel, SETTINGS, seed=1)


def test_promotions_that_are_planned_are_forecast(panel, fitted, shops):
    # Without promotions the mean error is 4: 20 on a fifth of the days.
    assert fitted.report["mae"].mean() < 2
    frame = fc.predict(fitted, panel).merge(shops[1], on=["unique_id", "ds"])
    by_kind = frame.groupby("promotion")["LSTM"].mean()
    assert by_kind[1.0] - by_kind[0.0] > 10


def test_only_the_times_that_are_forecast_for_count(panel, fitted, shops):
    """Plans beyond the horizon change nothing; plans within it change the forecasts."""
    frame, (_, promotions) = fc.predict(fitted, panel), shops
    later = promotions["ds"] >= DAYS[ENDS + SETTINGS.horizon]
    for rows, same in ((later, True), (~later & (promotions["ds"] >= DAYS[ENDS]), False)):
        changed = promotions.assign(promotion=promotions["promotion"].where(~rows, 1.0))
        again = fc.predict(fitted, panel.with_future(changed))
        assert frame.equals(again) is same


def test_what_is_missing_is_named(panel, fitted, shops):
    sales, promotions = shops
    short = promotions[promotions["ds"] < DAYS[ENDS + 1]]
    with refuses(ModelError):
        fc.predict(fitted, panel.with_future(short))
    plain = Panel.from_frame(sales)
    with refuses(DataError):
        fc.predict(fitted, plain)
    others = promotions[promotions["unique_id"] == "s00"].assign(unique_id="x")
    for wrong in (pd.concat([promotions, promotions[:1]]), others):
        with refuses(DataError):
            plain.with_future(wrong)
