"""Exchanges: which one a symbol trades on, when it is open, and which session closed last.

Intraday times may lie in the sessions of an exchange, early closes included.
"""

import dataclasses
import functools
import importlib
import itertools
import warnings
from typing import Any, cast

import numpy as np
import pandas as pd
from jaxtyping import Shaped

from forecaster.series.calendar.times import Date

MARGIN = pd.Timedelta(minutes=30)  # from a session's close until its prices count as final
NEW_YORK = "XNYS"
_FIRST = "1962-01-01"
# By Yahoo's suffix, the exchange's ISO 10383 code.
_SUFFIXES = {
    "AS": "XAMS", "AX": "XASX", "BA": "XBUE", "BK": "XBKK", "BO": "XBOM",
    "BR": "XBRU", "CO": "XCSE", "DE": "XETR", "F": "XFRA", "HE": "XHEL", "HK": "XHKG",
    "IC": "XICE", "IR": "XDUB", "IS": "XIST", "JK": "XIDX", "JO": "XJSE", "KS": "XKRX",
    "L": "XLON", "LS": "XLIS", "MC": "XMAD", "MI": "XMIL", "MX": "XMEX", "NS": "XBOM",
    "NZ": "XNZE", "OL": "XOSL", "PA": "XPAR", "PR": "XPRA", "SA": "BVMF", "SI": "XSES",
    "SN": "XSGO", "SS": "XSHG", "ST": "XSTO", "SW": "XSWX", "SZ": "XSHG", "T": "XTKS",
    "TO": "XTSE", "TW": "XTAI", "V": "XTSE", "VI": "XWBO", "WA": "XWAR",
}  # fmt: skip
EXCHANGES = tuple(dict.fromkeys((NEW_YORK, "XLON", "XETR", "XPAR", *_SUFFIXES.values())))
"""The exchanges whose calendars are known; of those with the same hours the largest comes first."""
_CURRENCIES = ("USD", "EUR", "GBP", "JPY", "USDT", "BTC")


def exchange_of(symbol: str) -> str | None:
    """Return the code of the calendar of a Yahoo symbol; None where it is unknown.

    A symbol without a suffix trades in New York, ``BTC-USD`` at all hours, ``EURUSD=X`` on
    weekdays.
    """
    if symbol.endswith("=X"):
        return "24/5"
    if symbol.endswith("=F"):
        return "CMES"
    if any(symbol.endswith(f"-{currency}") for currency in _CURRENCIES):
        return "24/7"
    _, dot, suffix = symbol.rpartition(".")
    if dot:
        return _SUFFIXES.get(suffix)
    # The name of an index does not say which exchange it belongs to.
    return NEW_YORK if not symbol.startswith("^") or symbol in _NEW_YORK_INDICES else None


_NEW_YORK_INDICES = ("^GSPC", "^DJI", "^IXIC", "^RUT", "^VIX", "^NDX", "^NYA", "^OEX")


def timezone_of(symbol: str) -> str | None:
    """Return the timezone of a symbol's exchange; None where the exchange is unknown."""
    exchange = exchange_of(symbol)
    return None if exchange is None else str(_calendar(exchange).tz)


@functools.lru_cache(maxsize=512)
def sessions(exchange: str, first: pd.Timestamp, last: pd.Timestamp) -> np.ndarray:
    """Return the days on which an exchange is open between two dates, both included.

    As datetime64[ns].
    """
    days = _calendar(exchange).sessions
    inside = days[(days >= first.normalize()) & (days <= last.normalize())]
    return inside.to_numpy("datetime64[ns]")


@functools.cache
def _rules(exchange: str) -> Any:
    """Return the rules of an exchange's calendar.

    No calendar is built, which would compute all sessions and take half a second.
    """
    module = importlib.import_module(f"exchange_calendars.exchange_calendar_{exchange.lower()}")
    return object.__new__(getattr(module, f"{exchange}ExchangeCalendar"))


@functools.lru_cache(maxsize=1024)
def regular_hours(exchange: str, day: pd.Timestamp) -> tuple[str, int, int]:
    """Return an exchange's timezone, and when it opened and closed as a rule at the time of a day.

    In seconds of its local day.
    """
    rules = _rules(exchange)
    opens, closes = (
        next(time for since, time in reversed(times) if since is None or since <= day)
        for times in (rules.open_times, rules.close_times)
    )
    return str(rules.tz), *(60 * (60 * time.hour + time.minute) for time in (opens, closes))


def session_hours(
    exchange: str, first: pd.Timestamp, last: pd.Timestamp, *, utc: bool
) -> Shaped[np.ndarray, "session 4"]:
    """Return when each session between two days, both included, opens, closes, pauses and resumes.

    As datetime64[ns], NaT where there is no pause. The calendar ends a year from now.

    ``utc``: times in UTC rather than by the exchange's clock.
    """
    calendar = _calendar(exchange)
    days = calendar.schedule.loc[str(first.date()) : str(last.date())]
    columns = [days[name] for name in ("open", "close", "break_start", "break_end")]
    if not utc:
        columns = [column.dt.tz_convert(calendar.tz) for column in columns]
    return np.stack(
        [column.dt.tz_localize(None).to_numpy("datetime64[ns]") for column in columns], axis=1
    )


def regular_sessions(start: Date, end: Date) -> pd.DatetimeIndex:
    """Return the regular sessions of New York between two dates, both included, past or future.

    Only the exchange's holiday rules count: days on which it closed unexpectedly are sessions here.
    """
    days = pd.bdate_range(start, end)
    return days[~days.isin(regular_holidays(days[0].year, days[-1].year))] if len(days) else days


