"""Rules of dates that are weeks, half months, months or quarters apart, found despite gaps."""

import numpy as np
import pandas as pd
from jaxtyping import Shaped

WEEKDAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")
_NEARLY_ALL = 0.9  # share of the dates that must follow a rule
_MOSTLY = 0.8  # share of gaps that are whole steps; quarters of 14 weeks are exceptions
_FEWEST = 3  # dates that tell a rule
_MONTH = 30.44  # days in the mean
_HALF_MONTH = (13, 16)  # days between the middle and the end of a month
_PART = 0.25  # least share of the dates on each of the two days of a half month


def rule_of(index: pd.DatetimeIndex) -> str | None:
    """Return the offset alias of the rule that nearly all dates follow; None where none is found.

    Rules are two days of each month, a number of weeks, and the n-th or last Monday, Tuesday, ...
    of every month or of every few.

    ``index``: sorted and unique, with a median distance of nine days or more
    """
    if len(index) < _FEWEST:
        return None
    days = float(np.median(np.diff(_numbers(index))))
    if _HALF_MONTH[0] <= days <= _HALF_MONTH[1] and (alias := _half_months(index)):
        return alias
    if alias := _weeks(index, 1.0):
        return alias
    months = round(days / _MONTH)
    if not months:
        return _weeks(index, _MOSTLY)
    return (
        _nth_weekday(index, months, 1.0)
        or _nth_weekday(index, months, _NEARLY_ALL)
        or _weeks(index, _MOSTLY)
    )


def name_of_weekday(index: pd.DatetimeIndex) -> str:
    """Return the weekday that most dates have: MON, TUE, ..."""
    return WEEKDAYS[_most_common(index.day_of_week)]


def _most_common(numbers: pd.Index | Shaped[np.ndarray, " row"]) -> int:
    return int(np.bincount(numbers).argmax())


def _numbers(index: pd.DatetimeIndex) -> Shaped[np.ndarray, " row"]:
    return index.to_numpy().astype("datetime64[D]").astype(np.int64)


def _half_months(index: pd.DatetimeIndex) -> str | None:
    """Return the alias of dates on the first or on the last of a month, and on one day between."""
    for alias, edge in (("SMS", index.day == 1), ("SME", index.is_month_end)):
        between = index.day[~edge]
        if not len(between):
            continue
        day = _most_common(between)
        middle = index.day == day
        both = min(edge.mean(), middle.mean()) >= _PART
        if both and (edge | middle).mean() >= _NEARLY_ALL and 2 <= day <= 27:
            return f"{alias}-{day}"
    return None


def _weeks(index: pd.DatetimeIndex, share: float) -> str | None:
    """Return the alias of dates on one weekday that are some weeks apart, or a multiple of them."""
    gaps = np.diff(_numbers(index))
    usual = int(np.median(gaps))
    if usual % 7 or (gaps % 7).any() or (gaps % usual == 0).mean() < share:
        return None
    return f"{usual // 7}W-{name_of_weekday(index)}"


def edge_of_months(index: pd.DatetimeIndex, months: int) -> str | None:
    """Return the alias of nearly all dates on the first or last day or weekday of some months."""
    month = index.to_numpy().astype("datetime64[M]")
    days = index.to_numpy().astype("datetime64[D]")
    begins = month.astype("datetime64[D]")
    ends = (month + np.timedelta64(1, "M")).astype("datetime64[D]")
    for kind, edges in (
        ("S", begins),
        ("E", ends - np.timedelta64(1, "D")),
        ("BS", np.busday_offset(begins, 0, roll="forward")),
        ("BE", np.busday_offset(ends, -1, roll="forward")),
    ):
        on = edges == days
        if on.mean() >= _NEARLY_ALL:
            return _anchored(kind, months, month[on].astype(np.int64) % 12)
    return None


def _anchored(kind: str, months: int, numbers: Shaped[np.ndarray, " row"]) -> str:
    """Return the alias of dates ``months`` apart.

    - ``kind``: S for the first and E for the last day of a month, after a B of its weekdays
    - ``numbers``: the month of each date, January is 0
    """
    business, edge = kind[:-1], kind[-1]
    period = {3: "Q", 12: "Y"}.get(months)
    if period is None:
        return f"{months if months > 1 else ''}{business}M{edge}"
    number = _most_common(numbers % months)
    if period == "Q" and edge == "E":
        number += 9
    return f"{business}{period}{edge}-{pd.Timestamp(2000, number + 1, 1).strftime('%b').upper()}"


def _nth_weekday(index: pd.DatetimeIndex, months: int, share: float) -> str | None:
    """Return the alias of dates on the n-th or last of a weekday in every month or every few."""
    steps = np.diff(index.year * 12 + index.month)
    if (steps == 0).any() or (steps % months).any():
        return None
    weekday = _most_common(index.day_of_week)
    same, name = index.day_of_week == weekday, name_of_weekday(index)
    every = "" if months == 1 else str(months)
    if (same & (index.day + 7 > index.days_in_month)).mean() >= share:
        return f"{every}LWOM-{name}"
    for number in (1, 2, 3, 4):
        if (same & ((index.day + 6) // 7 == number)).mean() >= share:
            return f"{every}WOM-{number}{name}"
    return None
