"""Days unlike others: the ends of months, holidays that keep a date or move, and the time of year.

The holidays are those of many countries with a Christian tradition, and of the United States. A day
that means nothing to a series gets no effect, see :mod:`forecaster.series.known.effects`; other
holidays can be given as covariates that are known in advance.
"""

import functools

import numpy as np
import pandas as pd
from jaxtyping import Float, Int, Shaped

_YEAR = 365.2425  # days
_HARMONICS = 4
_EDGE = 5  # days at each end of a month
_MIDDLE = (14, 15, 16)  # pay days
_EASTER = (-48, -47, -46, -4, -3, -2, -1, 0, 1, 2, 39, 49, 50, 60)
"""Days from Easter Sunday: carnival, its own week, Ascension, Pentecost, Corpus Christi."""
_DATES = (
    101, 102, 106, 214, 501, 704, 1031, 1101, 1111, 1222, 1223, 1224, 1225, 1226, 1227, 1228, 1229,
    1230, 1231,
)  # fmt: skip
_FLOATING = (  # month, weekday from Monday = 0, which of the month, days after it
    (1, 0, 3, 0), (2, 0, 3, 0), (5, 0, -1, 0), (9, 0, 1, 0), (11, 3, 4, 0), (11, 3, 4, 1),
    (11, 3, 4, 4),
)  # fmt: skip
_EXPIRY = (4, 3)  # the third Friday of a month, when options expire
WEEKS = (7, 5)
"""Days in the week of a daily series: all, or from Monday to Friday."""
_BLOCK = 1024  # days that are computed at once
_EPOCH = np.datetime64("1970-01-01")

GROUPS = {
    "holidays": len(_EASTER) + len(_DATES) + len(_FLOATING),
    "month": 2 * _EDGE + len(_MIDDLE) + 1,
    "year": 2 * _HARMONICS,
}
"""The number of columns of each group of :func:`special_days`, in their order."""


def special_days(first: int, last: int, week: int = 7) -> Float[np.ndarray, "day column"]:
    """Return what each day is: 1 on the days of a column, 0 on others; a wave for the time of year.

    - ``first``, ``last``: the first and the last day, as numbers of :func:`day_numbers`
    - ``week``: one of :data:`WEEKS`. If weekends have no rows, the first and last days of a month
      are its first and last weekdays
    """
    numbers = range(first // _BLOCK, last // _BLOCK + 1)
    blocks = np.concatenate([_block(number, week) for number in numbers])
    begin = first - numbers[0] * _BLOCK
    return blocks[begin : begin + last - first + 1]


@functools.lru_cache(maxsize=128)
def _block(number: int, week: int) -> Float[np.ndarray, "day column"]:
    """Return the days of a block, which all series share, whenever they begin."""
    steps = np.arange(number * _BLOCK, (number + 1) * _BLOCK)
    weekdays = np.busday_offset(_EPOCH, steps) if week == 5 else steps.astype("datetime64[D]")
    days, numbers = pd.DatetimeIndex(weekdays), weekdays.astype(np.int64)
    month, day = np.asarray(days.month), np.asarray(days.day)
    begins = weekdays.astype("datetime64[M]")
    since = steps - day_numbers(begins.astype("datetime64[D]"), week)
    to_end = day_numbers((begins + 1).astype("datetime64[D]"), week) - steps - 1
    after_easter = days_from_easter(numbers)
    date = 100 * month + day
    columns = [after_easter == offset for offset in _EASTER]
    columns += [date == one for one in _DATES]
    columns += [floating_days(numbers, *rule) for rule in _FLOATING]
    columns += [since == one for one in range(_EDGE)]
    columns += [to_end == one for one in range(_EDGE)]
    columns += [day == one for one in _MIDDLE]
    weekday, which = _EXPIRY
    columns += [(np.asarray(days.day_of_week) == weekday) & ((day - 1) // 7 == which - 1)]
    angle = 2 * np.pi * numbers / _YEAR
    columns += [wave(k * angle) for k in range(1, _HARMONICS + 1) for wave in (np.sin, np.cos)]
    made = np.stack(columns, axis=1).astype(float)
    made.setflags(write=False)
    return made


def day_numbers(times: Shaped[np.ndarray, "..."], week: int = 7) -> Int[np.ndarray, "..."]:
    """Return the days of dates, counted from 1970-01-01; ``week``: 5 to count weekdays alone."""
    days = times.astype("datetime64[D]")
    if week == 5:
        return np.asarray(np.busday_count(_EPOCH, days), np.int64)
    return days.astype(np.int64)


def days_from_easter(numbers: Int[np.ndarray, " day"]) -> Int[np.ndarray, " day"]:
    """Return how many days each day lies after Easter Sunday of its year; before: negative."""
    from dateutil.easter import easter

    years = 1970 + numbers.astype("datetime64[D]").astype("datetime64[Y]").astype(np.int64)
    unique, which = np.unique(years, return_inverse=True)
    found = [np.datetime64(easter(int(year)), "D").astype(int) for year in unique]
    return numbers - np.array(found, np.int64)[which]


def floating_days(
    numbers: Int[np.ndarray, " day"], month: int, weekday: int, which: int, after: int
) -> np.ndarray:
    """Return which days are ``after`` days behind a certain weekday of a month; -1: its last."""
    days = pd.DatetimeIndex((numbers - after).astype("datetime64[D]"))
    day, ahead = np.asarray(days.day), np.asarray(days.days_in_month) - np.asarray(days.day)
    place = ahead < 7 if which < 0 else (day - 1) // 7 == which - 1
    return (np.asarray(days.month) == month) & (np.asarray(days.day_of_week) == weekday) & place
