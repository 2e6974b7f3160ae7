"""The rhythms of series, such as hours or weeks, and what makes each of their steps special.

A step is an hour, a day, a weekday, a week, a month or a quarter. Days have the special days of
:mod:`forecaster.series.calendar.special_days`, hours those of their day. Months and quarters have
their trading days, and their share of the holidays that move: what X-13ARIMA-SEATS calls ``td`` and
``easter`` (U.S. Census Bureau, X-13ARIMA-SEATS Reference Manual, 4.5). Weeks have the holidays that
fall into them, the week before and the week after.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from jaxtyping import Float, Int, Shaped

from forecaster.series.calendar.frequency import infer_frequency
from forecaster.series.calendar.special_days import (
    GROUPS,
    day_numbers,
    days_from_easter,
    floating_days,
    special_days,
)

_BLOCK = 256  # steps that are computed at once
_HALF = 15  # the last day of the first half of a month
_WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
_MONTH = 30.436875  # days in the mean
_WINDOWS = ((-7, 0), (-2, 1), (39, 50))
"""Days from Easter Sunday: the week before, Good Friday to Monday, Ascension to Whit Monday."""
_DATES = ((2, 14), (7, 4), (10, 31), (12, 25), (1, 1))
_FLOATING = ((5, 0, -1, 0), (9, 0, 1, 0), (11, 3, 4, 0))
"""Memorial Day, Labor Day and Thanksgiving, as :func:`floating_days` takes them."""
_AROUND = (-1, 0, 1)  # weeks from that of a holiday; a row may be named by its week's first day
_NEAR = 3  # days before and after the last of a week
_EDGE = 5  # days at each end of a month
_HARMONICS = 2  # of a day


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
    """

    name: str
    season: int
    years: Mapping[str, float]
    sizes: Mapping[str, int]
    fewest: int
    least: int
    most: int
    latest: int
    _numbers: Callable[[Shaped[np.ndarray, "..."]], Int[np.ndarray, "..."]]
    _special: Callable[[int, int], Float[np.ndarray, "step column"]]

    @property
    def columns(self) -> int:
        """The number of columns of all groups."""
        return sum(self.sizes.values())

    def numbers(self, times: Shaped[np.ndarray, "..."]) -> Int[np.ndarray, "..."]:
        """Return the steps of dates, counted from some step."""
        return self._numbers(times)

    def special(self, first: int, last: int) -> Float[np.ndarray, "step column"]:
        """Return how special each step is, from step ``first`` of :meth:`numbers` to ``last``."""
        return self._special(first, last)


def rhythm_of(times: Shaped[np.ndarray, " row"]) -> str:
    """Return the name of the rhythm of a series; empty where it has none of :data:`RHYTHMS`."""
    if times.dtype.kind != "M" or len(times) < 2:
        return ""
    frequency = infer_frequency(times)
    alias = frequency.alias
    if frequency.months == 1:
        return "M"
    if alias == "3600s" and frequency.hours is None and not frequency.open:
        return "h"
    if frequency.months == 3:
        return "Q" if _are_quarters(times) else ""
    return alias if alias in RHYTHMS else ""


def _are_quarters(times: Shaped[np.ndarray, " row"]) -> bool:
    """Return whether rows are named by the begin or by the end of a calendar's quarters."""
    months = times.astype("datetime64[M]")
    late = (times.astype("datetime64[D]") - months).astype(np.int64) >= _HALF
    place = months.astype(np.int64) % 3
    return bool(((place == 0) & ~late).all() or ((place == 2) & late).all())


def _months(times: Shaped[np.ndarray, "..."]) -> Int[np.ndarray, "..."]:
    return times.astype("datetime64[M]").astype(np.int64)


def _quarters(times: Shaped[np.ndarray, "..."]) -> Int[np.ndarray, "..."]:
    return _months(times) // 3


def _hours(times: Shaped[np.ndarray, "..."]) -> Int[np.ndarray, "..."]:
    return times.astype("datetime64[h]").astype(np.int64)


def _weeks(times: Shaped[np.ndarray, "..."], weekday: int) -> Int[np.ndarray, "..."]:
    """Return the week whose last day, a weekday, is nearest to each date; Monday is 0.

    Where that day is a holiday, a row may be named by the day before or after it.
    """
    return (times.astype("datetime64[D]").astype(np.int64) - weekday + 3 + _NEAR) // 7


def _days_of_months(first: int, count: int, months: int) -> Int[np.ndarray, " step"]:
    """Return the first days of steps of some months each, and of the one after the last."""
    begins = (np.arange(first, first + count + 1) * months).astype("datetime64[M]")
    return begins.astype("datetime64[D]").astype(np.int64)


@functools.lru_cache(maxsize=256)
def _block_of_months(number: int, months: int) -> Float[np.ndarray, "step column"]:
    """Return a block of months or quarters: their trading days, their share of moving holidays."""
    begins = _days_of_months(number * _BLOCK, _BLOCK, months)
    days = np.arange(int(begins[0]), int(begins[-1]))
    from_easter = days_from_easter(days)
    weekday = (days + 3) % 7  # 1970-01-01 was a Thursday
    columns = [weekday == one for one in range(7)]
    columns += [(from_easter >= a) & (from_easter <= b) for a, b in _WINDOWS]
    made = np.add.reduceat(np.stack(columns, 1).astype(float), begins[:-1] - begins[0], axis=0)
    made[:, :7] -= months * _MONTH / 7
    made[:, 7:] /= [b - a + 1 for a, b in _WINDOWS]
    made.setflags(write=False)
    return made


