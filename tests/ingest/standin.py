"""Serve a stand-in for Yahoo on the loopback interface, with failures that a test chooses.

It serves the chart JSON, the crumb and the cookie page, so that real yfinance code runs against it.
"""

import contextlib
import dataclasses
import http.server
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np
import pandas as pd

from forecaster.series.calendar.exchanges import sessions

OPEN = pd.Timedelta("9h30min")


@dataclasses.dataclass
class Company:
    """One ticker's true history: raw closes, and splits and dividends by date.

    ``opening``: the local time that Yahoo stamps a session with.
    """

    days: pd.DatetimeIndex
    close: np.ndarray
    splits: dict[pd.Timestamp, float] = dataclasses.field(default_factory=dict)
    dividends: dict[pd.Timestamp, float] = dataclasses.field(default_factory=dict)
    zone: str = "America/New_York"
    opening: pd.Timedelta = OPEN

    @staticmethod
    def invented(name: str, first="2024-01-02", last="2024-06-28") -> "Company":
        days = pd.DatetimeIndex(sessions("XNYS", pd.Timestamp(first), pd.Timestamp(last)))
        seed = np.random.default_rng(list(name.encode()))
        close = np.round(100 * np.exp(np.cumsum(seed.normal(0, 0.01, len(days)))), 4)
        return Company(days, close)

    def adjusted(self) -> tuple[np.ndarray, np.ndarray]:
        """Return closes adjusted for splits, and for splits and dividends."""
        close = self.close.copy()
        for day, ratio in self.splits.items():
            close[self.days < day] /= ratio
        adjusted = close.copy()
        for day, paid in self.dividends.items():
            before = np.flatnonzero(self.days < day)
            if len(before):
                adjusted[before] *= 1 - paid / close[before[-1]]
        return close, adjusted


Trouble = Callable[["StandIn", str, int], object]


