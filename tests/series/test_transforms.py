"""Transforms: causal, invertible, and honest about series they cannot take."""

import numpy as np
import pandas as pd
import pytest

from forecaster.errors import Kind, Skipped
from forecaster.series.any_series import AnySeries
from forecaster.series.combination.nature import Nature
from forecaster.series.panel.panel import Panel
from forecaster.series.transform_by_name import choose_transform, transform_class
from forecaster.series.transforms import NAMES, Transform

ROWS, HORIZON = 60, 3


def market(seed: int = 0, series: int = 3) -> pd.DataFrame:
    """Return prices of several tickers with unequal starts and a gap."""
    random = np.random.default_rng(seed)
    parts = []
    for k in range(series):
        close = 50 * np.exp(np.cumsum(random.normal(0, 0.02, ROWS)))
        part = pd.DataFrame(
            {
                "unique_id": f"s{k}",
                "ds": pd.bdate_range("2024-01-01", periods=ROWS),
                "open": close * np.exp(random.normal(0, 0.005, ROWS)),
                "high": close * 1.02,
                "low": close * 0.97,
                "close": close,
                "volume": random.integers(1, 10**6, ROWS).astype(float),
            }
        )
        parts.append(part.drop(index=[20 + k]).iloc[5 * k :])
    return pd.concat(parts, ignore_index=True)


def any_series(table: pd.DataFrame) -> pd.DataFrame:
    return table.rename(columns={"close": "y"})[["unique_id", "ds", "y"]]


@pytest.mark.parametrize("name", NAMES)
def test_targets_turn_back_into_the_series(name):
    panel = Panel.from_frame(market())
    transform = transform_class(name)(name)
    t = transform.apply(panel, HORIZON)
    back = t.invert(t.base + t.scale * t.targets())
    y = t.invert(t.z)
    for row in range(3):
        for h in range(HORIZON):
            first = t.first[row]
            got = back[row, first : -(h + 1), h]
            np.testing.assert_allclose(got, y[row, first + h + 1 :], rtol=1e-5)
    assert np.isnan(t.targets()[:, -1]).all()  # the future of the last row is unknown


def test_missing_highs_volumes_and_opens_do_not_spread():
    table = market()
    table.loc[30, ["open", "high", "volume"]] = np.nan
    table.loc[31, "volume"] = 0
    t = Transform("log_return").apply(Panel.from_frame(table), HORIZON)
    assert np.isfinite(t.features).all()
    assert np.isfinite(t.targets()[0, t.first[0] : -HORIZON]).all()


def test_transforms_are_chosen_by_what_the_series_are():
    prices = Panel.from_frame(market())
    weekdays = Panel.from_frame(any_series(market()))
    assert choose_transform("auto", prices) == Transform("log_return")
    on_weekdays = Nature(
        logarithmic=True, seasons=(5,), spacing=86_400.0, rhythm="B", open=(0, 1, 2, 3, 4)
    )
    natures = dict.fromkeys(weekdays.ids, on_weekdays)
    assert choose_transform("auto", weekdays) == AnySeries("combined", natures=natures)


def test_unusable_series_are_named_with_the_day():
    table = market()
    table.loc[table.unique_id == "s1", "close"] = 5.0
    table.loc[(table.unique_id == "s2") & (table.ds == "2024-02-15"), "close"] = -1.5
    still = Skipped(Kind.CONSTANT, column="close")
    assert Transform("log_return").reasons(Panel.from_frame(table)) == {
        "s1": still,
        "s2": Skipped(Kind.NOT_POSITIVE, column="close", value=-1.5, first="2024-02-15"),
    }
    assert Transform("difference").reasons(Panel.from_frame(table)) == {"s1": still}
