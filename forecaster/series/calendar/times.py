"""Times of series: read what a caller writes, and show a time."""

import contextlib
import datetime
import re
from collections.abc import Iterable
from typing import TypeAlias, cast

import numpy as np
import pandas as pd
from jaxtyping import Int, Shaped

from forecaster.errors import Kind, Skipped, UsageError, wrong_argument

Date: TypeAlias = str | datetime.date | np.datetime64
"""A date as a caller may write it; ``datetime`` and ``pandas.Timestamp`` are dates too."""

Time: TypeAlias = Date | int | np.integer
"""A date, or a whole number where series count in them."""

_CLOCK = r"[T ]\d\d(?::?\d\d(?::?\d\d(?:[.,]\d+)?)?)?"
# After a time of day: Z, UTC, or hours with or without minutes (PostgreSQL writes +00).
_OFFSET = re.compile(
    rf"^(.*{_CLOCK})\s*(?:[Zz]|UTC|GMT|([+-])(0\d|1[0-5])(?::?(\d\d)(?::\d\d)?)?)$"
)
_HAS_OFFSET = rf"{_CLOCK}\s*(?:[Zz]|UTC|GMT|[+-](?:0\d|1[0-5])(?::?\d\d(?::\d\d)?)?)$"
_YEAR_LAST = re.compile(r"\s*\d{1,2}[-/. ]\d{1,2}(?:[-/. ]\d|\s*$)")  # or none
_SHORTEST_DATE = 8  # characters

_MOST = 2.0**63  # whole numbers of 64 bits lie below it
_MOST_WRONG = 0.5  # if more of the numbers are not dates, all are something else
_YEARS = (1800, 2199)  # of months without a sign between
_LAST_COUNT = 3_000  # counts of steps, and years, hardly begin later


def show_time(time: object) -> str:
    """Return a time as text: a date, without the time of day at midnight, or a number.

    ``time``: a :data:`Time`, or anything else that pandas takes for a date.
    """
    if isinstance(time, (int, np.integer)):
        return str(int(cast(int, time)))
    return str(pd.Timestamp(cast(Date, time))).removesuffix(" 00:00:00")


def repeated_at(time: object) -> Skipped:
    """Return the reason to skip a series with more than one row for a time.

    The end of summer time may repeat a local time, in Europe or North America: from 01:00 to 02:59
    on the last Sunday of October or the first one of November.
    """
    kind, first = Kind.REPEATED_TIME, show_time(time)
    if not isinstance(time, (int, np.integer)):
        stamp = pd.Timestamp(cast(Date, time))
        sunday = (stamp.month == 10 and stamp.day > 24) or (stamp.month == 11 and stamp.day <= 7)
        if stamp.day_of_week == 6 and sunday and stamp.hour in (1, 2):
            kind = Kind.REPEATED_HOUR
    return Skipped(kind, first=first)


def show_times(times: Iterable[object]) -> list[str]:
    """Return the times of a table as texts of one form: dates if all are midnights, else minutes.

    With seconds where one of them has seconds.
    """
    times = list(times)
    shown = [show_time(time) for time in times]
    if any(" " in text for text in shown):
        stamps = [pd.Timestamp(cast(Date, time)) for time in times]
        exact = any(stamp != stamp.floor("min") for stamp in stamps)
        return [str(stamp) if exact else f"{stamp:%Y-%m-%d %H:%M}" for stamp in stamps]
    return shown


def dates_of_numbers(numbers: Int[np.ndarray, " row"]) -> pd.Series | None:
    """Return the dates of numbers such as 20240328 and 202403; None for other whole numbers.

    202403 becomes the first of March. If at least half of the numbers are such dates, the others
    become NaT.
    """
    codes, kinds = pd.factorize(numbers)
    text = pd.Series(kinds).astype(str)
    for digits, form in ((8, "%Y%m%d"), (6, "%Y%m")):
        if len(kinds) and (text.str.len() == digits).all():
            dates = pd.to_datetime(text, format=form, errors="coerce")
            dates = dates.where(dates.dt.year.between(*_YEARS)).take(codes)
            return None if dates.isna().mean() > _MOST_WRONG else dates.reset_index(drop=True)
    return None