class StandIn:
    """The server: companies by symbol, and the failures to simulate.

    ``trouble(server, symbol, count)``: called for the ``count``-th chart request of a symbol, in
    the server's thread; returns None for a good answer, a failure named in :meth:`_answer`, or
    ``(429, seconds)``.
    """

    def __init__(self, today="2024-06-28 23:00"):
        self.companies: dict[str, Company] = {}
        self.trouble: Trouble = lambda server, symbol, count: None
        self.today = pd.Timestamp(today, tz="UTC")
        self.live: set[str] = set()  # symbols that get a row of the session under way
        self.requests: list[tuple[str, str]] = []  # kind, symbol
        self.asked: dict[str, list[dict]] = {}
        self._lock = threading.Lock()
        self._released = threading.Event()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def port(self) -> int:
        return self._server.server_port

    def rewrite(self, url: str) -> str:
        parts = urlsplit(url)
        return f"http://127.0.0.1:{self.port}{parts.path}?{parts.query}"

    def now(self) -> pd.Timestamp:
        return self.today

    def close(self) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()

    def charts(self) -> Counter:
        """Return the number of chart requests of each symbol."""
        return Counter(symbol for kind, symbol in self.requests if kind == "chart")

    def forget(self) -> None:
        self.requests.clear()
        self.asked.clear()

    def _chart(self, symbol: str, query: dict[str, list[str]]) -> dict:
        company = self.companies[symbol]
        first = pd.Timestamp(int(query.get("period1", ["0"])[0]), unit="s", tz="UTC")
        opens = (company.days + company.opening).tz_localize(company.zone)
        seen = (opens >= first) & (opens <= self.today)
        close, adjusted = (values[seen] for values in company.adjusted())
        stamps = [int(t.timestamp()) for t in opens[seen]]
        if symbol in self.live:
            stamps.append(int(self.today.timestamp()))
            moved = 1.5 if self.today.hour < 20 else 1.0  # the latest price, in the end the close
            close, adjusted = (np.append(v, moved * v[-1]) for v in (close, adjusted))
        column = [None if np.isnan(c) else float(c) for c in close]
        quote = {
            "open": column, "high": column, "low": column, "close": column,
            "volume": [1000] * len(column),
        }  # fmt: skip
        inside = {int(t.timestamp()) for t in opens[seen]}
        events: dict[str, dict] = {"dividends": {}, "splits": {}}
        for day, ratio in company.splits.items():
            at = int((day + company.opening).tz_localize(company.zone).timestamp())
            if at in inside:
                events["splits"][str(at)] = {
                    "date": at, "numerator": ratio, "denominator": 1, "splitRatio": f"{ratio}:1",
                }  # fmt: skip
        for day, paid in company.dividends.items():
            at = int((day + company.opening).tz_localize(company.zone).timestamp())
            if at in inside:
                events["dividends"][str(at)] = {"amount": paid, "date": at}
        meta = {
            "symbol": symbol, "currency": "USD", "exchangeTimezoneName": company.zone,
            "timezone": "EDT", "gmtoffset": -14400, "instrumentType": "EQUITY", "priceHint": 2,
            "dataGranularity": "1d", "range": "", "validRanges": ["1d", "max"],
            "regularMarketTime": int(self.today.timestamp()), "firstTradeDate": 345479400,
        }  # fmt: skip
        adjusted_column = [None if np.isnan(c) else float(c) for c in adjusted]
        result = {
            "meta": meta,
            "timestamp": stamps,
            "events": {kind: entries for kind, entries in events.items() if entries},
            "indicators": {"quote": [quote], "adjclose": [{"adjclose": adjusted_column}]},
        }
        return {"chart": {"result": [result], "error": None}}

    def _answer(self, symbol: str, query: dict[str, list[str]]) -> tuple[int, dict, bytes, int]:
        """Return status, headers, body, and the number of its bytes to send."""
        with self._lock:
            self.requests.append(("chart", symbol))
            self.asked.setdefault(symbol, []).append(query)
            count = len(self.asked[symbol])
            trouble = self.trouble(self, symbol, count)
        gone = {"chart": {"result": None, "error": {"code": "Not Found", "description":
                          "No data found, symbol may be delisted"}}}  # fmt: skip
        if isinstance(trouble, tuple):
            return trouble[0], {"Retry-After": str(trouble[1])}, b"Too Many Requests", 17
        if trouble == "hang":
            self._released.wait(600)
        if trouble is None and symbol not in self.companies:
            body = json.dumps(gone).encode()
            return 404, {}, body, len(body)
        if trouble in ("429", "500", "502"):
            return int(str(trouble)), {}, b"<html>oops</html>", 17
        if trouble == "html":
            return 200, {"Content-Type": "text/html"}, b"<html><body>Sorry</body></html>", 31
        if trouble == "garbage":
            return 200, {}, b'{"chart": {"result": [{"me', 26
        body = json.dumps(self._chart(symbol, query)).encode()
        return 200, {}, body, len(body) // 2 if trouble == "truncated" else len(body)

    def _handler(self):
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                parts = urlsplit(self.path)
                status, headers, body, sent = 200, {}, b"crumb", 5
                if "/chart/" in parts.path:
                    symbol = unquote(parts.path.rsplit("/", 1)[-1])
                    status, headers, body, sent = server._answer(symbol, parse_qs(parts.query))
                else:
                    server.requests.append((parts.path, ""))
                with contextlib.suppress(OSError):
                    self.send_response(status)
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body[:sent])

            do_POST = do_GET

            def log_message(self, format, *args):
                pass

        return Handler


@contextlib.contextmanager
def standing_in(**options) -> Iterator[StandIn]:
    server = StandIn(**options)
    try:
        yield server
    finally:
        server.close()


def slowly(seconds: float) -> Trouble:
    """Return a ``trouble`` that only delays good answers."""

    def wait(server: StandIn, symbol: str, count: int) -> None:
        time.sleep(seconds)

    return wait
