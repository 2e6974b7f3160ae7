"""The frequency of a series, found from all of its rows, and the rows that do not fit it."""

import calendar
import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Shaped

from forecaster.series.calendar.exchanges import infer_hours, regular_holidays
from forecaster.series.calendar.frequency import WEEKDAYS, Frequency, infer_open

_NEARLY_ALL = 0.9  # share of the rows that must follow a rule
_FEWEST = 7  # rows that tell whether some do not follow a rule
_DAY = pd.Timedelta(days=1)
_FEWEST_HOLIDAYS = 4
_RARE = 0.02  # largest share of the holidays that have a row, in a series that keeps holidays
# If a larger share than _SOME of the latest rows is on weekends, all days are sessions.
_LATELY, _SOME = 60, 0.1
_MONTHS_WITH_ROWS = 0.75  # share of the months between two rows that must have one
_SHORTEST_MONTH, _MONTH = 28, 30.44  # days
_FEW_MONTHS = 5  # rows, fewer of which do not tell that each month has one
_HALF_MONTH = range(13, 17)  # days between the middle and the end of a month
_PART = 0.25  # least share of the dates on each of the two days of a half month
_LEAST_SLOT = 900  # seconds; finer steps are not looked for in slots of the week
_BY_MINUTES = 600  # seconds, from which on steps of stamps that are some seconds late are rounded
_LATE = 0.01  # largest share of a step by which they are
_STEPS = ("B", "D", "s", "ms", "us", "ns")  # bases of steps that all have one length
_NEAR = 0.1  # of a step, by which a row may miss a whole number of steps


def infer_frequency(times: np.ndarray) -> Frequency:
    """Infer the frequency of sorted, unique times; gaps do not matter where most are regular.

    Daily rows with a few on weekends, such as a special session on a Saturday, are weekdays. They
    are the sessions of New York where hardly any falls on a holiday of its exchange and they span
    half a year or more. Intraday times that lie in the sessions of an exchange, by its clock or in
    UTC, continue in its sessions. Days of the week, and hours, on which rows hardly ever come, as
    where a shop is closed, are left out. Where nine of ten rows follow no rule, the frequency is
    the median distance of two.
    """
    return _infer(times.dtype.str, times.tobytes())


def own_frequency(times: np.ndarray, usual: Frequency) -> Frequency:
    """Return the frequency of a series: the usual one of its panel if it is stated, else inferred.

    ``times``: the times of its rows, sorted and unique
    """
    is_stated = usual.stated and times.dtype.kind == "M"
    return usual if is_stated else infer_frequency(times)


@functools.lru_cache(maxsize=1024)
def _infer(dtype: str, raw: bytes) -> Frequency:
    # Cached, as most series of a panel have the same times.
    times = np.frombuffer(raw, dtype)
    if times.dtype.kind in "iu":
        return Frequency("step", int(np.median(np.diff(times))) if len(times) > 1 else 1)
    if len(times) < 2:
        return Frequency("B")
    index, typical = pd.DatetimeIndex(times), pd.Timedelta(np.median(np.diff(times)))
    if typical < _DAY:
        return _within_days(index, typical)
    months = round(typical.days / 30.44)  # of few rows; others may be named by any day of a month
    if len(index) >= _FEW_MONTHS:
        months = int(np.median(np.diff(index.year * 12 + index.month)))
    if months and (found := _by_months(index, months, typical.days)):
        return found
    if typical == _DAY and (index.day_of_week[-_LATELY:] >= 5).mean() <= _SOME:
        holidays = regular_holidays(index[0].year, index[-1].year)
        within = holidays[(holidays >= index[0]) & (holidays <= index[-1])]
        days = within.to_numpy("datetime64[D]")
        kept = np.isin(times.astype("datetime64[D]"), days).sum() <= _RARE * len(within)
        return Frequency("B", nyse=bool(kept) and len(within) >= _FEWEST_HOLIDAYS)
    if len(index) < _FEWEST and typical.days <= 4 and index.day_of_week.max() < 5:
        return Frequency("B")
    slots = infer_open(times, 86_400) if typical.days < 7 else ()
    if slots or typical.days == 1:
        return Frequency("D", open=slots)
    if 5 <= typical.days <= 8:
        return Frequency(f"W-{_weekday(index)}")
    alias = _half_months(index) if typical.days in _HALF_MONTH and len(index) > 2 else None
    return Frequency(alias or _weeks(index, typical.days) or f"{typical.days}D")


