"""Exchanges: which one a symbol trades on, when it was open, and which session closed last."""

import functools
import importlib
import warnings
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Shaped

from forecaster.series.calendar.holidays import tabled_holidays
from forecaster.series.calendar.times import Date

MARGIN = pd.Timedelta(minutes=30)  # from a session's close until its prices count as final
NEW_YORK = "XNYS"
_FIRST = "1962-01-01"
# Yahoo's suffixes: the exchange's ISO 10383 code.
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
"""The exchanges whose calendars are known, the largest of those with the same hours first."""
_CURRENCIES = ("USD", "EUR", "GBP", "JPY", "USDT", "BTC")


def exchange_of(symbol: str) -> str | None:
    """The code of the calendar that a symbol of Yahoo keeps; None where it is unknown.

    Without a suffix it is New York's; ``BTC-USD`` trades at all hours, ``EURUSD=X`` on weekdays.
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
    # The names of indices do not say to which other exchange they belong.
    return NEW_YORK if not symbol.startswith("^") or symbol in _NEW_YORK_INDICES else None


_NEW_YORK_INDICES = ("^GSPC", "^DJI", "^IXIC", "^RUT", "^VIX", "^NDX", "^NYA", "^OEX")


def timezone_of(symbol: str) -> str | None:
    """The timezone of a symbol's exchange; None where the exchange is unknown."""
    exchange = exchange_of(symbol)
    return None if exchange is None else str(_calendar(exchange).tz)


@functools.lru_cache(maxsize=512)
def sessions(exchange: str, first: pd.Timestamp, last: pd.Timestamp) -> np.ndarray:
    """The days on which an exchange was open between two dates, both included; datetime64[ns]."""
    days = _calendar(exchange).sessions
    inside = days[(days >= first.normalize()) & (days <= last.normalize())]
    return inside.to_numpy("datetime64[ns]")


@functools.lru_cache(maxsize=128)
def regular_hours(exchange: str) -> tuple[str, int, int]:
    """An exchange's timezone, and when it opens and closes, in seconds of the day by its clock."""
    module = importlib.import_module(f"exchange_calendars.exchange_calendar_{exchange.lower()}")
    # Of the class: making a calendar of all sessions takes half a second.
    rules = object.__new__(getattr(module, f"{exchange}ExchangeCalendar"))
    (_, opens), (_, closes) = rules.open_times[-1], rules.close_times[-1]
    return str(rules.tz), *(60 * (60 * time.hour + time.minute) for time in (opens, closes))


def session_hours(
    exchange: str, first: pd.Timestamp, last: pd.Timestamp, *, utc: bool
) -> Shaped[np.ndarray, "session 4"]:
    """When the sessions of some days, both included, open, close, pause and go on.

    datetime64[ns], NaT where there is no pause; by the exchange's clock, or in UTC. As far as the
    calendar knows, which is a year from now.
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
    """The regular sessions of New York between two dates, both included, past or future.

    By the exchange's holiday rules alone: days on which it closed unexpectedly count as sessions.
    """
    days = pd.bdate_range(start, end)
    return days[~days.isin(regular_holidays(days[0].year, days[-1].year))] if len(days) else days


@functools.lru_cache(maxsize=64)
def regular_holidays(first_year: int, last_year: int) -> pd.DatetimeIndex:
    """The holidays of New York on weekdays, by the exchange's rules, from one year to another."""
    if (days := tabled_holidays(first_year, last_year)) is not None:
        return pd.DatetimeIndex(days.astype("datetime64[ns]"))
    return holidays_by_rule(first_year, last_year)


def holidays_by_rule(first_year: int, last_year: int) -> pd.DatetimeIndex:
    """The same, from the rules themselves, for any years."""
    from exchange_calendars.exchange_calendar_xnys import XNYSExchangeCalendar

    # The rules are a property of the class; making a calendar of all sessions takes half a second.
    rules = object.__new__(XNYSExchangeCalendar).regular_holidays
    days = pd.DatetimeIndex(rules.holidays(f"{first_year}-01-01", f"{last_year}-12-31"))
    return days[days.day_of_week < 5]


def last_closed(exchange: str | None, now: pd.Timestamp, timezone: str | None) -> pd.Timestamp:
    """The latest session whose close, and a margin, have passed at ``now`` (UTC).

    Where the exchange is not known, a weekday's session closes at 16:00 by its timezone.
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
        warnings.simplefilter("ignore")  # the library's own, of what later versions of pandas lack
        try:
            return exchange_calendars.get_calendar(exchange, start=_FIRST)
        except (ValueError, NotImplementedError):
            # Some calendars know their holidays from a later year on only: the last 20 years then.
            return exchange_calendars.get_calendar(exchange)
