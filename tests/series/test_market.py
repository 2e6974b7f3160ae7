"""A declared market: its features at each step, which depend on nothing else."""

import dataclasses
from typing import Any

import numpy as np
import pandas as pd

from forecaster.errors import UsageError
from forecaster.series import Panel, behind_market, choose_transform
from forecaster.series.price_features import MARKET_FEATURES
from tests.messages import refuses

DAYS = pd.bdate_range("2024-01-01", periods=80)
LACKS = 50  # a day without a row of the index
BEGINS = 5  # the day of the first row of the index


def table(seed: int = 0) -> pd.DataFrame:
    """Return prices of two stocks, the second with a later start, and of an index."""
    random = np.random.default_rng(seed)
    parts = []
    for name in ("AAA", "BBB", "SPY"):
        close = 50 * np.exp(np.cumsum(random.normal(0, 0.02, len(DAYS))))
        parts.append(pd.DataFrame({"unique_id": name, "ds": DAYS, "close": close}))
    parts[1] = parts[1].iloc[7:]
    parts[2] = parts[2].drop(index=[*range(BEGINS), LACKS])
    return pd.concat(parts, ignore_index=True)


def declared(frame: pd.DataFrame) -> Panel:
    return Panel.from_frame(frame).with_market("SPY", forecast=False)


def seen(panel: Panel) -> dict[str, pd.DataFrame]:
    """Return the features of the market, by series and day."""
    made = choose_transform("auto", panel).apply(panel, 3)
    features = made.features[:, :, -MARKET_FEATURES:]
    return {
        name: pd.DataFrame(features[row][at >= 0], index=panel.times[at[at >= 0]])
        for row, (name, at) in enumerate(zip(panel.ids, made.positions, strict=True))
    }


def test_it_is_the_state_of_the_index_at_its_latest_row():
    frame = table()
    index = frame[frame["unique_id"] == "SPY"].set_index("ds")["close"]
    change = index.apply(np.log).diff()
    # Weights of decay^k, normalised: what pandas calls adjusted.
    weekly, monthly, quarterly = (
        np.sqrt((change**2).ewm(alpha=1 - decay).mean() + 1e-8) for decay in (0.8, 0.94, 0.985)
    )
    scale = np.sqrt((monthly**2 + quarterly**2) / 2)
    expected = pd.DataFrame(
        {
            0: (change / scale.shift()).clip(-8, 8),
            1: np.log(change.abs() / scale.shift() + 0.1),
            2: np.log(weekly / monthly),
            3: np.log(monthly / quarterly),
        }
    )
    expected = expected.reindex(DAYS).ffill().fillna(0)
    panel = declared(frame)
    made = choose_transform("auto", panel).apply(panel, 3)
    for row, (name, features) in enumerate(seen(panel).items()):
        own = made.positions[row] >= 0
        np.testing.assert_allclose(features[[0, 1, 2, 3]], expected.loc[features.index], atol=1e-5)
        ratio = np.log(scale.reindex(DAYS).ffill().loc[features.index] / made.scale[row, own, 0])
        np.testing.assert_allclose(features[4], ratio.fillna(0), atol=1e-5, err_msg=name)
    assert (seen(panel)["AAA"].iloc[:BEGINS] == 0).all(axis=None)
    same = seen(panel)["AAA"].iloc[[LACKS - 1, LACKS]]
    assert (same[[0, 1, 2, 3]].nunique() == 1).all()


def test_series_that_go_on_after_the_index_are_named_with_both_dates():
    panel = declared(table())
    assert panel.market is not None
    assert behind_market(panel) == {}
    shorter = dataclasses.replace(panel, market=panel.market.until(DAYS[75]))
    said = str(behind_market(shorter)["AAA"])
    assert f"its latest row is of {DAYS[-1]:%Y-%m-%d}, but the market SPY ends on" in said
    assert f"{DAYS[75]:%Y-%m-%d}" in said
    few = dataclasses.replace(panel, market=panel.market.until(DAYS[76]))
    assert behind_market(few) == {}
    assert "SPY has no row yet on 2024-01-03" in str(behind_market(panel.until(DAYS[2]))["AAA"])


def test_what_cannot_be_a_market_is_said():
    panel = Panel.from_frame(table())
    wrongs: list[Any] = ["SPX", ["SPY", "SPX"], None, 5, [5]]
    for wrong in wrongs:
        with refuses(UsageError):
            panel.with_market(wrong)
    other = Panel.from_frame(table().rename(columns={"close": "y"})).with_market("SPY")
    with refuses(UsageError):
        choose_transform("auto", other)
    assert choose_transform("log_return", other).market == ("SPY",)
