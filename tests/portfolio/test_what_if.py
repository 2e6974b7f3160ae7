"""A next session that has not come, and past sessions once more."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

import forecaster as fc
from forecaster.errors import UsageError
from forecaster.portfolio import after_moves, moves_between
from tests import common_market
from tests.messages import refuses

BETA = {"M": 1.0, "A": 1.5, "B": -0.5, "OLD": 1.0}


@pytest.fixture(scope="module")
def panel() -> fc.Panel:
    """Stocks that are their betas times the market; one ends ten sessions early."""
    market = np.random.default_rng(0).normal(0, 0.01, 400)
    parts = []
    for name, beta in BETA.items():
        close = 50 * np.exp(np.cumsum(beta * market))
        bars = pd.DataFrame({"ticker": name, "date": pd.bdate_range("2020-01-01", periods=400)})
        bars["open"] = np.append(50.0, close[:-1])
        bars["high"] = np.maximum(bars["open"], close) * 1.002
        bars["low"] = np.minimum(bars["open"], close) * 0.997
        bars["close"], bars["volume"] = close, 1e6 * (1 + 50 * np.abs(np.append(0, market[1:])))
        parts.append(bars[: 390 if name == "OLD" else 400])
    return fc.load_panel(pd.concat(parts))


def test_the_session_that_is_filled_in_is_plausible(panel):
    panel = panel.with_peers(["A", "B"])
    after, moved = after_moves(panel, {"M": -0.05}, ["M"])
    assert moved == pytest.approx({"M": -0.05, "A": 0.95**1.5 - 1, "B": 0.95**-0.5 - 1})
    assert after.times[-1] == np.datetime64(pd.bdate_range(panel.times[-1], periods=2)[1], "ns")
    assert after.mask[:, -1].tolist() == [True, True, True, False]
    np.testing.assert_array_equal(after.values[:, :-1], panel.values)
    row = dict(zip(after.channels, after.values[0, -1], strict=True))  # of A
    closed = panel.channel("close")[0, -1]
    assert row["open"] == closed and row["close"] == pytest.approx(closed * 0.95**1.5)
    assert row["high"] == pytest.approx(closed * 1.002)
    assert row["low"] == pytest.approx(row["close"] * 0.997)
    usual = np.median(panel.channel("volume")[0])
    assert 1.5 * usual < row["volume"] <= panel.channel("volume")[0].max()
    assert after.peers is not None
    np.testing.assert_array_equal(after.peers.values[:, -1], after.values[:2, -1])


def test_several_moves_and_a_market_beside(panel):
    _, moved = after_moves(panel, {"A": 0.02, "B": 0.01}, ["M"])
    assert moved == pytest.approx({"A": 0.02, "B": 0.01, "M": 0})
    beside = panel.with_market("M", forecast=False)
    later = pd.Timestamp(beside.times[-1]) - pd.Timedelta(days=7)  # the market knows more
    beside = dataclasses.replace(beside.until(later), market=beside.market)
    after, moved = after_moves(beside, {"M": -0.05}, ["M"])
    assert "M" not in moved and moved["A"] == pytest.approx(0.95**1.5 - 1)
    assert after.market is not None
    assert after.market.times[-1] == after.times[-1] and after.market.mask[0, -1]
    with refuses(UsageError):
        after_moves(panel, {"SPY": -0.05})


def test_a_stock_moves_alone():
    panel = common_market.panel(series=12, share=0.1)  # of independent returns
    after, moved = after_moves(panel, {"S03": -0.1})
    assert moved == pytest.approx({name: -0.1 * (name == "S03") for name in panel.ids})
    assert np.isfinite(after.values[:, -1]).all()


def test_past_moves_are_those_of_closes(panel):
    a, b, _, old = panel.channel("close")
    dates = [str(time)[:10] for time in panel.times]
    day = moves_between(panel, dates[100])
    assert day["A"] == pytest.approx(a[100] / a[99] - 1)
    span = moves_between(panel, f"{dates[380]}:{dates[395]}")
    assert span["B"] == pytest.approx(b[395] / b[379] - 1)
    assert span["OLD"] == pytest.approx(old[389] / old[379] - 1)
    assert "OLD" not in moves_between(panel, dates[395])


@pytest.mark.parametrize(
    "span", ["2019-01-01", "2030-01-01", "2020-01-01", "2021-02-30", "x", "a:b:c"]
)
def test_other_spans_are_refused(panel, span):
    with refuses(UsageError):
        moves_between(panel, span)


def test_a_day_of_2008_on_real_stocks(real_data):
    names = ["BAC", "GE", "KO", "XRAY"]
    rows = pd.read_parquet(
        real_data / "us_stocks_2000_2015.parquet", filters=[("ticker", "in", names)]
    )
    panel = fc.load_panel(rows)
    close = rows.pivot(index="date", columns="ticker", values="adj_close").set_axis(
        pd.to_datetime(rows["date"].unique()).sort_values()
    )
    expected = close.pct_change(fill_method=None).loc["2008-10-15"]
    moved = moves_between(panel, "2008-10-15")
    assert moved == pytest.approx({name: expected[name] for name in panel.ids}, rel=1e-5)
    assert moved["BAC"] < -0.09