@functools.lru_cache(maxsize=256)
def _block_of_weeks(number: int, weekday: int) -> Float[np.ndarray, "step column"]:
    """Return a block of weeks: the holidays in each and in those beside it, the ends of months."""
    weeks = np.arange(number * _BLOCK - 1, (number + 1) * _BLOCK + 1)
    days = np.arange(7 * int(weeks[0]) + weekday - 9, 7 * int(weeks[-1]) + weekday - 2)
    dates = days.astype("datetime64[D]")
    month = dates.astype("datetime64[M]")
    of_year, of_month = month.astype(np.int64) % 12 + 1, (dates - month).astype(np.int64) + 1
    to_end = ((month + 1).astype("datetime64[D]") - dates).astype(np.int64)
    from_easter = days_from_easter(days)
    holidays = [from_easter == 0, from_easter == 49]
    holidays += [(of_year == month) & (of_month == day) for month, day in _DATES]
    holidays += [floating_days(days, *rule) for rule in _FLOATING]
    ends = [of_month <= _EDGE, to_end <= _EDGE]
    by_week = np.stack([*holidays, *ends], 1).reshape(len(weeks), 7, -1).sum(1).astype(float)
    size = len(holidays)
    around = [np.roll(by_week[:, :size], after, axis=0) for after in _AROUND]
    made = np.concatenate([*around, by_week[:, size:] / _EDGE], axis=1)[1:-1]
    made.setflags(write=False)
    return made


def _hours_between(first: int, last: int) -> Float[np.ndarray, "step column"]:
    """Return the special days of hours.

    A holiday on a working day changes the hours of the day unequally, so it has waves. On a weekend
    it has none: there it is like other days of the weekend.
    """
    hours = np.arange(first, last + 1)
    days = special_days(first // 24, last // 24)[hours // 24 - first // 24]
    works = ((hours // 24 + 3) % 7 < 5)[:, None]  # 1970-01-01 was a Thursday
    angles = 2 * np.pi / 24 * hours[:, None] * np.arange(1, _HARMONICS + 1)
    waves = [works, works * np.sin(angles), works * np.cos(angles)]
    size = GROUPS["holidays"]
    holidays = days[:, :size, None] * np.concatenate(waves, axis=1)[:, None]
    return np.concatenate([holidays.reshape(len(hours), -1), days[:, size:]], axis=1)


def _between(
    first: int, last: int, block: Callable[[int], Float[np.ndarray, "step column"]]
) -> Float[np.ndarray, "step column"]:
    """Return the columns of steps from blocks of them."""
    numbers = range(first // _BLOCK, last // _BLOCK + 1)
    blocks = np.concatenate([block(number) for number in numbers])
    begin = first - numbers[0] * _BLOCK
    return blocks[begin : begin + last - first + 1]


def _of_days(name: str, week: int) -> Rhythm:
    years = {"holidays": 1.0, "month": 0.5, "year": 2.0}
    return Rhythm(
        name, week, years, GROUPS, fewest=180, least=21, most=60, latest=30 * 365,
        _numbers=functools.partial(day_numbers, week=week),
        _special=functools.partial(special_days, week=week),
    )  # fmt: skip


def _of_weeks(name: str, weekday: int) -> Rhythm:
    sizes = {"holidays": len(_AROUND) * (2 + len(_DATES) + len(_FLOATING)), "month": 2}

    def special(first: int, last: int) -> Float[np.ndarray, "step column"]:
        return _between(first, last, lambda number: _block_of_weeks(number, weekday))

    return Rhythm(
        name, 52, {"holidays": 3.0, "month": 3.0}, sizes, fewest=156, least=130, most=60,
        latest=30 * 52, _numbers=functools.partial(_weeks, weekday=weekday), _special=special,
    )  # fmt: skip


def _of_months(name: str, months: int) -> Rhythm:
    sizes = {"trading days": 7, "holidays": len(_WINDOWS)}

    def special(first: int, last: int) -> Float[np.ndarray, "step column"]:
        return _between(first, last, lambda number: _block_of_months(number, months))

    season = 12 // months
    years = dict.fromkeys(sizes, 5.0)
    return Rhythm(
        name, season, years, sizes, fewest=5 * season, least=3 * season, most=200,
        latest=100 * season, _numbers=_months if months == 1 else _quarters, _special=special,
    )  # fmt: skip


RHYTHMS: Mapping[str, Rhythm] = MappingProxyType(
    {
        "D": _of_days("D", 7),
        "B": _of_days("B", 5),
        "M": _of_months("M", 1),
        "Q": _of_months("Q", 3),
        "h": Rhythm(
            "h", 168, {"holidays": 1.0, "month": 0.5, "year": 2.0},
            GROUPS | {"holidays": (1 + 2 * _HARMONICS) * GROUPS["holidays"]},
            fewest=24 * 90, least=24 * 21, most=8, latest=4 * 365 * 24, _numbers=_hours,
            _special=_hours_between,
        ),
        **{
            f"W-{name}": _of_weeks(f"W-{name}", weekday) for weekday, name in enumerate(_WEEKDAYS)
        },
    }
)  # fmt: skip
"""By name: hours, days, weekdays, weeks by the day that they end on, months and quarters."""
