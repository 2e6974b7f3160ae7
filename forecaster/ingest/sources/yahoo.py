"""Fetch Yahoo's daily prices by ``yfinance.Ticker.history`` in a small pool of threads.

This is not an official interface, and Yahoo's terms allow personal use only.
``yfinance.download`` hides which tickers failed and why, and its threads outlive Ctrl-C. A stored
series is brought up to date by few rows, unless its history was rewritten.
"""

import dataclasses
import logging
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.pool import ThreadPool
from pathlib import Path

import numpy as np
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
from forecaster.ingest.sources.yahoo_http import TIMEOUT, Limiter, the_session
from forecaster.series import exchange_of, last_closed, nearest_time, timezone_of

OVERLAP = 10  # stored sessions that are fetched again
_ACTIONS = ("dividends", "splits")
_PRICES = ("open", "high", "low", "close", "adj_close")
_TOLERANCE = 1e-5  # relative; a dividend of 1/10,000 of the price exceeds it
_LOST = 5  # stored sessions that a new answer may lack

Get = Callable[[pd.Timestamp | None], pd.DataFrame]
_ATTEMPTS = 30  # requests for one ticker, refused ones included
_MOST_FAILURES = 4  # for one ticker, refusals aside
_MOST_BROKEN = 8  # tickers in a row with server errors before the whole run is given up
_COLUMNS = {
    "Open": "open", "High": "high", "Low": "low", "Close": "close", "Adj Close": "adj_close",
    "Volume": "volume", "Dividends": "dividends", "Stock Splits": "splits",
}  # fmt: skip
_DAY = pd.Timedelta(days=1)
_EVER = pd.Timestamp("1800-01-01")  # before all prices


def bring_up_to_date(
    name: str, get: Get, stored: Stored | None, start: Date | None, last_closed: pd.Timestamp
) -> Fetched:
    """Fetch the missing rows of a series; return the whole series.

    - ``get(since)``: fetches the rows from a date on; all of them for None
    - ``stored``: the stored series; None: there is none
    - ``start``: the first date that is wanted; None: all history
    - ``last_closed``: the latest session that can have prices; if it is stored already, nothing is
      fetched

    The last ``OVERLAP`` stored sessions are fetched again. If they no longer agree, or if there is
    a new split or dividend, history has been rewritten and is fetched as a whole. If the answer
    then lacks a few stored sessions, these are kept, on the scale of the answer. If it lacks many,
    the answer is rejected, and the stored series is kept and marked as suspect.
    """
    since = None if start is None else nearest_time(start)
    if stored is None:
        return Fetched(name, get(since))
    asked = None if stored.asked_from is None else nearest_time(stored.asked_from)
    since = None if since is None or asked is None else min(since, asked)
    if stored.frame.empty:
        return Fetched(name, get(since))
    if since != asked:
        return _refetched(name, stored.frame, get(since))
    if stored.frame["ds"].iloc[-1] >= last_closed:
        return Fetched(name, None, unchanged=True)
    overlap = stored.frame.iloc[-OVERLAP:]
    latest = get(overlap["ds"].iloc[0])
    if agree(overlap, latest) and not _new_action(overlap, latest):
        kept = stored.frame[~stored.frame["ds"].isin(latest["ds"])]
        both = pd.concat([kept, latest], ignore_index=True)
        both = both.sort_values("ds", ignore_index=True)
        return Fetched(name, both, kept=kept["ds"])
    return _refetched(name, stored.frame, get(asked))


