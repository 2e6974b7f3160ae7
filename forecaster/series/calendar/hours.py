"""Intraday times in the sessions of an exchange, early closes included."""

import dataclasses
import itertools
from typing import cast

import numpy as np
import pandas as pd
from jaxtyping import Shaped

from forecaster.series.calendar.exchanges import EXCHANGES, regular_hours, session_hours

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