def counts_steps(numbers: Int[np.ndarray, " row"]) -> bool:
    """Return whether whole numbers count: from 0 or 1 on, or at equal distances, such as years."""
    ordered = np.unique(numbers)
    if ordered[0] <= 1:  # a zero beside dates is no count, but an empty cell
        return bool(ordered[:2][-1] <= _LAST_COUNT)
    return bool(ordered[0] <= _LAST_COUNT and not np.diff(ordered, 2).any())


def means_now(text: pd.Series) -> pd.Series:
    """Return which texts are words that pandas takes for the present time."""
    return text.str.lower().isin(["now", "today"])


def split_offset(text: pd.Series) -> tuple[pd.Series, pd.Series | None]:
    """Return times that are text without their offset from UTC, and the offsets.

    The local time of day is kept. A time without an offset gets the offset zero; if no time has
    one, the offsets are None.
    """
    ends = pd.Series(text.str.slice(_SHORTEST_DATE).unique(), dtype="string")
    if not ends.str.contains(_HAS_OFFSET, regex=True).any():
        return text, None
    codes, kinds = pd.factorize(text, use_na_sentinel=False)  # most texts repeat
    local = np.array(kinds, dtype=object)
    which, written = np.zeros(len(local), int), {"00:00:00": 0}
    for row, cell in enumerate(local):
        if isinstance(cell, str) and (found := _OFFSET.match(cell)):
            local[row], sign, hours, minutes = found.groups()
            offset = f"{sign or ''}{hours or '00'}:{minutes or '00'}:00"
            which[row] = written.setdefault(offset, len(written))
    offsets = pd.to_timedelta(pd.Series(list(written)))
    times = pd.Series(local, dtype="string").take(codes)
    return times.set_axis(text.index), offsets.take(which[codes]).set_axis(text.index)


def nearest_time(date: Date) -> pd.Timestamp:
    """Return a date as a timestamp in nanoseconds, without a timezone.

    Nanoseconds reach from 1677 to 2262; a date outside becomes the first or the last timestamp. Of
    a date with a timezone the local time counts, as in tables. Raises UsageError for anything but
    a date, and for text such as 01/02/2024, which may have the day or the month first.
    """
    if isinstance(date, int | float | np.number):  # pandas would take it for nanoseconds since 1970
        raise _no_date(date)
    if isinstance(date, str) and _YEAR_LAST.match(date):
        raise _no_date(date)
    try:
        time = pd.Timestamp(date)
        time = time.tz_localize(None)
    except (ValueError, TypeError, OverflowError) as error:
        raise _no_date(date) from error
    if pd.isna(time):
        raise _no_date(date)
    return min(max(time, pd.Timestamp.min), pd.Timestamp.max).as_unit("ns")


def end_of_day(date: Date) -> pd.Timestamp:
    """Return the last nanosecond of a day, month, quarter or year, at most the last that there is.

    ``date``: ``2024-01`` means the month, ``2024Q1`` the quarter, ``2024`` the year, and anything
    else a day. Raises UsageError for anything but a date.
    """
    time = nearest_time(date)
    if time >= pd.Timestamp.max.floor("D"):
        return pd.Timestamp.max
    day = max(time, pd.Timestamp.min.ceil("D"))
    if isinstance(date, str):
        with contextlib.suppress(ValueError):  # of a period that ends beyond nanoseconds
            day = max(day, pd.Period(date).end_time.as_unit("ns"))
    return day.normalize() + pd.Timedelta(days=1, nanoseconds=-1)


def as_time(time: Time | Shaped[np.ndarray, ""], kind: str) -> Shaped[np.ndarray, ""]:
    """Return a time that compares with those of a panel, whose dtype's kind is "M" or "i".

    Raises UsageError for anything but one date, or one whole number.
    """
    array = np.asarray(time)
    if kind != "M":
        number = array.ndim == 0 and array.dtype.kind in "iuf" and abs(array) < _MOST
        if not number or array != np.rint(array):
            raise wrong_argument("cutoff", time, "a whole number, as the series count in them")
        return array.astype(np.int64)
    if array.ndim or array.dtype.kind in "biufc":  # numbers are no nanoseconds since 1970
        raise _no_date(time)
    if array.dtype != np.dtype("datetime64[ns]"):
        # pandas 2 does not take text of NumPy.
        value = str(array) if array.dtype.kind == "U" else array[()]
        array = np.asarray(nearest_time(cast(Date, value)).to_datetime64())
    return array


def _no_date(date: object) -> UsageError:
    return UsageError(f"{date!r} is not a date; expected e.g. 2024-03-28")
