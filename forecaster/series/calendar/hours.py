"""Intraday times in the sessions of an exchange, early closes included."""

import dataclasses
from typing import cast

import numpy as np
import pandas as pd
from jaxtyping import Shaped

from forecaster.series.calendar.exchanges import EXCHANGES, regular_hours, session_hours

_SEEN = 60  # latest days that are compared with the sessions of an exchange
_LEAST_DAYS = 3
_WITHIN = 0.99  # the least share of the times in the sessions
_OPEN = 0.3  # the least share of the days whose first time is the usual first one
_HOURS = 24  # of a day
# Hours of the longest session, Vienna's eight and a half, whose UTC changes with summer time.
_LONGEST = 12
_SECOND, _NEVER = 10**9, np.iinfo(np.int64).min  # nanoseconds; NaT
_LATEST = 2200  # a year; later days ahead may exceed datetime64[ns]
_AHEAD, _FARTHEST = 10, 10_000  # days ahead that are searched at first, and at most


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

    def after(self, last: pd.Timestamp, count: int) -> Shaped[np.ndarray, " later"]:
        """Return the next ``count`` times; fewer where the calendar ends before."""
        days, later = _AHEAD, np.empty(0, "datetime64[ns]")
        while len(later) < count and days < _FARTHEST and last.year < _LATEST:
            times = self.between(last - pd.Timedelta(days=1), last + pd.Timedelta(days=days))
            later = times[times > last.to_datetime64()]
            days *= 4
        return later[:count]


def infer_hours(index: pd.DatetimeIndex, step: int) -> Hours | None:
    """Find the exchange whose sessions some sorted intraday times keep to; None for no exchange.

    On the latest days, nearly all times have to lie in its sessions, and to begin and end with
    them. Of several exchanges it is the one with the fewest days on which only the exchange or
    only the series is open; New York comes first among equals.

    ``step``: seconds between two times.
    """
    days = index.normalize().unique()[-_SEEN:]
    if len(days) < _LEAST_DAYS:
        return None
    recent = index[index >= days[0]]
    if not _may_keep_hours(recent):
        return None
    found: list[tuple[float, Hours]] = []
    for exchange in EXCHANGES:
        for utc in (False, True):
            if (hours := _hours_of(recent, exchange, step, utc=utc)) is not None:
                found.append((_missed(recent, hours), hours))
                if not found[-1][0]:  # no better one can follow
                    return hours
    return min(found, key=lambda pair: pair[0])[1] if found else None


def _may_keep_hours(index: pd.DatetimeIndex) -> bool:
    """Return whether any exchange's sessions are long enough to hold these times.

    False for most series of all hours, at a hundredth of the time that asking each exchange takes.
    """
    hours = index.to_numpy().astype("datetime64[h]").astype(np.int64) % _HOURS
    counts = np.tile(np.bincount(hours, minlength=_HOURS), 2)
    windows = np.lib.stride_tricks.sliding_window_view(counts, _LONGEST)
    return bool(windows.sum(1).max() >= _WITHIN * len(index))


def _hours_of(index: pd.DatetimeIndex, exchange: str, step: int, *, utc: bool) -> Hours | None:
    """Return the hours of one exchange if these times keep them, or else None."""
    zone, opens, closes = regular_hours(exchange)
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


def _missed(index: pd.DatetimeIndex, hours: Hours) -> float:
    """Return the days that have either a session or times, but not both, per day with times."""
    seen = np.unique(index.to_numpy().astype("datetime64[D]"))
    sessions = np.unique(hours.between(index[0], index[-1]).astype("datetime64[D]"))
    return len(np.setxor1d(seen, sessions)) / max(1, len(seen))