@functools.lru_cache(maxsize=64)
def regular_holidays(first: int, last: int) -> pd.DatetimeIndex:
    """Return New York's holidays on weekdays of some years, by the exchange's rules."""
    # The rules take as long for a year as for a century.
    days = _weekday_holidays(min(first, 1960), max(last, 2060))
    return days[(days.year >= first) & (days.year <= last)]


@functools.cache
def _weekday_holidays(first: int, last: int) -> pd.DatetimeIndex:
    holidays = _rules(NEW_YORK).regular_holidays.holidays(f"{first}-01-01", f"{last}-12-31")
    days = pd.DatetimeIndex(holidays).as_unit("ns")
    return days[days.day_of_week < 5]


def last_closed(exchange: str | None, now: pd.Timestamp, timezone: str | None) -> pd.Timestamp:
    """Return the latest session that closed at least :data:`MARGIN` before ``now`` (UTC).

    ``timezone``: where the exchange is None, a session is taken to close at 16:00 in it.
    """
    if exchange is not None and now < _calendar(exchange).closes.iloc[-1]:
        closes = _calendar(exchange).closes
        return closes.index[int((closes + MARGIN <= now).sum()) - 1]
    local = now.tz_convert(timezone or "UTC").tz_localize(None)
    day = local.normalize()
    if local - day < pd.Timedelta(hours=16) + MARGIN:
        day -= pd.Timedelta(days=1)
    return day


@functools.lru_cache(maxsize=16)
def _calendar(exchange: str) -> Any:
    import exchange_calendars

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library uses deprecated parts of pandas
        try:
            return exchange_calendars.get_calendar(exchange, start=_FIRST)
        except (ValueError, NotImplementedError):
            # This calendar begins later; the library's default is the last 20 years.
            return exchange_calendars.get_calendar(exchange)


_SEEN = 60  # latest days that are compared with the sessions of an exchange
_LEAST_DAYS = 3
_WITHIN = 0.99  # the least share of the times in the sessions
_OPEN = 0.3  # the least share of the days whose first time is the usual first one
_LONGEST = 12 * 3600  # seconds, more than any session has
_SECOND, _NEVER = 10**9, np.iinfo(np.int64).min  # nanoseconds; NaT


@dataclasses.dataclass(frozen=True)
class Hours:
    """The intraday times of a series, by the sessions of an exchange.

    - ``exchange``: the code of its calendar
    - ``utc``: whether times are in UTC, rather than by the exchange's own clock
    - ``step``: seconds between two times of a session
    - ``first``: seconds from the opening to the first time
    - ``closing``: whether the close itself is a time, as where bars are named after their end
    """

    exchange: str
    utc: bool
    step: int
    first: int
    closing: bool

    def between(self, first: pd.Timestamp, last: pd.Timestamp) -> Shaped[np.ndarray, " time"]:
        """Return all times in the sessions between two days, both included; datetime64[ns]."""
        hours = session_hours(self.exchange, first, last, utc=self.utc).astype(np.int64)
        closing = int(self.closing)  # one nanosecond more, so that the close is a time too
        times = [np.empty(0, np.int64)]
        for opens, closes, pauses, goes_on in cast(list[list[int]], hours.tolist()):
            day = np.arange(opens + self.first * _SECOND, closes + closing, self.step * _SECOND)
            if pauses != _NEVER:
                day = day[(day < pauses + closing) | (day >= goes_on + closing)]
            times.append(day)
        return np.concatenate(times).astype("datetime64[ns]")


def infer_hours(index: pd.DatetimeIndex, step: int) -> Hours | None:
    """Find the exchange whose sessions some sorted intraday times keep to; None for no exchange.

    On the latest days, nearly all times have to lie in its sessions, and to begin and end with
    them. Of several exchanges it is the one with the fewest days on which only the exchange or
    only the series is open; New York comes first among equals.

    ``step``: seconds between two times.
    """
    days = index.normalize().unique()[-_SEEN:]
    recent = index[index >= days[0]]
    # Most series of all hours fill more of a day than any session.
    if len(days) < _LEAST_DAYS or step * (len(recent) / len(days) - 1) > _LONGEST:
        return None
    missed: dict[Hours, int] = {}
    for exchange, utc in itertools.product(EXCHANGES, (False, True)):
        if (hours := _hours_of(recent, exchange, step, utc=utc)) is not None:
            times = hours.between(recent[0], recent[-1])
            sessions, seen = (np.unique(x.astype("datetime64[D]")) for x in (times, recent.values))
            missed[hours] = len(np.setxor1d(sessions, seen))
            if not missed[hours]:  # no better one can follow
                return hours
    return min(missed, key=lambda hours: missed[hours], default=None)


def _hours_of(index: pd.DatetimeIndex, exchange: str, step: int, *, utc: bool) -> Hours | None:
    """Return the hours of one exchange if these times keep them, or else None."""
    zone, opens, closes = regular_hours(exchange, index[-1].normalize())
    local = index.tz_localize("UTC").tz_convert(zone).tz_localize(None) if utc else index
    since = (local - local.normalize()) // pd.Timedelta(seconds=1) - opens
    length = closes - opens
    inside = (since >= 0) & (since <= length)
    if length <= 0 or inside.mean() < _WITHIN:
        return None
    day = pd.Series(since[inside]).groupby(local[inside].normalize())
    first, last = int(day.min().mode()[0]), int(day.max().max())
    if first > step or last < length - step or (day.min() == first).mean() < _OPEN:
        return None
    hours = Hours(exchange, utc, step, first, last == length)
    expected = hours.between(index[0], index[-1])
    return hours if np.isin(index.to_numpy(), expected).mean() >= _WITHIN else None
