"""Yahoo's daily prices: ``Ticker.history`` for each ticker, in a small pool of our own.

``yfinance.download`` hides which tickers failed and why, and its threads outlive Ctrl-C.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pandas as pd

from forecaster.errors import (
    BadAnswer,
    NoNetwork,
    NotFound,
    RateLimited,
    ServerError,
    SourceError,
    UsageError,
)
from forecaster.ingest.sources.source import Date, Fetched, Known, Stored
from forecaster.ingest.sources.update import bring_up_to_date, earliest
from forecaster.ingest.sources.yahoo.limiter import Limiter
from forecaster.ingest.sources.yahoo.pool import run_all
from forecaster.ingest.sources.yahoo.transport import open_session, through
from forecaster.series import exchange_of, last_closed, nearest_time, timezone_of

ATTEMPTS = 30  # requests for one ticker, most of them refused
# So many failures of a kind for one ticker, and no further attempt is made.
_MOST_FAILURES = {NoNetwork: 3, ServerError: 3, BadAnswer: 6}
_MOST_BROKEN = 8  # tickers in a row, and the server is taken to be out of order for all
_OVERDUE = 300.0  # seconds for one ticker, pauses not counted
_COLUMNS = {
    "Open": "open", "High": "high", "Low": "low", "Close": "close", "Adj Close": "adj_close",
    "Volume": "volume", "Dividends": "dividends", "Stock Splits": "splits",
}  # fmt: skip
_DAY = pd.Timedelta(days=1)
_EVER = pd.Timestamp("1800-01-01")  # before all prices


class Yahoo:
    """Yahoo's daily prices, unadjusted, with ``adj_close``, ``dividends`` and ``splits``.

    - ``requests_per_second``: at most, over all workers
    - ``workers``: threads
    - ``refresh``: fetch all history, whatever is stored
    - ``cool_down``: seconds of the first pause when Yahoo refuses and names none
    - ``on_wait(seconds)``: called at each pause
    - ``rewrite(url)``, ``now()``: for tests, the address to ask instead and the time (UTC)
    """

    name = "yahoo"

    def __init__(
        self,
        *,
        requests_per_second: float = 2.0,
        workers: int = 4,
        refresh: bool = False,
        cool_down: float = 30.0,
        on_wait: Callable[[float], None] | None = None,
        rewrite: Callable[[str], str] | None = None,
        now: Callable[[], pd.Timestamp] = lambda: pd.Timestamp.now("UTC"),
    ):
        if not requests_per_second > 0 or workers < 1:
            raise UsageError(
                f"--requests-per-second {requests_per_second:g}, --workers {workers}: expected "
                "more than 0"
            )
        self._rate, self._workers, self._refresh = requests_per_second, workers, refresh
        self._cool_down, self._on_wait, self._rewrite, self._now = cool_down, on_wait, rewrite, now

    def tickers(self) -> list[str]:
        """Raises UsageError: Yahoo has no list."""
        raise UsageError(
            "yahoo cannot list its tickers; name them: --tickers AAPL,MSFT, or --tickers FILE, "
            "e.g. sp500.txt"
        )

    def fingerprint(self) -> str | None:
        """None: only fetching can tell what is new."""
        return None

    def fetch(
        self, tickers: Sequence[str], start: Date | None = None, known: Known | None = None
    ) -> Iterator[Fetched]:
        """Each ticker as it arrives.

        Raises NoNetwork when Yahoo cannot be reached, RateLimited when it refuses everybody,
        ServerError when it is out of order.
        """
        limiter = Limiter(self._rate, self._cool_down, self._on_wait)
        client = _Client(limiter, self._rewrite)

        def work(name: str) -> Fetched:
            return self._fetch_one(client, name, start, None if known is None else known(name))

        def overdue(since: float) -> bool:
            return limiter.overdue(since, _OVERDUE)

        broken = 0  # tickers in a row that a server out of order did not give
        try:
            for name, result, error in run_all(work, tickers, self._workers, overdue):
                broken = broken + 1 if isinstance(error, ServerError | TimeoutError) else 0
                yield _failed(name, error) if error is not None else cast(Fetched, result)
                if broken >= _MOST_BROKEN:
                    raise ServerError(
                        f"{error}, and so for {broken} tickers in a row. What has arrived is kept; "
                        "run the same command again later"
                    )
        finally:
            limiter.stop()

    def _fetch_one(
        self, client: "_Client", name: str, start: Date | None, stored: Stored | None
    ) -> Fetched:
        exchange, zone = exchange_of(name), timezone_of(name)
        closed = last_closed(exchange, self._now(), zone)

        def get(since: pd.Timestamp | None) -> pd.DataFrame:
            frame = client.history(name, since, zone)
            final = last_closed(exchange, self._now(), zone or frame.attrs["timezone"])
            # The last row may be of a session still under way: its close is a latest price.
            done = frame[frame["ds"] <= final]
            if done.empty:
                raise NotFound("Yahoo has no prices for it in that span")
            return done

        if self._refresh and stored is not None:
            since = earliest(None if start is None else nearest_time(start), stored)
            return bring_up_to_date(name, get, None, since, closed)
        return bring_up_to_date(name, get, stored, start, closed)


class _Client:
    """yfinance, made to raise errors, with our own session and without its caches on disk."""

    def __init__(self, limiter: Limiter, rewrite: Callable[[str], str] | None):
        import yfinance

        _no_cache()
        yfinance.config.debug.hide_exceptions = False
        # Errors name every ticker once, in our words; their logs would repeat it.
        for logger in ("yfinance", "stamina"):
            logging.getLogger(logger).setLevel(logging.CRITICAL + 1)
        self._session = open_session(limiter, rewrite)

    def history(self, name: str, since: pd.Timestamp | None, zone: str | None) -> pd.DataFrame:
        """All rows from a date on, with ``timezone`` in ``attrs``. Raises SourceError."""
        import stamina

        options: Any = {"attempts": ATTEMPTS, "timeout": None, "wait_max": 10.0}
        failures: Counter[type] = Counter()  # refusals are the limiter's to count
        for attempt in stamina.retry_context(on=_worth_retrying, wait_initial=0.5, **options):
            with attempt:
                try:
                    return self._ask(name, since, zone)
                except (NoNetwork, ServerError, BadAnswer) as error:
                    failures[type(error)] += 1
                    error.final = failures[type(error)] >= _MOST_FAILURES[type(error)]
                    raise
        raise AssertionError("unreachable")

    def _ask(self, name: str, since: pd.Timestamp | None, zone: str | None) -> pd.DataFrame:
        import yfinance
        from yfinance.data import YfData

        # It caches error pages: a server that has recovered would not even be asked again.
        YfData.cache_get.cache_clear()
        # A day early: the session may have opened before midnight in the timezone assumed.
        first = pd.Timestamp("1962-01-02") if since is None else max(since, _EVER) - _DAY
        try:
            with through(self._session):
                ticker = yfinance.Ticker(name, session=self._session)
                if zone is not None and hasattr(ticker, "_tz"):
                    ticker._tz = zone  # else it asks twice for each ticker, once for the timezone
                table = ticker.history(
                    start=first, interval="1d", auto_adjust=False, actions=True, timeout=20
                )
        except (SourceError, KeyboardInterrupt):
            raise
        except Exception as error:  # yfinance raises whatever its parsing runs into
            raise _translated(error) from error
        frame = _tidy(name, table)
        return frame if since is None else _since(frame, since)


def _worth_retrying(error: Exception) -> bool | float:
    """Whether to ask again, or the seconds to wait before."""
    if not isinstance(error, ServerError | BadAnswer | NoNetwork | RateLimited) or error.final:
        return False
    return 0.01 if isinstance(error, RateLimited) else True  # the limiter waits for those


def _translated(error: Exception) -> SourceError:
    """An error of yfinance as one of ours."""
    kind = type(error).__name__
    text = str(error).splitlines()[0] if str(error) else "no details"
    if kind == "YFRateLimitError":
        return RateLimited("Yahoo refuses more requests for now (rate limit)")
    if kind in ("YFTzMissingError", "YFPricesMissingError", "YFTickerMissingError"):
        return NotFound("not found at Yahoo; delisted, or misspelled")
    return BadAnswer(f"Yahoo's answer cannot be used: {kind}: {text[:200]}")


def _failed(name: str, error: Exception) -> Fetched:
    """What an error means for one ticker. Raises an error that concerns all of them."""
    if isinstance(error, NoNetwork):
        raise NoNetwork(
            f"{error}. Check the network, or use --source files:PATH or --source simulated"
        ) from error
    if isinstance(error, RateLimited) and error.final:
        raise error
    if isinstance(error, SourceError | TimeoutError):
        return Fetched(name, None, str(error), suspect=isinstance(error, NotFound))
    raise error


def _tidy(name: str, table: pd.DataFrame) -> pd.DataFrame:
    """Bring yfinance's table into the layout of a source, with its timezone in ``attrs``."""
    frame = table.rename(columns=_COLUMNS)
    frame = frame.reindex(columns=list(_COLUMNS.values())).astype(float)
    frame[["dividends", "splits"]] = frame[["dividends", "splits"]].fillna(0.0)
    if "Capital Gains" in table:  # of funds; adj_close counts them as dividends
        frame["dividends"] += table["Capital Gains"].fillna(0.0).astype(float)
    times = pd.DatetimeIndex(frame.index)
    frame.insert(0, "unique_id", name)
    frame.insert(1, "ds", times.tz_localize(None).normalize().to_numpy("datetime64[ns]"))
    # A missing price is a gap, recorded as such; of a session given twice the first row counts.
    frame = frame.dropna(subset=["close"]).drop_duplicates("ds").reset_index(drop=True)
    frame.attrs["timezone"] = str(times.tz) if times.tz else None
    return frame


def _since(frame: pd.DataFrame, since: pd.Timestamp) -> pd.DataFrame:
    return frame[frame["ds"] >= since].reset_index(drop=True)


def _no_cache() -> None:
    """Keep yfinance from writing to the disk.

    It pickles cookies, and two processes lock each other out of its database. A folder that cannot
    be made turns its caches off.
    """
    import yfinance

    yfinance.set_tz_cache_location(str(Path(yfinance.__file__) / "no cache"))
