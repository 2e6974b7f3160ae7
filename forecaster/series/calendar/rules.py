"""Rules of dates that are weeks, half months, months or quarters apart, found despite gaps."""

import numpy as np
import pandas as pd
from jaxtyping import Bool, Shaped

_NEARLY_ALL = 0.9  # share of the dates that must follow a rule
_MOSTLY = 0.8  # share of gaps that are whole steps; quarters of 14 weeks are exceptions
_FEWEST, _FEWEST_PERIODS = 3, 4  # dates that tell a rule; that tell a quarter of 13 weeks
_MONTH = 30.44  # days in the mean
_HALF_MONTH = (13, 16)  # days between the middle and the end of a month
_PART = 0.25  # least share of the dates on each of the two days of a half month
_THIRD = 0.2  # least share of the dates on each of the three days of dekads
_YEAR_OF_ROWS = 13  # from a date to that one year later

QUARTER = 91
"""Days in a quarter of 13 weeks."""
_DEKADS = {1: (1, 11, 21), 10: (10, 20, 31)}
_IN_DEKADS = (8, 11)  # days between two dates
_ENDS = (0, 28, 56)  # days of such a quarter, counted from the end of its period of five weeks


def rule_of(index: pd.DatetimeIndex) -> str | None:
    """Return the offset alias of the rule that nearly all dates follow; None where none is found.

    Rules are two days of each month, a number of weeks, the first or last weekday of a month or of
    a quarter, and the n-th or last Monday, Tuesday, ... of every month or of every few.

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
    exact = _nth_weekday(index, months, 1.0) or _business_day(index, months)
    if exact or quarter_day(index):
        return exact
    return _nth_weekday(index, months, _NEARLY_ALL) or _weeks(index, _MOSTLY)


def quarter_day(index: pd.DatetimeIndex) -> int:
    """Return where the quarters of dates lie that end periods of 4, 4 and 5 weeks in some order.

    It is the day on which periods of five weeks end, from 1 to 91, counted in quarters of 13 weeks
    from 1970-01-01. A week more, as in a year of 53 weeks, moves all later dates by a week. The
    rule needs four dates, and must hold for all, or for those of the latest year. 0: it does not.
    """
    days = _numbers(index)
    gaps = np.diff(days)
    if len(days) < _FEWEST_PERIODS or not 28 <= np.median(gaps) <= 35 or (gaps % 7).any():
        return 0
    best, found = 0, 0
    for end in _ENDS:  # the latest date is one of the three
        day = int(days[-1] - end) % QUARTER
        run = _run(np.isin((days - day) % QUARTER, _ENDS))
        before = _run(np.isin((days[: len(days) - run] - day + 7) % QUARTER, _ENDS))
        if run + before > best:
            best, found = run + before, day + 1
    told = best == len(days) or best >= _YEAR_OF_ROWS
    return found if told and (np.diff(days[-best:]) % 28 != 0).any() else 0


def dekad_day(index: pd.DatetimeIndex) -> int:
    """Return the first day of the month of rows that come three times a month; 0 for others.

    1: on the 1st, 11th and 21st; 10: on the 10th, the 20th and the last. ``index``: sorted and
    unique
    """
    least, most = _IN_DEKADS
    if len(index) < _FEWEST or not least <= np.median(np.diff(_numbers(index))) <= most:
        return 0
    for first, days in _DEKADS.items():
        on = [np.asarray(index.day == np.minimum(day, index.days_in_month)) for day in days]
        if min(each.mean() for each in on) >= _THIRD and np.mean(sum(on)) >= _NEARLY_ALL:
            return first
    return 0


def dekads_between(first: pd.Timestamp, last: pd.Timestamp, day: int) -> pd.DatetimeIndex:
    """Return the dates of dekads from ``first`` to ``last``, at the time of day of ``first``.

    ``day``: the first day of the month, as :func:`dekad_day` returns it
    """
    months = pd.date_range(first.normalize().replace(day=1), last, freq="MS")
    lengths = months.days_in_month.to_numpy()
    days = np.minimum(np.array(_DEKADS[day])[None], lengths[:, None]) - 1
    dates = months.to_numpy()[:, None] + days.astype("timedelta64[D]")
    times = pd.DatetimeIndex(dates.ravel()) + (first - first.normalize())
    return times[(times >= first) & (times <= last)]


def in_quarters(days: Shaped[np.ndarray, " day"], quarter: int) -> Bool[np.ndarray, " day"]:
    """Return whether days, numbered from 1970-01-01, end a period of a quarter of 13 weeks.

    ``quarter``: where quarters lie, from :func:`quarter_day`
    """
    return np.isin((days - (quarter - 1)) % QUARTER, _ENDS)


def _numbers(index: pd.DatetimeIndex) -> Shaped[np.ndarray, " row"]:
    return index.to_numpy().astype("datetime64[D]").astype(np.int64)


def _run(holds: Bool[np.ndarray, " row"]) -> int:
    """Return how many of the last rows hold without a break."""
    return len(holds) if holds.all() else int(np.argmin(holds[::-1]))


def _half_months(index: pd.DatetimeIndex) -> str | None:
    """Return the alias of dates on the first or on the last of a month, and on one day between."""
    for alias, edge in (("SMS", index.day == 1), ("SME", index.is_month_end)):
        between = index.day[~edge]
        if not len(between):
            continue
        day = int(np.bincount(between).argmax())
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
    return f"{usual // 7}W-{index[-1].strftime('%a').upper()}"


def _business_day(index: pd.DatetimeIndex, months: int) -> str | None:
    """Return the alias of nearly all dates on the first or last weekday of months or quarters."""
    if months not in (1, 3) or (index.day_of_week >= 5).any():
        return None
    month = index.to_numpy().astype("datetime64[M]")
    steps = np.diff(month.astype(np.int64))
    if not steps.all() or (steps % months).any():
        return None
    days = index.to_numpy().astype("datetime64[D]")
    begins, ends = month.astype("datetime64[D]"), (month + 1).astype("datetime64[D]")
    number = int(month[-1].astype(np.int64)) % 12
    if (np.busday_offset(begins, 0, roll="forward") == days).mean() >= _NEARLY_ALL:
        return "BMS" if months == 1 else f"BQS-{('JAN', 'FEB', 'MAR')[number % 3]}"
    if (np.busday_offset(ends, -1, roll="forward") == days).mean() >= _NEARLY_ALL:
        return "BME" if months == 1 else f"BQE-{('OCT', 'NOV', 'DEC')[number % 3]}"
    return None


def _nth_weekday(index: pd.DatetimeIndex, months: int, share: float) -> str | None:
    """Return the alias of dates on the n-th or last of a weekday in every month or every few."""
    steps = np.diff(index.year * 12 + index.month)
    if (steps == 0).any() or (steps % months).any():
        return None
    weekday = int(np.bincount(index.day_of_week).argmax())
    same = index.day_of_week == weekday
    name = pd.Timestamp(1970, 1, 5 + weekday).strftime("%a").upper()  # the 5th was a Monday
    every = "" if months == 1 else str(months)
    if (same & (index.day + 7 > index.days_in_month)).mean() >= share:
        return f"{every}LWOM-{name}"
    for number in (1, 2, 3, 4):
        if (same & ((index.day + 6) // 7 == number)).mean() >= share:
            return f"{every}WOM-{number}{name}"
    return None
