"""The HTTP session that yfinance uses: it limits the rate and raises an error for each failure.

yfinance hides what went wrong: a missing ticker, a broken server and a refusal look alike, and at
any status of 400 or more it fetches cookies and asks again. So answers are judged here, before
yfinance sees them.
"""

import contextlib
import functools
import random
import threading
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from forecaster.errors import (
    BadAnswer,
    Interrupted,
    NoNetwork,
    NotFound,
    RateLimited,
    ServerError,
    SourceError,
)

TIMEOUT = 20.0  # seconds for one answer
MOST_STRIKES = 6  # cool-downs in a row, without an answer in between, before it gives up
_LONGEST = 600.0  # seconds
_CHART = "/finance/chart/"
_COOKIE_HOST = "fc.yahoo.com"


class Limiter:
    """A gate that lets at most ``rate`` requests a second through.

    The first refusal ("too many requests") stops all threads: as long as the server asks for, or
    ``cool_down`` seconds, doubled at each further refusal until an answer arrives. Refusals of
    requests that were already under way do not count again.

    - ``on_wait(seconds)``: called at each cool-down
    - ``rewrite(url)``: the URL to request instead, for a stand-in of the server
    """

    def __init__(
        self,
        rate: float,
        cool_down: float = 30.0,
        on_wait: Callable[[float], None] | None = None,
        rewrite: Callable[[str], str] | None = None,
    ):
        self.rewrite, self.cool_down = rewrite or str, cool_down
        self.stopped = threading.Event()
        self._gap, self._on_wait, self._lock = 1.0 / rate, on_wait, threading.Lock()
        self._next = 0.0  # when the next request may start, by the monotonic clock
        self._struck = -1.0  # when the latest cool-down began
        self._strikes = 0

    def enter(self) -> float:
        """Wait until the next request may start; return the time by the monotonic clock.

        Raises Interrupted once ``stopped`` is set.
        """
        while not self.stopped.is_set():
            with self._lock:
                now = time.monotonic()
                if now >= self._next:
                    # A little jitter keeps requests from arriving in lockstep.
                    self._next = now + self._gap * random.uniform(0.9, 1.1)
                    return now
                wait = self._next - now
            self.stopped.wait(wait)
        raise Interrupted("stopped while waiting for a turn")

    def succeeded(self) -> None:
        """Note that an answer arrived: the next cool-down is a short one again."""
        with self._lock:
            self._strikes = 0

    def strike(self, entered: float, retry_after: float | None) -> None:
        """Start a cool-down after a refusal.

        - ``entered``: when the refused request started, by the monotonic clock
        - ``retry_after``: the seconds that the server asks to wait, if any

        Raises RateLimited, marked as final, after too many cool-downs in a row.
        """
        with self._lock:
            if entered <= self._struck:
                return
            self._strikes += 1
            if self._strikes > MOST_STRIKES:
                raise RateLimited(
                    "Yahoo refuses more requests for now (rate limit), even after "
                    f"{MOST_STRIKES} pauses. What has arrived is kept; wait an hour and run the "
                    "same command again",
                    final=True,
                )
            wait = self.cool_down * 2 ** (self._strikes - 1) * random.uniform(1.0, 1.2)
            wait = min(wait if retry_after is None else retry_after, _LONGEST)
            self._struck = time.monotonic()
            self._next = max(self._next, self._struck + wait)
        if self._on_wait:
            self._on_wait(wait)


@functools.cache
def the_session() -> Any:
    """Return the ``curl_cffi`` session of this process, since yfinance keeps one for all threads.

    Its requests wait for ``limiter``, which each run sets, and raise our errors.
    """
    import curl_cffi.requests as requests

    class Transport(requests.Session):
        limiter: Limiter
        cookie_lock = threading.Lock()
        cookie: Any = None
        was_refused = False  # with 401 or 403, since the last good answer

        def request(self, method: Any, url: str, *args: Any, **kwargs: Any) -> Any:
            if urlsplit(url).hostname != _COOKIE_HOST:
                return self._ask(method, url, *args, **kwargs)
            with self.cookie_lock:  # yfinance would fetch the cookie with every chart
                if self.cookie is None:
                    self.cookie = self._ask(method, url, *args, **kwargs)
                return self.cookie

        def _ask(self, method: Any, url: str, *args: Any, **kwargs: Any) -> Any:
            limiter = self.limiter
            entered = limiter.enter()
            kwargs["timeout"] = TIMEOUT
            try:
                answer = super().request(method, limiter.rewrite(url), *args, **kwargs)
            except requests.RequestsError as error:
                raise _failure(error) from error
            is_refused = _CHART in url and answer.status_code in (401, 403)
            try:
                if is_refused and self.was_refused:  # a new cookie did not help
                    raise RateLimited("Yahoo refuses to answer")
                _judge(url, answer)
            except RateLimited as refusal:
                limiter.strike(entered, refusal.retry_after)
                raise
            if _CHART in url:
                self.was_refused = is_refused
                if not is_refused:
                    limiter.succeeded()
            return answer

    # Yahoo refuses clients that do not look like a browser.
    return Transport(impersonate="chrome")


def _judge(url: str, answer: Any) -> None:
    """Raise our own error for a bad answer; leave good ones, 401 and 403 to yfinance."""
    status = answer.status_code
    if status == 429:
        wait = answer.headers.get("Retry-After") or ""
        raise RateLimited(
            "Yahoo refuses more requests for now (rate limit)",
            retry_after=float(wait) if wait.isdecimal() else None,
        )
    if status >= 500:
        raise ServerError(f"Yahoo's server is out of order (status {status})")
    if _CHART not in url or status in (401, 403):  # yfinance then fetches a new cookie
        return
    said = zone = None
    with contextlib.suppress(ValueError, KeyError, TypeError, IndexError, AttributeError):
        chart = answer.json()["chart"]
        if description := (chart.get("error") or {}).get("description"):
            said = f"not found at Yahoo: {str(description)[:200]}"
        zone = chart["result"][0]["meta"]["exchangeTimezoneName"]
    if status in (400, 404, 422):
        raise NotFound(said or "not found at Yahoo; delisted, or misspelled")
    if status >= 400:
        raise BadAnswer(f"Yahoo answered with status {status}")
    if zone is None:
        if said:
            raise NotFound(said)
        start = answer.text[:40].strip()
        raise BadAnswer(
            f"Yahoo's answer is not the JSON of a price chart; it begins with {start!r}"
        )


def _failure(error: Exception) -> SourceError:
    """Return our own error for a failed connection."""
    kind = type(error).__name__
    text = str(error).split(". See ")[0] or kind
    if "Timeout" in kind:
        return ServerError(f"no answer from Yahoo in {TIMEOUT:.0f} s")
    if "IncompleteRead" in kind or "Encoding" in kind or "curl: (18)" in text:
        return BadAnswer("Yahoo's answer was cut short")
    return NoNetwork(f"Yahoo cannot be reached: {text}")
