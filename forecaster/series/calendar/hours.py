"""The hours of an exchange: which intraday times lie in its sessions, early closes included."""

import dataclasses
from typing import cast

import numpy as np
import pandas as pd
from jaxtyping import Shaped

from forecaster.series.calendar.exchanges import EXCHANGES, regular_hours, session_hours

_SEEN = 60  # latest days that are compared with an exchange's
_LEAST_DAYS = 3
_WITHIN = 0.99  # of the times lie in the sessions
_OPEN = 0.3  # of the days have the first time of a session, and the last
_SECOND, _NEVER = 10**9, np.iinfo(np.int64).min  # nanoseconds; NaT
_LATEST = 2200  # from which year on days ahead may be more than nanoseconds can hold
_AHEAD, _FARTHEST = 10, 10_000  # days that are looked at first, and at most


@dataclasses.dataclass(frozen=True)
class Hours:
    """Whose sessions the times of a series keep to, and how.

    - ``exchange``: the code of its calendar
    - ``utc``: whether times are in UTC, rather than by the exchange's own clock
    - ``step``: seconds between two times of a session
    - ``first``: seconds from the opening to the first time
    - ``closing``: whether the closing itself is a time, as where bars are named after their end
    """

    exchange: str
    utc: bool
    step: int
    first: int
    closing: bool

    def between(self, first: pd.Timestamp, last: pd.Timestamp) -> Shaped[np.ndarray, " time"]:
        """All times of the sessions of these days, both included; datetime64[ns]."""
        hours = session_hours(self.exchange, first, last, utc=self.utc).astype(np.int64)
        closing = int(self.closing)  # nanoseconds by which a border belongs to what lies before it
        times = [np.empty(0, np.int64)]
        for opens, closes, pauses, goes_on in cast(list[list[int]], hours.tolist()):
            day = np.arange(opens + self.first * _SECOND, closes + closing, self.step * _SECOND)
            if pauses != _NEVER:
                day = day[(day < pauses + closing) | (day >= goes_on + closing)]
            times.append(day)
        return np.concatenate(times).astype("datetime64[ns]")

    @property
    def usual_number(self) -> int:
        """How many times a day has that is neither shortened nor off."""
        days = self.between(pd.Timestamp("2024-02-05"), pd.Timestamp("2024-02-29"))
        _, numbers = np.unique(days.astype("datetime64[D]"), return_counts=True)
        return int(np.median(numbers)) if len(numbers) else 1

    def after(self, last: pd.Timestamp, count: int) -> Shaped[np.ndarray, " later"]:
        """The next ``count`` times; fewer where they reach beyond the calendar."""
        days, later = _AHEAD, np.empty(0, "datetime64[ns]")
        while len(later) < count and days < _FARTHEST and last.year < _LATEST:
            times = self.between(last - pd.Timedelta(days=1), last + pd.Timedelta(days=days))
            later = times[times > last.to_datetime64()]
            days *= 4
        return later[:count]


def infer_hours(index: pd.DatetimeIndex, step: int) -> Hours | None:
    """Whose sessions some sorted intraday times keep to; None where it is no exchange's.

    Their latest days are compared: nearly all times lie in its sessions, which begin and end
    where its own do. Of several exchanges the one whose sessions they miss the least, and then New
    York.
    """
    days = index.normalize().unique()[-_SEEN:]
    if len(days) < _LEAST_DAYS:
        return None
    recent = index[index >= days[0]]
    found: list[tuple[float, Hours]] = []
    for exchange in EXCHANGES:
        for utc in (False, True):
            if (hours := _hours_of(recent, exchange, step, utc=utc)) is not None:
                found.append((_missed(recent, hours), hours))
                if not found[-1][0]:  # all of its sessions, and no other days
                    return hours
    return min(found, key=lambda pair: pair[0])[1] if found else None


def _hours_of(index: pd.DatetimeIndex, exchange: str, step: int, *, utc: bool) -> Hours | None:
    """The hours of one exchange as these times would keep them, or None."""
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
    """The share of the days with sessions, or with times, that are not both."""
    seen = np.unique(index.to_numpy().astype("datetime64[D]"))
    sessions = np.unique(hours.between(index[0], index[-1]).astype("datetime64[D]"))
    return len(np.setxor1d(seen, sessions)) / max(1, len(seen))
