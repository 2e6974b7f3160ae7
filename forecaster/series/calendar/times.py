"""Times of series: what a caller may write for one, and how one is shown."""

import datetime
from collections.abc import Iterable
from typing import TypeAlias, cast

import numpy as np
import pandas as pd
from jaxtyping import Shaped

from forecaster.errors import UsageError

Date: TypeAlias = str | datetime.date | np.datetime64
"""A date as a caller may write it; ``datetime`` and ``pandas.Timestamp`` are dates too."""

Time: TypeAlias = Date | int | np.integer
"""A date, or a whole number where series count in them."""


def show_time(time: object) -> str:
    """A time as a person writes it: a date without midnight, or a number.

    ``time``: a :data:`Time`, or whatever else pandas takes for a date.
    """
    if isinstance(time, (int, np.integer)):
        return str(int(cast(int, time)))
    return str(pd.Timestamp(cast(Date, time))).removesuffix(" 00:00:00")


def show_times(times: Iterable[object]) -> list[str]:
    """Times of one table in one form: dates where all are midnights, else to the minute."""
    times = list(times)
    shown = [show_time(time) for time in times]
    if any(" " in text for text in shown):
        stamps = [pd.Timestamp(cast(Date, time)) for time in times]
        exact = any(stamp != stamp.floor("min") for stamp in stamps)
        return [str(stamp) if exact else f"{stamp:%Y-%m-%d %H:%M}" for stamp in stamps]
    return shown


def nearest_time(date: Date) -> pd.Timestamp:
    """A date in nanoseconds since 1970, as series keep their times.

    They reach from 1677 to 2262; a date before or after becomes the first or the last time that
    there is. Of a date with a timezone the wall clock counts, as of those of tables. Raises
    UsageError for what is no date.
    """
    try:
        time = pd.Timestamp(date)
        time = time.tz_localize(None)
    except (ValueError, TypeError, OverflowError) as error:
        raise _no_date(date) from error
    if pd.isna(time):
        raise _no_date(date)
    return min(max(time, pd.Timestamp.min), pd.Timestamp.max).as_unit("ns")


def end_of_day(date: Date) -> pd.Timestamp:
    """The last nanosecond of a day; of one that is too late, the last that there is.

    Raises UsageError for what is no date.
    """
    time = nearest_time(date)
    if time >= pd.Timestamp.max.floor("D"):
        return pd.Timestamp.max
    return max(time, pd.Timestamp.min.ceil("D")).normalize() + pd.Timedelta(days=1, nanoseconds=-1)


def as_time(time: Time | Shaped[np.ndarray, ""], kind: str) -> Shaped[np.ndarray, ""]:
    """A time to compare with those of a panel: of a dtype's ``kind``, "M" or "i"."""
    array = np.asarray(time)
    if kind != "M":
        return array.astype(np.int64)
    if array.dtype != np.dtype("datetime64[ns]"):
        # Text as Python's own: pandas 2 does not take NumPy's.
        value = str(array) if array.dtype.kind == "U" else array[()]
        array = np.asarray(nearest_time(cast(Date, value)).to_datetime64())
    return array


def _no_date(date: object) -> UsageError:
    return UsageError(f"{date!r} is not a date; expected e.g. 2024-03-28")
