"""The HTTP session that yfinance uses: it limits the rate and raises an error for each failure.

yfinance hides what went wrong: a missing ticker, a broken server and a refusal look alike, and at
any status of 400 or more it fetches cookies and asks again. So answers are judged here, before
yfinance sees them.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

from forecaster.errors import BadAnswer, NoNetwork, NotFound, RateLimited, ServerError
from forecaster.ingest.sources.yahoo.limiter import Limiter

TIMEOUT = 20.0  # seconds for one answer
_CHART = "/finance/chart/"
_COOKIE_HOST = "fc.yahoo.com"
_thread = threading.local()  # ``session``: the one that this thread's requests go through


def open_session(limiter: Limiter, rewrite: Callable[[str], str] | None = None) -> Any:
    """Open a ``curl_cffi`` session whose requests wait for the limiter and raise our errors.

    yfinance keeps one session for the whole process, the last one it was given. A thread left over
    from an earlier run would thus impose the session and the limits of that run on the next, so
    each thread chooses its session by :func:`through`.

    ``rewrite(url)``: the URL to request instead, for a stand-in of the server.
    """
    import curl_cffi.requests as requests

    cookie_lock = threading.Lock()
    cookie: list[Any] = []
    refused: list[int] = []  # 401 and 403 since the last good answer

    class Transport(requests.Session):
        def request(self, method: Any, url: str, *args: Any, **kwargs: Any) -> Any:
            return getattr(_thread, "session", self)._request(method, url, *args, **kwargs)

        def _request(self, method: Any, url: str, *args: Any, **kwargs: Any) -> Any:
            if urlsplit(url).hostname != _COOKIE_HOST:
                return self._ask(method, url, *args, **kwargs)
            with cookie_lock:  # yfinance would fetch the cookie with every chart
                if not cookie:
                    cookie.append(self._ask(method, url, *args, **kwargs))
                return cookie[0]

        def _ask(self, method: Any, url: str, *args: Any, **kwargs: Any) -> Any:
            entered = limiter.enter()
            kwargs["timeout"] = min(kwargs.get("timeout") or TIMEOUT, TIMEOUT)
            try:
                answer = super().request(method, rewrite(url) if rewrite else url, *args, **kwargs)
            except requests.RequestsError as error:
                raise _failure(error) from error
            try:
                if _CHART in url and answer.status_code in (401, 403):
                    if refused:  # a new cookie did not help
                        raise RateLimited("Yahoo refuses to answer")
                    refused.append(answer.status_code)
                _judge(url, answer)
            except RateLimited as refusal:
                limiter.strike(entered, refusal.retry_after)
                raise
            if _CHART in url and answer.status_code < 400:
                refused.clear()
                limiter.succeeded()
            return answer

    # Yahoo refuses clients that do not look like a browser.
    return Transport(impersonate="chrome")


@contextmanager
def through(session: Any) -> Iterator[None]:
    """Send this thread's requests through a session while the block runs."""
    before = getattr(_thread, "session", None)
    _thread.session = session
    try:
        yield
    finally:
        if before is None:
            del _thread.session
        else:
            _thread.session = before


def _judge(url: str, answer: Any) -> None:
    """Raise our own error for a bad answer; leave good ones, 401 and 403 to yfinance."""
    status = answer.status_code
    if status == 429:
        wait = _retry_after(answer.headers.get("Retry-After"))
        raise RateLimited("Yahoo refuses more requests for now (rate limit)", retry_after=wait)
    if status >= 500:
        raise ServerError(f"Yahoo's server is out of order (status {status})")
    if _CHART not in url or status in (401, 403):  # yfinance then fetches a new cookie
        return
    if status in (400, 404, 422):
        raise NotFound(_description(answer) or "not found at Yahoo; delisted, or misspelled")
    if status >= 400:
        raise BadAnswer(f"Yahoo answered with status {status}")
    try:
        chart = answer.json()["chart"]
        chart["result"][0]["meta"]["exchangeTimezoneName"]
    except (ValueError, KeyError, TypeError, IndexError) as error:
        if description := _description(answer):
            raise NotFound(description) from error
        start = answer.text[:40].strip()
        raise BadAnswer(
            f"Yahoo's answer is not the JSON of a price chart; it begins with {start!r}"
        ) from error


def _description(answer: Any) -> str | None:
    """Return Yahoo's own explanation of why there are no prices, or None."""
    try:
        description = answer.json()["chart"]["error"]["description"]
    except (ValueError, KeyError, TypeError):
        return None
    return f"not found at Yahoo: {str(description)[:200]}" if description else None


def _retry_after(header: str | None) -> float | None:
    """Return the seconds to wait, from a header that holds seconds or a date."""
    if not header:
        return None
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError):
        return None


def _failure(error: Exception) -> Exception:
    """Return our own error for a failed connection."""
    kind = type(error).__name__
    text = str(error).split(". See ")[0] or kind
    if "Timeout" in kind:
        return ServerError(f"no answer from Yahoo in {TIMEOUT:.0f} s")
    if "IncompleteRead" in kind or "Encoding" in kind or "curl: (18)" in text:
        return BadAnswer("Yahoo's answer was cut short")
    return NoNetwork(f"Yahoo cannot be reached: {text}")