def _within_days(index: pd.DatetimeIndex, typical: pd.Timedelta) -> Frequency:
    """Return the frequency of times of day; ``typical``: the median distance of two."""
    times, seconds = index.to_numpy(), typical.total_seconds()
    minutes = 60.0 * round(seconds / 60)
    gaps = np.diff(times).astype("timedelta64[ns]").astype(np.int64)
    late = abs(seconds - minutes) <= _LATE * seconds and (gaps == typical.value).mean() < 0.5
    if seconds >= _BY_MINUTES and late:
        seconds = minutes
    if seconds % 1:
        return Frequency(pd.tseries.frequencies.to_offset(typical).freqstr)
    step = int(seconds)
    if hours := infer_hours(index, step):
        return Frequency(f"{step}s", hours=hours)
    slots = infer_open(times, step)
    finer = int(np.gcd.reduce(gaps)) // 10**9
    # Of a day with a break, such as 10:30, 11:30, 14:00 and 15:00.
    if slots and _LEAST_SLOT <= finer < step and (fine := infer_open(times, finer)):
        return Frequency(f"{finer}s", open=fine)
    return Frequency(f"{step}s", open=slots)


def _by_months(index: pd.DatetimeIndex, months: int, typical: int) -> Frequency | None:
    """Return the frequency of rows some months apart; None where nine of ten follow no rule.

    They are on an edge of the month, on one day of it, or on the n-th of a weekday; or else nearly
    every month has one row, on whatever day. Rows that are equally many days apart follow none.

    ``typical``: the median distance of two rows, in days
    """
    named = _days_of_months(index)
    for base in ("MS", "ME", "BMS", "BME"):
        if named[base].mean() >= _NEARLY_ALL:
            return Frequency(_of_some_months(base, months, index[named[base]]))
    for day in (_most_common(index.day), int(index.day.max())):
        # Or nearly all are the last day of a shorter month.
        if (index.day == np.minimum(day, index.days_in_month)).mean() >= _NEARLY_ALL:
            return Frequency("months", months, day=day)
    steps = np.diff(index.year * 12 + index.month)
    alias = _weeks(index, typical, 1.0)
    if alias is None and (steps > 0).all() and not (steps % months).any():
        share, rule = max((on.mean(), rule) for rule, on in named.items() if "WOM" in rule)
        if share >= _NEARLY_ALL and len(index) > 2:
            alias = f"{months if months > 1 else ''}{rule}{_weekday(index)}"
    if alias := alias or _weeks(index, typical):
        return Frequency(alias)
    gaps = np.diff(index.to_numpy())
    if len(gaps) >= _FEW_MONTHS and (gaps == gaps[0]).all():
        return None  # the distance is a number of days
    whole = (steps > 0).all() and (steps % months == 0).mean() >= _NEARLY_ALL
    every = whole and (steps == months).mean() >= _MONTHS_WITH_ROWS  # some may be missing
    # On whatever day, also on that of another month: days of release, or of a retail calendar.
    near = typical >= _SHORTEST_MONTH and abs(typical / _MONTH - months) <= 1 - _NEARLY_ALL
    return Frequency("months", months) if every or near else None


