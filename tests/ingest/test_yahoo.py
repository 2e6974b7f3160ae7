"""Real yfinance code against a stand-in for Yahoo on the loopback interface."""

import http.server
import json
import threading
import time
from urllib.parse import urlsplit

import pandas as pd
import pytest

from forecaster.errors import SourceError, UsageError
from forecaster.ingest.yahoo import Yahoo, _closed_sessions, _tidy

DAYS = pd.to_datetime(["2024-06-27", "2024-06-28", "2024-07-01"]) + pd.Timedelta("13:30:00")


def chart(symbol: str) -> dict:
    """Three sessions, the middle one without a close."""
    quote = {
        "open": [10.0, None, 12.0],
        "high": [11.0, None, 13.0],
        "low": [9.0, None, 11.0],
        "close": [10.5, None, 12.5],
        "volume": [100, 0, 300],
    }
    meta = {
        "symbol": symbol, "currency": "USD", "exchangeTimezoneName": "America/New_York",
        "timezone": "EDT", "gmtoffset": -14400, "instrumentType": "EQUITY", "priceHint": 2,
        "dataGranularity": "1d", "range": "", "validRanges": ["1d", "max"],
        "regularMarketTime": int(DAYS[-1].timestamp()), "firstTradeDate": 345479400,
    }  # fmt: skip
    result = {
        "meta": meta,
        "timestamp": [int(day.timestamp()) for day in DAYS],
        "indicators": {"quote": [quote], "adjclose": [{"adjclose": [5.25, None, 6.25]}]},
    }
    return {"chart": {"result": [result], "error": None}}


class StandIn(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        path = urlsplit(self.path).path
        symbol = path.rsplit("/", 1)[-1]
        status, body = 200, b"crumb"
        if "/chart/" in path:
            status, body = {
                "GONE": (404, b'{"chart": {"result": null, "error": {"code": "Not Found"}}}'),
                "LIMIT": (429, b"Too Many Requests"),
                "BROKEN": (500, b"<html>oops</html>"),
            }.get(symbol, (200, json.dumps(chart(symbol)).encode()))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *args):
        pass


@pytest.fixture(scope="module")
def yahoo(tmp_path_factory):
    import curl_cffi.requests
    import yfinance

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), StandIn)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    class Loopback(curl_cffi.requests.Session):
        def request(self, method, url, *args, **kwargs):
            parts = urlsplit(url)
            local = f"http://127.0.0.1:{server.server_port}{parts.path}?{parts.query}"
            return super().request(method, local, *args, **kwargs)

    yfinance.set_tz_cache_location(str(tmp_path_factory.mktemp("yfinance")))
    yield Yahoo(session=Loopback())
    server.shutdown()


def test_prices_arrive_in_the_layout_of_the_store(yahoo):
    got = {item.unique_id: item for item in yahoo.fetch(["AAPL", "BRK-B"])}
    frame = got["AAPL"].frame
    assert list(frame) == [
        "unique_id", "ds", "open", "high", "low", "close", "adj_close", "volume",
    ]  # fmt: skip
    assert frame["ds"].astype(str).tolist() == ["2024-06-27", "2024-07-01"]
    assert frame["close"].tolist() == [10.5, 12.5] and frame["adj_close"].tolist() == [5.25, 6.25]
    assert set(got["BRK-B"].frame["unique_id"]) == {"BRK-B"}


def test_a_ticker_that_fails_is_named_and_the_others_arrive(yahoo):
    got = {item.unique_id: item for item in yahoo.fetch(["GONE", "AAPL", "BROKEN"])}
    assert got["AAPL"].frame is not None
    assert got["GONE"].frame is None and got["BROKEN"].frame is None
    assert "not found" in got["GONE"].reason
    assert "no usable answer" in got["BROKEN"].reason


def test_a_rate_limit_stops_everything_with_advice(yahoo):
    began = time.monotonic()
    with pytest.raises(SourceError, match=r"rate limit.*wait some minutes"):
        list(yahoo.fetch(["LIMIT"]))
    assert time.monotonic() - began < 60


def test_no_network_is_one_clear_error():
    import curl_cffi.requests

    class Nowhere(curl_cffi.requests.Session):
        def request(self, method, url, *args, **kwargs):
            return super().request(method, "http://127.0.0.1:9/", *args, **kwargs)

    with pytest.raises(SourceError, match=r"cannot be reached.*--source files:PATH"):
        list(Yahoo(session=Nowhere()).fetch(["AAPL"]))


def test_todays_open_session_is_left_out():
    now = pd.Timestamp.now("America/New_York")
    days = pd.DatetimeIndex([now.normalize() - pd.Timedelta(days=1), now.normalize()])
    table = pd.DataFrame({"Close": [1.0, 2.0]}, index=days)
    kept = _closed_sessions(_tidy("A", table))
    closed = now - now.normalize() >= pd.Timedelta(hours=16, minutes=30)
    assert len(kept) == (2 if closed else 1)


def test_yahoo_needs_a_list(yahoo):
    with pytest.raises(UsageError, match="--tickers FILE"):
        yahoo.tickers()
