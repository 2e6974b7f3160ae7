"""Real yfinance code against a stand-in for Yahoo on the loopback interface."""

import time
from typing import Any

import numpy as np
import pandas as pd
import pytest

from forecaster.errors import RateLimited, UsageError
from forecaster.ingest.sources.source import Stored
from forecaster.ingest.sources.yahoo import Yahoo
from forecaster.series.calendar.exchanges import sessions
from tests.ingest.standin import Company, StandIn, standing_in
from tests.messages import refuses
from tests.slow import rest_slow


@pytest.fixture
def server():
    with standing_in() as server:
        for name in ("AAPL", "BRK-B", "KO"):
            server.companies[name] = Company.invented(name)
        yield server


def yahoo(server: StandIn, **options) -> Yahoo:
    options = {"requests_per_second": 500.0, "cool_down": 0.05, **options}
    return Yahoo(rewrite=server.rewrite, now=server.now, **options)


def fetch(server: StandIn, names, start=None, known=None, **options) -> dict[str, Any]:
    return {item.unique_id: item for item in yahoo(server, **options).fetch(names, start, known)}


def test_prices_arrive_in_the_layout_of_the_store(server):
    server.companies["KO"].close[3] = np.nan
    server.companies["KO"].splits[pd.Timestamp("2024-03-01")] = 2.0
    server.companies["KO"].dividends[pd.Timestamp("2024-05-01")] = 0.5
    got = fetch(server, ["AAPL", "BRK-B", "KO"])
    frame = got["KO"].frame
    assert list(frame) == [
        "unique_id", "ds", "open", "high", "low", "close", "adj_close", "volume", "dividends",
        "splits",
    ]  # fmt: skip
    company = server.companies["KO"]
    close, adjusted = company.adjusted()
    there = np.isfinite(close)
    assert frame["ds"].tolist() == company.days[there].tolist()
    np.testing.assert_allclose(frame["close"], close[there])
    np.testing.assert_allclose(frame["adj_close"], adjusted[there])
    assert frame.set_index("ds")["splits"].loc["2024-03-01"] == 2.0
    assert frame.set_index("ds")["dividends"].loc["2024-05-01"] == 0.5
    assert set(got["BRK-B"].frame["unique_id"]) == {"BRK-B"}


def test_one_request_a_ticker_and_one_cookie(server):
    fetch(server, ["AAPL", "BRK-B", "KO"])
    assert set(server.charts().values()) == {1}
    assert len(server.requests) <= 3 + 2  # yfinance may keep its cookie from another test


def test_a_ticker_that_fails_is_named_and_the_others_arrive(server):
    server.trouble = lambda server, symbol, count: "html" if symbol == "KO" else None
    got = fetch(server, ["GONE", "AAPL", "KO"])
    assert got["AAPL"].frame is not None
    assert got["GONE"].frame is None and got["KO"].frame is None
    assert got["GONE"].suspect and "No data found, symbol may be delisted" in got["GONE"].reason
    assert not got["KO"].suspect and "not the JSON" in got["KO"].reason
    assert server.charts()["GONE"] == 1


@pytest.mark.parametrize("trouble", ["429", (429, 0), "500", "502", "html", "garbage", "truncated"])
def test_what_passes_is_tried_again(server, trouble):
    server.trouble = lambda server, symbol, count: trouble if count <= 2 else None
    got = fetch(server, ["AAPL"])
    assert got["AAPL"].frame is not None
    assert server.charts()["AAPL"] == 3


def test_a_pause_is_shared_and_as_long_as_the_server_says(server):
    arrived: list[float] = []  # times of requests; an assert in the server's thread would be lost
    paused: list[float] = []
    waits: list[float] = []

    def trouble(server, symbol, count):
        arrived.append(time.monotonic())
        return (429, 1) if len(arrived) == 1 else None

    def on_wait(seconds):
        paused.append(time.monotonic())
        waits.append(seconds)

    server.trouble = trouble
    names = [f"T{i}" for i in range(12)]
    server.companies |= {name: Company.invented(name) for name in names}
    got = fetch(server, names, on_wait=on_wait, workers=4)
    assert all(item.frame is not None for item in got.values())
    assert waits == [1.0] and len(arrived) == 13
    under_way = [at for at in arrived if paused[0] < at < paused[0] + 0.9]
    assert len(under_way) <= 3, under_way  # sent by the other three workers before the pause


def test_a_lasting_refusal_ends_with_advice(server):
    server.trouble = lambda server, symbol, count: "429"
    with refuses(RateLimited):
        fetch(server, ["AAPL", "KO"], cool_down=0.01)


def test_the_session_under_way_is_left_out():
    with standing_in(today="2024-06-28 17:00") as server:  # 13:00 in New York
        server.companies["AAPL"] = Company.invented("AAPL")
        server.live.add("AAPL")
        frame = fetch(server, ["AAPL"])["AAPL"].frame
        assert str(frame["ds"].iloc[-1].date()) == "2024-06-27"
        server.today = pd.Timestamp("2024-06-28 20:45", tz="UTC")
        frame = fetch(server, ["AAPL"])["AAPL"].frame
        assert str(frame["ds"].iloc[-1].date()) == "2024-06-28"
        close = server.companies["AAPL"].close[-1]
        assert frame["close"].iloc[-1] == close  # not the latest price, which is also in the answer