def agree(stored: pd.DataFrame, latest: pd.DataFrame) -> bool:
    """Return whether the answer repeats the prices and actions of the stored sessions.

    It may lack a few sessions. Volumes are revised for weeks, so they are not compared.
    """
    both = stored.merge(latest, on="ds", suffixes=("", "_new"))
    if len(stored) - len(both) > min(_LOST, len(stored) // 2):
        return False
    columns = [c for c in (*_PRICES, *_ACTIONS) if c in stored and c in latest]
    old = both[columns].to_numpy(float)
    new = both[[f"{column}_new" for column in columns]].to_numpy(float)
    return np.allclose(old, new, rtol=_TOLERANCE, atol=1e-9, equal_nan=True)


def _new_action(overlap: pd.DataFrame, latest: pd.DataFrame) -> bool:
    new = latest[latest["ds"] > overlap["ds"].iloc[-1]]
    neutral = {"splits": (0.0, 1.0), "dividends": (0.0,)}
    return any(c in new and not new[c].fillna(0.0).isin(neutral[c]).all() for c in _ACTIONS)


def _refetched(name: str, stored: pd.DataFrame, whole: pd.DataFrame) -> Fetched:
    """Return a series that was fetched as a whole, with the stored sessions that it lacks added.

    If it lacks many, it is rejected as suspect.
    """
    lost = stored[~stored["ds"].isin(whole["ds"])]
    if len(lost) > _LOST:
        return Fetched(
            name,
            None,
            f"the source now lacks {len(lost)} of the {len(stored)} stored sessions, which are "
            "kept. `forecaster ingest --refresh` replaces them by the source's",
            suspect=True,
        )
    if lost.empty:
        return Fetched(name, whole)
    lost = _on_scale_of(lost, stored, whole)
    both = pd.concat([whole, lost], ignore_index=True).sort_values("ds", ignore_index=True)
    return Fetched(name, both.reindex(columns=whole.columns))


def _on_scale_of(lost: pd.DataFrame, stored: pd.DataFrame, whole: pd.DataFrame) -> pd.DataFrame:
    """Return stored sessions at the prices that the source would give now.

    Later splits and dividends have rescaled prices, by the factor of the nearest common session.
    """
    both = stored.merge(whole, on="ds", suffixes=("", "_new")).set_index("ds")
    lost = lost.copy()
    for column in _PRICES:
        if column in lost and f"{column}_new" in both and len(both):
            factor = both[f"{column}_new"] / both[column]
            near = factor.reindex(lost["ds"], method="nearest").fillna(1.0)
            lost[column] *= near.to_numpy()
    return lost


@dataclasses.dataclass(kw_only=True)
class Yahoo:
    """Yahoo's daily prices, unadjusted, with ``adj_close``, ``dividends`` and ``splits``.

    - ``requests_per_second``: maximum over all workers
    - ``workers``: number of threads
    - ``refresh``: whether to fetch all history, even if it is stored
    - ``cool_down``: seconds of the first pause after a refusal, unless Yahoo asks for another time
    - ``on_wait(seconds)``: called at each pause
    - ``rewrite(url)``, ``now()``: for tests; the URL to request instead, and the time (UTC)
    """

    name = "yahoo"

    requests_per_second: float = 2.0
    workers: int = 4
    refresh: bool = False
    cool_down: float = 30.0
    on_wait: Callable[[float], None] | None = None
    rewrite: Callable[[str], str] | None = None
    now: Callable[[], pd.Timestamp] = lambda: pd.Timestamp.now("UTC")

    def __post_init__(self) -> None:
        if not self.requests_per_second > 0:
            raise UsageError(
                f"--requests-per-second {self.requests_per_second:g}: expected more than 0"
            )
        if self.workers < 1:
            raise UsageError(f"--workers {self.workers}: expected a whole number of 1 or more")

    def tickers(self) -> list[str]:
        """Raise UsageError, since Yahoo has no list of its tickers."""
        raise UsageError(
            "yahoo cannot list its tickers; name them: --tickers AAPL,MSFT, or --tickers FILE, "
            "e.g. sp500.txt"
        )

    def fingerprint(self) -> str | None:
        """Return None, since only fetching shows whether there is anything new."""
        return None

    def fetch(
        self, tickers: Sequence[str], start: Date | None = None, known: Known | None = None
    ) -> Iterator[Fetched]:
        """Yield each ticker as it arrives.

        Raises NoNetwork if Yahoo cannot be reached, RateLimited if it refuses all requests, and
        ServerError if its server fails for many tickers in a row.
        """
        limiter = Limiter(self.requests_per_second, self.cool_down, self.on_wait, self.rewrite)
        _prepare(limiter)

        def work(name: str) -> tuple[Fetched, SourceError | None]:
            stored = None if known is None else known(name)
            try:
                return self._fetch_one(limiter, name, start, stored), None
            except NoNetwork as error:  # of this and of a lasting refusal all tickers suffer
                advice = "Check the network, or use --source files:PATH or --source simulated"
                raise NoNetwork(f"{error}. {advice}") from error
            except SourceError as error:
                if isinstance(error, RateLimited) and error.final:
                    raise
                return Fetched(name, None, str(error), suspect=isinstance(error, NotFound)), error

        broken = 0  # tickers in a row with server errors
        try:
            # Unlike those of concurrent.futures, its threads do not make Ctrl-C wait for a request.
            with ThreadPool(self.workers) as pool:
                for one, error in pool.imap_unordered(work, tickers):
                    yield one
                    broken = broken + 1 if isinstance(error, ServerError) else 0
                    if broken >= _MOST_BROKEN:
                        raise ServerError(
                            f"{error}, for {broken} tickers in a row. What has arrived is kept; "
                            "run the same command again later"
                        )
        finally:
            limiter.stopped.set()

    def _fetch_one(
        self, limiter: Limiter, name: str, start: Date | None, stored: Stored | None
    ) -> Fetched:
        exchange, zone = exchange_of(name), timezone_of(name)
        closed = last_closed(exchange, self.now(), zone)

        def get(since: pd.Timestamp | None) -> pd.DataFrame:
            frame = _history(limiter, name, since, zone)
            final = last_closed(exchange, self.now(), zone or frame.attrs["timezone"])
            # The last session may not have ended; its close would then be only the latest price.
            done = frame[frame["ds"] <= final]
            if done.empty:
                raise NotFound("Yahoo has no prices for it in that span")
            return done

        if self.refresh and stored is not None:
            stored = stored._replace(frame=stored.frame[:0])
        return bring_up_to_date(name, get, stored, start, closed)


def _prepare(limiter: Limiter) -> None:
    """Let yfinance ask through our own session, without caches on disk, and raise its errors."""
    import yfinance

    # Its cache pickles cookies, and two processes lock each other out of its database. A path
    # that cannot be created turns the cache off.
    yfinance.set_tz_cache_location(str(Path(yfinance.__file__) / "no cache"))
    yfinance.config.debug.hide_exceptions = False
    # Our errors name every ticker that failed; its log would only repeat them.
    logging.getLogger("yfinance").setLevel(logging.CRITICAL + 1)
    the_session().limiter = limiter


def _history(
    limiter: Limiter, name: str, since: pd.Timestamp | None, zone: str | None
) -> pd.DataFrame:
    """Fetch all rows from a date on, with retries; their timezone is in the frame's ``attrs``.

    ``zone``: the exchange's timezone if it is known. Raises SourceError.
    """
    failures = 0
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            return _ask(name, since, zone)
        except RateLimited as refusal:  # the limiter waits after refusals
            if refusal.final or attempt == _ATTEMPTS:
                raise
        except (NoNetwork, ServerError, BadAnswer):
            failures += 1
            if failures == _MOST_FAILURES:
                raise
            limiter.stopped.wait(limiter.cool_down * 2**failures / 60)
    raise AssertionError("unreachable")


def _ask(name: str, since: pd.Timestamp | None, zone: str | None) -> pd.DataFrame:
    import yfinance
    from yfinance.data import YfData

    # It caches error pages, so that a server that has recovered would not be asked again.
    YfData.cache_get.cache_clear()
    # A day earlier, as the session may have opened before midnight in the assumed timezone.
    first = pd.Timestamp("1962-01-02") if since is None else max(since, _EVER) - _DAY
    try:
        ticker = yfinance.Ticker(name, session=the_session())
        if zone is not None and hasattr(ticker, "_tz"):
            ticker._tz = zone  # saves a request for the timezone
        table = ticker.history(
            start=first, interval="1d", auto_adjust=False, actions=True, timeout=TIMEOUT
        )
    except SourceError:
        raise
    except Exception as error:  # yfinance raises all kinds of errors
        kind = type(error).__name__
        if kind == "YFRateLimitError":
            raise RateLimited("Yahoo refuses more requests for now (rate limit)") from error
        if kind in ("YFTzMissingError", "YFPricesMissingError", "YFTickerMissingError"):
            raise NotFound("not found at Yahoo; delisted, or misspelled") from error
        text = str(error).splitlines()[0] if str(error) else "no details"
        raise BadAnswer(f"Yahoo's answer cannot be used: {kind}: {text[:200]}") from error
    frame = _tidy(name, table)
    return frame if since is None else frame[frame["ds"] >= since].reset_index(drop=True)


def _tidy(name: str, table: pd.DataFrame) -> pd.DataFrame:
    """Return yfinance's table in the layout of a source, with its timezone in ``attrs``."""
    frame = table.rename(columns=_COLUMNS)
    frame = frame.reindex(columns=list(_COLUMNS.values())).astype(float)
    frame[["dividends", "splits"]] = frame[["dividends", "splits"]].fillna(0.0)
    if "Capital Gains" in table:  # of funds; for adj_close they are dividends
        frame["dividends"] += table["Capital Gains"].fillna(0.0).astype(float)
    times = pd.DatetimeIndex(frame.index)
    frame.insert(0, "unique_id", name)
    frame.insert(1, "ds", times.tz_localize(None).normalize().to_numpy("datetime64[ns]"))
    # Rows without a price are dropped; of a session that appears twice the first row counts.
    frame = frame.dropna(subset=["close"]).drop_duplicates("ds").reset_index(drop=True)
    frame.attrs["timezone"] = str(times.tz) if times.tz else None
    return frame
