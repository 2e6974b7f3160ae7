"""The frequency of times: which come next, which lie between, and the same in words.

The week is divided into slots as long as a series' step, from the midnight that begins a Monday:
seven days, or 168 hours. A slot in which a row hardly ever came lately is closed.
"""

import dataclasses
import re
from collections.abc import Sequence
from typing import cast

import numpy as np
import pandas as pd
from jaxtyping import Bool, Int, Shaped

from forecaster.errors import DataError
from forecaster.series.calendar.exchanges import Hours, regular_sessions
from forecaster.series.calendar.times import Time, show_time

WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
UNITS = {86_400: "day", 3_600: "hour", 60: "minute", 1: "second"}

_DAY = pd.Timedelta(days=1)
_ALIAS = re.compile(r"(\d*)([A-Za-z]+)(?:-\w+)?")  # a count, a base, an anchor, such as 2QE-OCT
_SECONDS = {"B": 86_400, "D": 86_400, "s": 1}
_MONTHS = {
    **dict.fromkeys(("MS", "ME", "BMS", "BME", "WOM", "LWOM"), 1),
    **dict.fromkeys(("QS", "QE", "BQS", "BQE"), 3),
    **dict.fromkeys(("YS", "YE", "BYS", "BYE"), 12),
}
_EARLY = pd.Timedelta(days=4)  # how long before its time a month's row may come
_BASES = {
    "D": "day", "B": "weekday", "W": "week", "SMS": "half month", "SME": "half month",
    "step": "whole number", "ms": "millisecond", "us": "microsecond", "ns": "nanosecond",
}  # fmt: skip
_NAMES = {3_600: "h", 60: "min", 1: "s"}  # of pandas
_PERIODS = {3: "quarter", 12: "year"}
_DAY_SECONDS, _WEEK = 86_400, 7 * 86_400  # seconds
_SHORTEST = 900  # seconds of a slot; of minutes, a week has ten thousand
_MONDAY = 4 * _DAY_SECONDS  # seconds from the epoch, a Thursday, to the first Monday
_WEEKS, _FEWEST = 10, 3  # latest weeks that are compared, and weeks that are needed
_RARELY = 0.25  # a slot is closed where rows came in a smaller share of the weeks
_MOSTLY = 0.7  # least share of the times in open slots that have a row


