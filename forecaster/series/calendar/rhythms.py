"""The rhythms of series, such as days or weeks, and what makes each of their steps special.

A step is an hour, a day, a weekday, a week or a month. Days are special at the ends of months, on
holidays that keep a date or move, and by the time of year; hours by those of their day. Weeks have
the holidays that fall into them, the week before and the week after. Months have their trading
days, and their share of the holidays that move: what X-13ARIMA-SEATS calls ``td`` and ``easter``
(U.S. Census Bureau, X-13ARIMA-SEATS Reference Manual, 4.5).

The holidays are those of many countries with a Christian tradition, and of the United States. A day
that means nothing to a series gets no effect, see :mod:`forecaster.series.effects`; other
holidays can be given as covariates that are known in advance.
"""

import calendar
import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import pandas as pd
from jaxtyping import Float, Int, Shaped

from forecaster.series.calendar.frequency import WEEKDAYS, Frequency

_YEAR = 365.2425  # days
_HARMONICS = 4
_EDGE = 5  # days at each end of a month
_MIDDLE = (14, 15, 16)  # pay days
EASTER = (-48, -47, -46, -4, -3, -2, -1, 0, 1, 2, 39, 49, 50, 60)
"""Days from Easter Sunday: carnival, its own week, Ascension, Pentecost, Corpus Christi."""
DATES = (
    101, 102, 106, 214, 501, 704, 1031, 1101, 1111, 1222, 1223, 1224, 1225, 1226, 1227, 1228, 1229,
    1230, 1231,
)  # fmt: skip
_FLOATING = (  # month, weekday from Monday = 0, which of the month, days after it
    (1, 0, 3, 0), (2, 0, 3, 0), (5, 0, -1, 0), (9, 0, 1, 0), (11, 3, 4, 0), (11, 3, 4, 1),
    (11, 3, 4, 4),
)  # fmt: skip
_EXPIRY = (4, 3)  # the third Friday of a month, when options expire
_BLOCK = 256  # steps that are computed at once
_EPOCH = np.datetime64("1970-01-01")

GROUPS = {
    "holidays": len(EASTER) + len(DATES) + len(_FLOATING),
    "month": 2 * _EDGE + len(_MIDDLE) + 1,
    "year": 2 * _HARMONICS,
}
"""The number of columns of each group of special days, in their order."""
_OF_WEEKS = [
    [*EASTER, *DATES, *_FLOATING].index(day)
    for day in (0, 49, 214, 704, 1031, 1225, 101, (5, 0, -1, 0), (9, 0, 1, 0), (11, 3, 4, 0))
]
"""The columns of holidays that weeks have: with Memorial Day, Labor Day and Thanksgiving."""
_MONTH = 30.436875  # days in the mean
_WINDOWS = ((-7, 0), (-2, 1), (39, 50))
"""Days from Easter Sunday: the week before, Good Friday to Monday, Ascension to Whit Monday."""
_AROUND = (-1, 0, 1)  # weeks from that of a holiday; a row may be named by its week's first day
Special: TypeAlias = Callable[[int, int], Float[np.ndarray, "step column"]]
_NEAR = 3  # days before and after the last of a week
_WAVES = 2  # of a day


@dataclasses.dataclass(frozen=True)
class Rhythm:
    """How the rows of a series follow each other, and what makes each step special.

    - ``name``: one of :data:`RHYTHMS`
    - ``season``: the number of steps in a season
    - ``years``: by group of special steps, the years of rows needed to learn its effects
    - ``sizes``: the number of columns of each group, in their order
    - ``fewest``: the minimum rows of a series that effects of the panel are learned from
    - ``most``: the maximum number of such series
    - ``least``: the minimum rows of a series that gets effects
    - ``latest``: the number of latest rows of a series that its effects are learned from
    - ``numbers``: returns the steps of dates, counted from some step
    - ``special``: returns how special each step is, from one of these to another
    """

    name: str
    season: int
    years: Mapping[str, float]
    sizes: Mapping[str, int]
    fewest: int
    least: int
    most: int
    latest: int
    numbers: Callable[[Shaped[np.ndarray, "..."]], Int[np.ndarray, "..."]]
    special: Special

    @property
    def columns(self) -> int:
        """The number of columns of all groups."""
        return sum(self.sizes.values())


def rhythm_of(frequency: Frequency) -> str:
    """Return the name of the rhythm of a frequency; empty where it has none of :data:`RHYTHMS`."""
    alias = frequency.alias
    if frequency.months == 1:
        return "M"
    if alias == "3600s" and frequency.hours is None and not frequency.open:
        return "h"
    return alias if alias in RHYTHMS else ""


