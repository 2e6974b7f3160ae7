"""Daily prices from Yahoo Finance through yfinance.

Not an official interface, and Yahoo's terms allow personal use only. ``Ticker.history`` is called
for each ticker in a small pool of our own, because ``yfinance.download`` hides which tickers
failed and why.
"""

import concurrent.futures
import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pandas as pd

from forecaster.errors import SourceError, UsageError
from forecaster.ingest.source import Fetched

WORKERS = 4
_CLOSED_AFTER = pd.Timedelta(hours=16, minutes=30)  # local time; the close plus a margin
_COLUMNS = {
    "Open": "open", "High": "high", "Low": "low", "Close": "close", "Adj Close": "adj_close",
    "Volume": "volume",
}  # fmt: skip


class Yahoo:
    """Yahoo's daily prices, unadjusted with ``adj_close`` beside them."""

    name = "yahoo"

    def __init__(self, session: Any = None):
        """``session``: the ``curl_cffi`` session to use; by default yfinance makes its own."""
        self._session = session

    def tickers(self) -> list[str]:
        raise UsageError(
            "yahoo cannot list its tickers; name them with --tickers FILE, e.g. --tickers sp500.txt"
        )

    def fetch(self, tickers: Sequence[str], start=None, end=None) -> Iterator[Fetched]:
        """Fetch in parallel; each ticker is given as it arrives.

        Raises SourceError when there is no network or Yahoo refuses everybody.
        """
        import yfinance

        yfinance.config.debug.hide_exceptions = False
        # What it logs is said in our own words, once per ticker.
        logging.getLogger("yfinance").setLevel(logging.CRITICAL + 1)
        pool = concurrent.futures.ThreadPoolExecutor(WORKERS)
        jobs = {pool.submit(self._one, name, start, end): name for name in tickers}
        try:
            for job in concurrent.futures.as_completed(jobs):
                yield job.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _one(self, name: str, start, end) -> Fetched:
        import yfinance

        try:
            table = yfinance.Ticker(name, session=self._session).history(
                # "max" with an explicit end is not allowed, hence a start before every listing.
                start=pd.Timestamp(start or "1962-01-01"),
                end=None if end is None else pd.Timestamp(end) + pd.Timedelta(days=1),
                interval="1d",
                auto_adjust=False,
                actions=False,
            )
        except Exception as error:  # yfinance raises whatever its parsing runs into
            return Fetched(name, None, _reason(error))
        if table.empty:
            return Fetched(name, None, "Yahoo has no prices for it in that span")
        return Fetched(name, _closed_sessions(_tidy(name, table)))


def _tidy(name: str, table: pd.DataFrame) -> pd.DataFrame:
    frame = table.rename(columns=_COLUMNS)
    frame = frame[[column for column in _COLUMNS.values() if column in frame]].astype(float)
    sessions = pd.DatetimeIndex(frame.index)
    zone = sessions.tz
    frame.insert(0, "unique_id", name)
    frame.insert(1, "ds", sessions.tz_localize(None).normalize().to_numpy("datetime64[ns]"))
    frame = frame.dropna(subset=["close"]).reset_index(drop=True)
    frame.attrs["timezone"] = str(zone) if zone else None
    return frame


def _closed_sessions(frame: pd.DataFrame) -> pd.DataFrame:
    """Without today's session while it is still under way: its "close" is only the latest price."""
    now = pd.Timestamp.now(frame.attrs["timezone"] or "UTC").tz_localize(None)
    open_today = (frame["ds"] == now.normalize()) & (now - now.normalize() < _CLOSED_AFTER)
    return frame[~open_today].reset_index(drop=True)


def _reason(error: Exception) -> str:
    """One line that a user understands. Raises SourceError where no ticker could be had."""
    kind = type(error).__name__
    text = str(error)
    if kind == "YFRateLimitError":
        raise SourceError(
            "Yahoo refuses more requests for now (rate limit). What has arrived is kept; "
            "wait some minutes and run the same command again"
        ) from error
    if any(word in kind for word in ("Connection", "DNS", "Timeout", "ProxyError")):
        raise SourceError(
            f"Yahoo cannot be reached: {text.split('. See ')[0] if text else kind}. Check the "
            "network, or use --source files:PATH or --source simulated"
        ) from error
    if kind in ("YFTzMissingError", "YFPricesMissingError", "YFTickerMissingError"):
        return "not found at Yahoo; delisted, or misspelled"
    if kind in ("JSONDecodeError", "YFDataException"):
        # yfinance does not tell a missing ticker's page from a broken server's.
        return (
            "Yahoo gave no usable answer: not found there, or out of order; check it, or try later"
        )
    return f"{kind}: {text.splitlines()[0] if text else 'no details'}"