def stored_until(server: StandIn, name: str, day: str) -> Stored:
    frame = fetch(server, [name])[name].frame
    return Stored(frame[frame["ds"] <= day].reset_index(drop=True), None)


def test_an_update_asks_for_what_is_missing_and_a_little_more(server):
    stored = stored_until(server, "AAPL", "2024-06-20")
    whole = fetch(server, ["AAPL"])["AAPL"].frame
    server.forget()
    item = fetch(server, ["AAPL"], known=lambda name: stored)["AAPL"]
    pd.testing.assert_frame_equal(item.frame, whole)
    (query,) = server.asked["AAPL"]
    since = pd.Timestamp(int(query["period1"][0]), unit="s")
    assert pd.Timestamp("2024-05-30") < since < pd.Timestamp("2024-06-10")


def test_nothing_new_asks_for_nothing(server):
    stored = stored_until(server, "AAPL", "2024-06-28")
    server.forget()
    assert fetch(server, ["AAPL"], known=lambda name: stored)["AAPL"].unchanged
    assert not server.requests
    assert fetch(server, ["AAPL"], known=lambda n: stored, refresh=True)["AAPL"].frame is not None


@pytest.mark.parametrize("action", ["split", "dividend", "rewritten"])
def test_rewritten_history_is_fetched_whole(server, action):
    company = server.companies["AAPL"]
    stored = stored_until(server, "AAPL", "2024-06-20")
    if action == "split":
        company.splits[pd.Timestamp("2024-06-25")] = 4.0
    elif action == "dividend":
        company.dividends[pd.Timestamp("2024-06-25")] = 0.05
    else:
        company.close[:-3] *= 1.01
    item = fetch(server, ["AAPL"], known=lambda name: stored)["AAPL"]
    server.forget()
    pd.testing.assert_frame_equal(item.frame, fetch(server, ["AAPL"])["AAPL"].frame)


# Symbol, timezone, the local time that Yahoo stamps sessions with, calendar.
CLOCKS = [
    ("7203.T", "Asia/Tokyo", "9h", "XTKS"),
    ("BHP.AX", "Australia/Sydney", "10h", "XASX"),  # opens on the day before, by UTC
    ("AIR.NZ", "Pacific/Auckland", "10h", "XNZE"),
    ("SHEL.L", "Europe/London", "8h", "XLON"),
    ("PETR4.SA", "America/Sao_Paulo", "10h", "BVMF"),
    ("AAPL", "America/New_York", "9h30min", "XNYS"),
    ("ES=F", "America/New_York", "0h", "CMES"),
    ("EURUSD=X", "Europe/London", "0h", "24/5"),  # at 23:00 of the day before in summer, by UTC
    ("BTC-USD", "UTC", "0h", "24/7"),
]


@pytest.mark.parametrize(("symbol", "zone", "opening", "calendar"), rest_slow(CLOCKS, 3))
def test_days_are_those_of_the_exchange_across_changes_of_the_clock(
    symbol, zone, opening, calendar, server
):
    """Compare one fetch with updates shortly before and after each change of any clock."""
    days = pd.DatetimeIndex(
        sessions(calendar, pd.Timestamp("2023-08-01"), pd.Timestamp("2024-12-31"))
    )
    close = np.round(100 + np.arange(len(days)) * 0.01, 2)
    server.companies[symbol] = Company(days, close, zone=zone, opening=pd.Timedelta(opening))
    server.today = pd.Timestamp("2025-01-03", tz="UTC")
    whole = fetch(server, [symbol])[symbol]
    assert whole.frame["ds"].tolist() == days.tolist()
    np.testing.assert_array_equal(whole.frame["close"], close)
    server.today = pd.Timestamp("2023-09-20 03:00", tz="UTC")
    stored = fetch(server, [symbol])[symbol].frame
    # New York, London, Sydney and Auckland, in spring and autumn, at various hours.
    moments = [
        "2023-09-25 06:00", "2023-10-02 23:30", "2023-10-30 01:00", "2023-11-06 14:00",
        "2024-03-08 22:00", "2024-03-11 13:45", "2024-04-02 00:10", "2024-04-08 21:15",
        "2024-10-28 07:59", "2024-11-04 15:30", "2025-01-03 00:00",
    ]  # fmt: skip
    for moment in moments:
        server.today = pd.Timestamp(moment, tz="UTC")
        item = fetch(server, [symbol], known=lambda name, have=stored: Stored(have, None))[symbol]
        assert item.frame is not None or item.unchanged, item.reason
        stored = stored if item.frame is None else item.frame
        local = server.today.tz_convert(zone).tz_localize(None)
        assert stored["ds"].is_unique and stored["ds"].max() <= local
        assert stored["ds"].tolist() == days[days <= stored["ds"].max()].tolist()
        assert local - stored["ds"].max() < pd.Timedelta("6D")
    pd.testing.assert_frame_equal(stored, whole.frame)


def test_yahoo_needs_a_list_and_sensible_options(server):
    with refuses(UsageError):
        yahoo(server).tickers()
    with refuses(UsageError):
        yahoo(server, requests_per_second=0.0)