def _months(first: int, last: int) -> Float[np.ndarray, "step column"]:
    """Return the trading days of months, and their share of moving holidays."""
    months = np.arange(first, last + 2).astype("datetime64[M]")
    begins = months.astype("datetime64[D]").astype(np.int64)
    days = np.arange(int(begins[0]), int(begins[-1]))
    from_easter = days_from_easter(days)
    weekday = (days + 3) % 7  # 1970-01-01 was a Thursday
    columns = [weekday == one for one in range(7)]
    columns += [(from_easter >= a) & (from_easter <= b) for a, b in _WINDOWS]
    made = np.add.reduceat(np.stack(columns, 1).astype(float), begins[:-1] - begins[0], axis=0)
    made[:, :7] -= _MONTH / 7
    made[:, 7:] /= [b - a + 1 for a, b in _WINDOWS]
    return made


def _weeks(first: int, last: int, weekday: int) -> Float[np.ndarray, "step column"]:
    """Return the holidays in each week and in those beside it, and the ends of months."""
    begin, end = 7 * (first - 1) + weekday - 9, 7 * (last + 2) + weekday - 10
    by_week = RHYTHMS["D"].special(begin, end).reshape(-1, 7, RHYTHMS["D"].columns).sum(1)
    around = [np.roll(by_week[:, _OF_WEEKS], after, axis=0) for after in _AROUND]
    edges = by_week[:, GROUPS["holidays"] :][:, : 2 * _EDGE].reshape(-1, 2, _EDGE).sum(-1)
    return np.concatenate([*around, edges / _EDGE], axis=1)[1:-1]