@dataclasses.dataclass(frozen=True)
class Frequency:
    """The rule by which the times of a series advance.

    - ``alias``: a pandas offset alias; or ``"step"`` for whole numbers, ``"months"`` for months
    - ``step``: how many whole numbers or months lie between two times
    - ``nyse``: whether the holidays of the New York Stock Exchange are left out
    - ``hours``: the sessions that intraday times keep to; None for all hours
    - ``day``: the day of the month, 31 for the last; 0 where dates have no common one
    - ``open``: the slots of the week in which times of days or of a part of a day come, see
      :func:`infer_open`; empty for all of them
    - ``stated``: whether a caller states it, so that rows tell no other
    """

    alias: str
    step: int = 1
    nyse: bool = False
    hours: Hours | None = None
    day: int = 0
    open: tuple[int, ...] = ()
    stated: bool = False

    def after(self, last: Time, count: int) -> Shaped[np.ndarray, " later"]:
        """Return the next ``count`` times after ``last``, a date or a whole number.

        Raises DataError for dates after 2262, which nanoseconds do not reach.
        """
        if self.alias == "step":
            return int(cast(int, last)) + self.step * np.arange(1, count + 1)
        try:
            last = pd.Timestamp(last).as_unit("ns")  # in which additions do not begin anew
            later = self.between(last, self._reach(last, count))[:count]
        except (pd.errors.OutOfBoundsDatetime, OverflowError) as error:
            raise DataError(
                f"the {count} times after {show_time(last)} go beyond 2262-04-11, the last date "
                "that can be computed with; are the dates right?"
            ) from error
        if len(later) < count and self.hours is not None:  # the exchange's calendar ends before
            return dataclasses.replace(self, hours=None).after(last, count)
        return later

    def _reach(self, last: pd.Timestamp, count: int) -> pd.Timestamp:
        """Return a date by which at least ``count`` times follow."""
        if self.hours is not None or self.nyse:
            return last + (2 * count + 15) * _DAY
        if self.open:
            return last + 7 * (count // len(self.open) + 2) * _DAY
        if self.alias == "months":
            return last + pd.DateOffset(months=self.step * (count + 1), day=31)
        return self.starts_at(last) + (count + 2) * self.offset

    def between(self, first: pd.Timestamp, last: pd.Timestamp) -> Shaped[np.ndarray, " time"]:
        """Return the times after a date and up to another; datetime64[ns].

        ``first``: a time, from which the others are counted where the alias names no days
        """
        if self.hours is not None:
            found = self.hours.between(first, last)
        elif self.alias == "months":  # the last day of a month leads to the last day of a month
            day = self.day or (31 if first.is_month_end else first.day)
            months = 12 * (last.year - first.year) + last.month - first.month
            steps = range(self.step, months + 1, self.step)
            found = [first + pd.DateOffset(months=n, day=day) for n in steps]
        elif self.nyse:
            day = first.normalize()
            found = regular_sessions(day, last) + (first - day)
        else:
            found = pd.date_range(self.starts_at(first), last, freq=self.offset)
        times = np.array(found, "datetime64[ns]")
        if self.open:
            times = times[in_slots(times, self.seconds, self.open)]
        return times[(times > first.to_datetime64()) & (times <= last.to_datetime64())]

    def elapsed(self, last: Time, now: Time) -> int:
        """Count the times after ``last`` and up to ``now``; 0 for whole numbers."""
        if self.alias == "step" or pd.Timestamp(now) <= pd.Timestamp(last):
            return 0
        return len(self.between(pd.Timestamp(last), pd.Timestamp(now)))

    def fits(self, times: Shaped[np.ndarray, " row"]) -> Bool[np.ndarray, " row"]:
        """Return which sorted dates are times of the frequency, in step with most of them."""
        apart = np.timedelta64(self.seconds, "s") if self.base[1] != "B" else None
        if not self.seconds and isinstance(self.offset, pd.offsets.Tick):  # parts of a second
            apart = np.timedelta64(self.offset.nanos, "ns")
        if apart:
            left = (times - times[0]) % apart
            kinds, counts = np.unique(left, return_counts=True)
            return left == kinds[counts.argmax()]
        days, step = pd.DatetimeIndex(times).normalize(), self.offset
        at = pd.date_range(days[0], days[-1], freq=step.base).get_indexer(days)
        there = at >= 0
        kinds, counts = np.unique(at[there] % step.n, return_counts=True)
        return there & (at % step.n == (kinds[counts.argmax()] if len(kinds) else 0))

    @property
    def option(self) -> str:
        """The option that states it, to paste; empty where pandas has no name for it."""
        if self.alias in ("step", "months"):
            return ""
        name = self.alias
        if self.base[1] == "s":
            unit = next(unit for unit in _NAMES if self.seconds % unit == 0)
            name = f"{self.seconds // unit}{_NAMES[unit]}"
        return f"--frequency {name} (in Python frequency=)"

    @property
    def base(self) -> tuple[int, str]:
        """The count and the base of the alias, without its anchor: 2 and QE of ``2QE-OCT``."""
        found = _ALIAS.fullmatch(self.alias)
        return (int(found[1] or 1), found[2]) if found else (1, self.alias)

    @property
    def seconds(self) -> int:
        """The seconds between two times; 0 for months, and where they are no whole seconds."""
        count, base = self.base
        return count * _SECONDS.get(base, 0)

    @property
    def months(self) -> int:
        """The months between two times; 0 where they are no whole months apart."""
        count, base = self.base
        return self.step if base == "months" else count * _MONTHS.get(base, 0)

    @property
    def offset(self) -> pd.offsets.BaseOffset:
        """The offset of pandas. Raises ValueError where the alias has none."""
        count, base = self.base
        if base == "LWOM":  # which pandas cannot read before version 3
            weekday = WEEKDAYS.index(self.alias.partition("-")[2])
            return pd.offsets.LastWeekOfMonth(count, weekday=weekday)  # pyright: ignore
        return pd.tseries.frequencies.to_offset(self.alias)

    def starts_at(self, last: pd.Timestamp) -> pd.Timestamp:
        """Return the time from which later ones are sought.

        A row that came a few days before its month's, such as the last session of an exchange that
        closed on the last weekday, is still that of its month.
        """
        begins = self.base[1].endswith("S")  # nothing comes before the first day of a month
        if self.months and not begins and not self.offset.is_on_offset(last):
            ahead = self.offset.rollforward(last)
            return ahead + _DAY if ahead - last <= _EARLY else last
        return last


def in_words(frequency: Frequency) -> str:
    """Return the frequency in words, such as "weekdays" or "every 5 minutes"."""
    if frequency.nyse:
        return "sessions of the New York Stock Exchange"
    if frequency.open and frequency.alias == "D":
        return f"{len(frequency.open)} days of the week"
    count, base = frequency.base
    unit = _BASES.get(base, frequency.alias)
    if base == "step":
        count = frequency.step
    elif months := frequency.months:
        count, unit = (1, _PERIODS[months]) if months in _PERIODS else (months, "month")
    elif base == "s":
        whole = next(unit for unit in UNITS if count % unit == 0)
        count, unit = count // whole, UNITS[whole]
    return f"{unit}s" if count == 1 else f"every {count} {unit}s"


def infer_open(times: Shaped[np.ndarray, " row"], seconds: int) -> tuple[int, ...]:
    """Return the open slots of the week; empty where all are open, or where they are not regular.

    - ``times``: sorted and unique dates
    - ``seconds``: the step; a day, or a part of one of fifteen minutes or more
    """
    if not _SHORTEST <= seconds <= _DAY_SECONDS or _DAY_SECONDS % seconds:
        return ()
    lately = times[times > times[-1] - np.timedelta64(_WEEKS * _WEEK, "s")]
    weeks = (lately[-1] - lately[0]) / np.timedelta64(_WEEK, "s")
    if weeks < _FEWEST:
        return ()
    counts = np.bincount(_slots(lately, seconds), minlength=_WEEK // seconds)
    is_open = counts >= max(1.0, _RARELY * weeks)
    slots = tuple(np.flatnonzero(is_open).tolist())
    regular = counts[is_open].sum() >= _MOSTLY * len(slots) * weeks
    return slots if regular and 0 < len(slots) < len(counts) else ()


def in_slots(
    times: Shaped[np.ndarray, " time"], seconds: int, slots: Sequence[int]
) -> Bool[np.ndarray, " time"]:
    """Return which dates lie in some slots of the week, each ``seconds`` long."""
    return np.isin(_slots(times, seconds), np.asarray(slots))


def open_numbers(
    times: Shaped[np.ndarray, " time"], seconds: int, slots: Sequence[int]
) -> Int[np.ndarray, " time"]:
    """Return the number of open slots up to each date, counted from some week.

    A date in a closed slot has the number of the open one before.
    """
    since = times.astype("datetime64[s]").astype(np.int64) - _MONDAY
    within = np.searchsorted(np.asarray(slots), since % _WEEK // seconds, side="right")
    return since // _WEEK * len(slots) + within


def _slots(times: Shaped[np.ndarray, " time"], seconds: int) -> Int[np.ndarray, " time"]:
    since = times.astype("datetime64[s]").astype(np.int64) - _MONDAY
    return since % _WEEK // seconds