def _days_of_months(index: pd.DatetimeIndex) -> dict[str, Bool[np.ndarray, " row"]]:
    """Return which dates are on each of the days by which pandas names dates of months.

    The weekday of ``WOM-1`` to ``LWOM`` is the most common one.
    """
    day, weekday = np.asarray(index.day), np.asarray(index.day_of_week)
    to_end, same = np.asarray(index.days_in_month) - day, weekday == _most_common(weekday)
    return {
        "MS": day == 1,
        "ME": to_end == 0,
        "BMS": (weekday < 5) & ((day == 1) | ((weekday == 0) & (day <= 3))),
        "BME": (weekday < 5) & ((to_end == 0) | ((weekday == 4) & (to_end <= 2))),
        "LWOM-": same & (to_end < 7),
        **{f"WOM-{number}": same & ((day + 6) // 7 == number) for number in (1, 2, 3, 4)},
    }


def _of_some_months(base: str, months: int, index: pd.DatetimeIndex) -> str:
    """Return the alias of dates on an edge of some months; ``base``: that of every month."""
    if (period := {3: "Q", 12: "Y"}.get(months)) is None:
        return f"{months if months > 1 else ''}{base}"
    number = _most_common((index.month - 1) % months)  # January is 0
    if base in ("ME", "BME") and period == "Q":
        number += 9
    return f"{base.replace('M', period)}-{calendar.month_abbr[number + 1].upper()}"


def _half_months(index: pd.DatetimeIndex) -> str | None:
    """Return the alias of dates on the first or on the last of a month, and on one day between."""
    named = _days_of_months(index)
    for alias, edge in (("SMS", named["MS"]), ("SME", named["ME"])):
        day = _most_common(index.day[~edge]) if not edge.all() else 0
        middle = index.day == day
        both = min(edge.mean(), middle.mean()) >= _PART
        if both and (edge | middle).mean() >= _NEARLY_ALL and 2 <= day <= 27:
            return f"{alias}-{day}"
    return None


def _weeks(index: pd.DatetimeIndex, days: int, share: float = _NEARLY_ALL) -> str | None:
    """Return the alias of dates that are some weeks apart, or a multiple of them.

    ``share``: the least share of the distances that are
    """
    gaps = np.diff(index.to_numpy().astype("datetime64[D]")).astype(np.int64)
    if days % 7 or len(gaps) < 2 or (gaps % days == 0).mean() < share:
        return None
    return f"{days // 7}W-{_weekday(index)}"


def _weekday(index: pd.DatetimeIndex) -> str:
    return WEEKDAYS[_most_common(index.day_of_week)]


def _most_common(numbers: pd.Index | Shaped[np.ndarray, " row"]) -> int:
    return int(np.bincount(numbers).argmax())


def odd_rows(times: Shaped[np.ndarray, " row"]) -> Bool[np.ndarray, " row"]:
    """Return which rows do not fit the frequency of all.

    Dates of weeks and months are at none of its times, other rows no whole number of steps after
    either of the two before. False for whole numbers, the hours of an exchange, and for fewer than
    seven rows.
    """
    frequency, odd = infer_frequency(times), np.zeros(len(times), bool)
    if len(times) < _FEWEST or frequency.alias == "step" or frequency.hours is not None:
        return odd
    index = pd.DatetimeIndex(times)
    if frequency.alias == "months":
        if frequency.day:
            return index.day != np.minimum(frequency.day, index.days_in_month)
        steps = np.diff(index.year * 12 + index.month)  # one row in each, on whatever day
        odd[1:] = (steps % frequency.step != 0) | (steps == 0)
        return odd
    if frequency.base[1] not in _STEPS:
        days = index.normalize()
        odd = ~days.isin(pd.date_range(days[0], days[-1], freq=frequency.offset))
        odd[odd] = [frequency.starts_at(day) == day for day in days[odd]]
        return odd
    seconds = frequency.seconds
    step = np.timedelta64(seconds, "s") if seconds else np.median(np.diff(times))
    odd[1:] = True
    for before in (1, 2):
        steps = (times[before:] - times[:-before]) / step
        odd[before:] &= np.abs(steps - np.rint(steps)) > _NEAR
    return odd


def next_times(
    times: Shaped[np.ndarray, " row"], count: int, usual: Frequency | None = None
) -> Shaped[np.ndarray, " later"]:
    """Return the times of the next rows of a series, by its own frequency.

    ``usual``: the frequency of most series, for one whose rows are too few to tell its own
    """
    return _after(*_going_on(times, usual), times[-1], count)


def _going_on(times: np.ndarray, usual: Frequency | None) -> tuple[Frequency, Any]:
    """Return the frequency by which a series goes on, and the row from which its times count.

    That is the latest row which fits: one of a period that runs moves no later row. The frequency
    is the usual one of a panel where the rows do not tell their own.
    """
    own, last = infer_frequency(times), times[-1]
    other_kind = usual is not None and (usual.alias == "step") != (last.dtype.kind != "M")
    if usual is not None and usual.stated and not other_kind:
        fits = usual.fits(times)
        return usual, times[fits][-1] if fits.any() else last
    if usual is None or other_kind or tells_frequency(times):
        if len(times) < _FEWEST or own.after(times[-2], 1)[0] == last:  # as nearly always
            return own, last
        odd = odd_rows(times)
        return own, times[~odd][-1] if odd[-1] and odd.mean() <= 1 - _NEARLY_ALL else last
    if len(times) > 1 and usual.alias not in ("D", "B"):
        return own, last
    if usual.alias.startswith("W-"):  # the row says which day its weeks have
        return Frequency(f"W-{_weekday(pd.DatetimeIndex(times))}"), last
    return usual, last


def _after(frequency: Frequency, start: Any, last: Any, count: int) -> Shaped[np.ndarray, " later"]:
    """Return the next times after the last row, counted from another."""
    passed = 0 if start == last else frequency.elapsed(start, last)
    return frequency.after(start, passed + count)[passed:]


def tells_frequency(times: np.ndarray) -> bool:
    """Return whether a series' rows tell its frequency.

    One row does not, nor do rows on days of one week, from which it does not show whether weekends
    have rows, too.
    """
    if len(times) < 2 or times.dtype.kind != "M" or infer_frequency(times) != Frequency("B"):
        return len(times) > 1
    days = times[[0, -1]].astype("datetime64[D]")
    return bool((np.busday_count(days[:1], days[1:]) < np.diff(days).astype(np.int64)).all())


def common_frequency(series: Iterable[np.ndarray]) -> Frequency:
    """Return the frequency that most series have, from the sorted, unique times of each.

    Series whose rows are too few to tell do not count, unless all are.
    """
    counts, unclear = Counter[Frequency](), Counter[Frequency]()
    for times in series:
        (counts if tells_frequency(times) else unclear)[infer_frequency(times)] += 1
    return most_common(counts or unclear)


def most_common(counts: Mapping[Frequency, int]) -> Frequency:
    """Return the most common frequency, from the number of series of each.

    Those that differ only in the day of the month, or in slots, are counted together first.
    """
    kinds, whole = Counter[Frequency](), {kind: replace(kind, day=0, open=()) for kind in counts}
    for kind, count in counts.items():
        kinds[whole[kind]] += count

    return min(
        counts,
        key=lambda one: (-kinds[whole[one]], str(whole[one]), -counts[one], one.day, one.open),
        default=Frequency("B"),
    )


_FIRST, _MOST = 16, 512  # times that are made at once: more as long as rows come as expected


def times_after_rows(
    times: Shaped[np.ndarray, " row"], horizon: int, usual: Frequency | None = None
) -> Shaped[np.ndarray, "row horizon"]:
    """Return the next ``horizon`` times after each row, by the calendar.

    The frequency of a row is inferred from the rows up to it, and anew at each row that came at
    another time than expected. Later rows change nothing.

    - ``times``: the times of the rows, sorted and unique, dates or whole numbers
    - ``usual``: the frequency of the panel, where the rows up to one do not tell their own; None:
      that of the rows all the same
    """
    return _after_rows(times.dtype.str, times.tobytes(), horizon, usual)


@functools.lru_cache(maxsize=64)
def _after_rows(
    dtype: str, raw: bytes, horizon: int, usual: Frequency | None
) -> Shaped[np.ndarray, "row horizon"]:
    # Cached, as most series of a panel have the same times.
    times = np.frombuffer(raw, dtype)
    ahead = np.empty((len(times), horizon), dtype)
    row, count = 0, _FIRST
    frequency, start = _going_on(times[:1], usual)
    while row < len(times):
        expected = _after(frequency, start, times[row], count + horizon).astype(dtype)
        came = times[row + 1 : row + 1 + count]
        as_expected = came == expected[: len(came)]
        same = len(came) if as_expected.all() else int(np.argmin(as_expected))
        windows = np.lib.stride_tricks.sliding_window_view(expected, horizon)
        ahead[row : row + 1 + same] = windows[: 1 + same]
        row += same + 1
        if same < len(came):
            (frequency, start), count = _going_on(times[: row + 1], usual), _FIRST
        elif row < len(times):
            row -= 1  # go on from the latest row that was expected
            start, count = times[row], min(2 * count, _MOST)
    ahead.setflags(write=False)
    return ahead