def _hours(first: int, last: int) -> Float[np.ndarray, "step column"]:
    """Return the special days of hours.

    A holiday on a working day changes the hours of the day unequally, so it has waves. On a weekend
    it has none: there it is like other days of the weekend.
    """
    hours = np.arange(first, last + 1)
    days = RHYTHMS["D"].special(first // 24, last // 24)[hours // 24 - first // 24]
    works = ((hours // 24 + 3) % 7 < 5)[:, None]  # 1970-01-01 was a Thursday
    angles = 2 * np.pi / 24 * hours[:, None] * np.arange(1, _WAVES + 1)
    waves = [works, works * np.sin(angles), works * np.cos(angles)]
    size = GROUPS["holidays"]
    holidays = days[:, :size, None] * np.concatenate(waves, axis=1)[:, None]
    return np.concatenate([holidays.reshape(len(hours), -1), days[:, size:]], axis=1)


def _in_blocks(special: Special) -> Special:
    """Return the function with its columns made in blocks, which all series share."""

    @functools.lru_cache(maxsize=256)
    def block(number: int) -> Float[np.ndarray, "step column"]:
        return special(number * _BLOCK, (number + 1) * _BLOCK - 1)

    def between(first: int, last: int) -> Float[np.ndarray, "step column"]:
        numbers = range(first // _BLOCK, last // _BLOCK + 1)
        blocks = np.concatenate([block(number) for number in numbers])
        begin = first - numbers[0] * _BLOCK
        return blocks[begin : begin + last - first + 1]

    return between


def _days(first: int, last: int, week: int) -> Float[np.ndarray, "day column"]:
    """Return what each day is: 1 on the days of a column, 0 on others; a wave for the time of year.

    - ``first``, ``last``: the first and the last day, as numbers of :func:`day_numbers`
    - ``week``: days in a week. If weekends have no rows, the first and last days of a month are its
      first and last weekdays
    """
    steps = np.arange(first, last + 1)
    weekdays = np.busday_offset(_EPOCH, steps) if week == 5 else steps.astype("datetime64[D]")
    days, numbers = pd.DatetimeIndex(weekdays), weekdays.astype(np.int64)
    month, day = np.asarray(days.month), np.asarray(days.day)
    begins = weekdays.astype("datetime64[M]")
    since = steps - day_numbers(begins.astype("datetime64[D]"), week)
    to_end = (
        day_numbers((begins + np.timedelta64(1, "M")).astype("datetime64[D]"), week) - steps - 1
    )
    after_easter = days_from_easter(numbers)
    date = 100 * month + day
    columns = [after_easter == offset for offset in EASTER]
    columns += [date == one for one in DATES]
    columns += [floating_days(numbers, *rule) for rule in _FLOATING]
    columns += [since == one for one in range(_EDGE)]
    columns += [to_end == one for one in range(_EDGE)]
    columns += [day == one for one in _MIDDLE]
    weekday, which = _EXPIRY
    columns += [(np.asarray(days.day_of_week) == weekday) & ((day - 1) // 7 == which - 1)]
    angle = 2 * np.pi * numbers / _YEAR
    columns += [wave(k * angle) for k in range(1, _HARMONICS + 1) for wave in (np.sin, np.cos)]
    return np.stack(columns, axis=1).astype(float)


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


def _week_numbers(times: Shaped[np.ndarray, "..."], weekday: int) -> Int[np.ndarray, "..."]:
    """Return the week whose last day is nearest: a row may be named by the day before or after."""
    return (day_numbers(times) - weekday + 3 + _NEAR) // 7


_YEARS = {"holidays": 1.0, "month": 0.5, "year": 2.0}
_EACH = (
    *(Rhythm(name, week, _YEARS, GROUPS, fewest=180, least=21, most=60, latest=30 * 365,
             numbers=functools.partial(day_numbers, week=week),
             special=_in_blocks(functools.partial(_days, week=week)))
      for name, week in (("D", 7), ("B", 5))),
    Rhythm("M", 12, {"trading days": 5.0, "holidays": 5.0},
           {"trading days": 7, "holidays": len(_WINDOWS)}, fewest=60, least=36, most=200,
           latest=1200, numbers=lambda times: times.astype("datetime64[M]").astype(np.int64),
           special=_in_blocks(_months)),
    Rhythm("h", 168, _YEARS, GROUPS | {"holidays": (1 + 2 * _WAVES) * GROUPS["holidays"]},
           fewest=24 * 90, least=24 * 21, most=8, latest=4 * 365 * 24,
           numbers=lambda times: times.astype("datetime64[h]").astype(np.int64), special=_hours),
    *(Rhythm(f"W-{name}", 52, {"holidays": 3.0, "month": 3.0},
             {"holidays": len(_AROUND) * len(_OF_WEEKS), "month": 2},
             fewest=156, least=130, most=60, latest=30 * 52,
             numbers=functools.partial(_week_numbers, weekday=weekday),
             special=_in_blocks(functools.partial(_weeks, weekday=weekday)))
      for weekday, name in enumerate(WEEKDAYS)),
)  # fmt: skip
RHYTHMS: Mapping[str, Rhythm] = MappingProxyType({one.name: one for one in _EACH})
"""By name: hours, days, weekdays, months, and weeks by the day that they end on."""


_GROUP_NAMES = {
    "holidays": "a holiday",
    "month": "the day of the month",
    "year": "the time of year",
}
_AROUND_EASTER = {
    -48: "Carnival Monday", -47: "Shrove Tuesday", -46: "Ash Wednesday", -4: "the Wednesday of "
    "Holy Week", -3: "Maundy Thursday", -2: "Good Friday", -1: "Holy Saturday", 0: "Easter Sunday",
    1: "Easter Monday", 2: "the Tuesday after Easter", 39: "Ascension Day", 49: "Whit Sunday",
    50: "Whit Monday", 60: "Corpus Christi",
}  # fmt: skip
_FLOATING_NAMES = (
    "Martin Luther King Day", "Presidents' Day", "Memorial Day", "Labor Day", "Thanksgiving",
    "the day after Thanksgiving", "the Monday after Thanksgiving",
)  # fmt: skip


def effect_name(effects: Sequence[float], time: np.datetime64, rhythm: str) -> str:
    """Return what a series' effect of the calendar at a time is most about; empty for none."""
    if not len(effects):
        return ""
    known = RHYTHMS[rhythm]
    (step,) = known.numbers(np.array([time])).tolist()
    each = known.special(step, step)[0] * np.asarray(effects)
    ends = np.cumsum([*known.sizes.values()])
    parts = dict(zip(known.sizes, np.split(each, ends[:-1]), strict=True))
    group = max(parts, key=lambda name: abs(parts[name].sum()))
    if not parts[group].any():
        return ""
    if group != "holidays" or rhythm not in ("D", "B"):  # of others a step may hold several
        return _GROUP_NAMES.get(group, group)
    column = int(np.argmax(np.abs(parts[group])))
    dates = [f"{date % 100} {calendar.month_name[date // 100]}" for date in DATES]
    return [*(_AROUND_EASTER[days] for days in EASTER), *dates, *_FLOATING_NAMES][column]
