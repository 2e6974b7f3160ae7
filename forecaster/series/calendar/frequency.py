"""The frequency of times, which come next, how far apart rows are, and all of this in words."""

import dataclasses
import functools
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Shaped

from forecaster.errors import DataError
from forecaster.series.calendar.exchanges import regular_holidays, regular_sessions
from forecaster.series.calendar.hours import Hours, infer_hours
from forecaster.series.calendar.opening import in_slots, infer_open
from forecaster.series.calendar.rules import WEEKDAYS, edge_of_months, name_of_weekday, rule_of
from forecaster.series.calendar.times import Time, show_time

_DAY, _WEEK = pd.Timedelta(days=1), 7 * 86_400
_FEWEST_HOLIDAYS = 4
_RARE = 0.02  # largest share of the holidays that have a row, in a series that keeps holidays
# If a larger share than _SOME of the latest rows is on weekends, all days are sessions.
_LATELY, _SOME = 60, 0.1
_ABOUT_A_MONTH = (20, 45)  # days
_FEW_MONTHS = 5  # rows, fewer of which do not tell that each month has one
_NEARLY_ALL = 0.9  # share of the dates that must have a common day, or be at their distance
_LEAST_SLOT = 900  # seconds; finer steps are not looked for in slots of the week
_BY_MINUTES = 600  # seconds, from which on steps of stamps that are some seconds late are rounded
_LATE = 0.01  # largest share of a step by which they are
_ALIAS = re.compile(r"(\d*)([A-Z]+)(?:-\w+)?")  # a count, a base, an anchor, such as 2QE-OCT
_MONTHS = {
    **dict.fromkeys(("MS", "ME", "BMS", "BME", "WOM", "LWOM"), 1),
    **dict.fromkeys(("QS", "QE", "BQS", "BQE"), 3),
    **dict.fromkeys(("YS", "YE", "BYS", "BYE"), 12),
}
_EARLY = pd.Timedelta(days=4)  # how long before its time a month's row may come


@dataclasses.dataclass(frozen=True)
class Frequency:
    """The rule by which the times of a series advance.

    - ``alias``: a pandas offset alias; or ``"step"`` for whole numbers, ``"months"`` for months
    - ``step``: how many whole numbers or months lie between two times
    - ``nyse``: whether the holidays of the New York Stock Exchange are left out
    - ``hours``: the sessions that intraday times keep to; None for all hours
    - ``day``: the day of the month, 31 for the last; 0 where dates have no common one
    - ``open``: the slots of the week in which times of days or of a part of a day come, see
      :mod:`forecaster.series.calendar.opening`; empty for all of them
    """

    alias: str
    step: int = 1
    nyse: bool = False
    hours: Hours | None = None
    day: int = 0
    open: tuple[int, ...] = ()

    def after(self, last: Time, count: int) -> Shaped[np.ndarray, " later"]:
        """Return the next ``count`` times after ``last``, a date or a whole number.

        Raises DataError for dates after 2262, which nanoseconds do not reach.
        """
        if self.alias == "step":
            return int(cast(int, last)) + self.step * np.arange(1, count + 1)
        try:
            later = self._dates_after(pd.Timestamp(last), count)
            if len(later) and later[-1] < later[0]:  # nanoseconds began anew
                raise OverflowError
            return later
        except (pd.errors.OutOfBoundsDatetime, OverflowError) as error:
            raise DataError(
                f"the {count} times after {show_time(last)} go beyond 2262-04-11, the last date "
                "that can be computed with; are the dates right?"
            ) from error

    def _dates_after(self, last: pd.Timestamp, count: int) -> Shaped[np.ndarray, " later"]:
        if self.hours is not None and len(times := self.hours.after(last, count)) == count:
            return times
        if self.alias == "months":  # the last day of a month leads to the last day of a month
            day = self.day or (31 if last.is_month_end else last.day)
            steps = [pd.DateOffset(months=self.step * n, day=day) for n in range(1, count + 1)]
            return np.array([last + step for step in steps], "datetime64[ns]")
        if self.open:
            weeks = count // len(self.open) + 2
            candidates = np.arange(1, weeks * _WEEK // self.seconds + 1)
            times = last.to_datetime64() + candidates * np.timedelta64(self.seconds, "s")
            times = times.astype("datetime64[ns]")
            return times[in_slots(times, self.seconds, self.open)][:count]
        if self.nyse:
            day = last.normalize()
            times = regular_sessions(day, day + (2 * count + 15) * _DAY) + (last - day)
        else:
            times = pd.date_range(self.starts_at(last), periods=count + 2, freq=self.offset)
        return times[times > last][:count].to_numpy("datetime64[ns]")

    def elapsed(self, last: Time, now: Time) -> int:
        """Count the times after ``last`` and up to ``now``; 0 for whole numbers."""
        if self.alias == "step" or pd.Timestamp(now) <= pd.Timestamp(last):
            return 0
        last, now = pd.Timestamp(last), pd.Timestamp(now)
        if self.alias == "months":
            return ((now.year - last.year) * 12 + now.month - last.month) // self.step
        if self.hours is not None:
            times = pd.DatetimeIndex(self.hours.between(last, now))
        elif self.nyse:
            times = regular_sessions(last, now)
        else:
            times = pd.date_range(self.starts_at(last), now, freq=self.offset)
        if self.open:
            times = times[in_slots(times.to_numpy(), self.seconds, self.open)]
        return int(((times > last) & (times <= now)).sum())

    @property
    def seconds(self) -> int:
        """The seconds between two times, of a day or of a part of one; otherwise 0."""
        if self.alias in ("D", "B"):
            return 86_400
        number = self.alias.removesuffix("s")
        return int(number) if number.isdigit() and number != self.alias else 0

    @property
    def base(self) -> tuple[int, str]:
        """The count and the base of the alias, without its anchor: 2 and QE of ``2QE-OCT``."""
        found = _ALIAS.fullmatch(self.alias)
        return (int(found[1] or 1), found[2]) if found else (1, self.alias)

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
            weekday: Any = WEEKDAYS.index(self.alias.partition("-")[2])
            return pd.offsets.LastWeekOfMonth(count, weekday=weekday)
        return pd.tseries.frequencies.to_offset(self.alias)

    def starts_at(self, last: pd.Timestamp) -> pd.Timestamp:
        """Return the time from which later ones are sought.

        A row that came a few days before its month's, such as the last session of an exchange that
        closed on the last weekday, is still that of its month.
        """
        if self.months and not self.offset.is_on_offset(last):
            ahead = self.offset.rollforward(last)
            return ahead + _DAY if ahead - last <= _EARLY else last
        return last


def common_frequency(series: Iterable[np.ndarray]) -> Frequency:
    """Return the frequency that most series have, from the sorted, unique times of each.

    Series whose rows are too few to tell do not count, unless all are.
    """
    counts, unclear = Counter[Frequency](), Counter[Frequency]()
    for times in series:
        (counts if tells_frequency(times) else unclear)[infer_frequency(times)] += 1
    return most_common(counts or unclear)


def most_common(counts: Mapping[Frequency, int]) -> Frequency:
    """Return the most common frequency, from the number of series of each."""
    if not counts:
        return Frequency("B")
    kinds = Counter[Frequency]()  # those that differ only in the day of the month, or in slots
    for kind, count in counts.items():
        kinds[dataclasses.replace(kind, day=0, open=())] += count

    most = min(kinds, key=lambda one: (-kinds[one], one.alias, one.step, one.nyse, str(one.hours)))
    same = [kind for kind in counts if dataclasses.replace(kind, day=0, open=()) == most]
    return min(same, key=lambda kind: (-counts[kind], kind.day, kind.open))


def infer_frequency(times: np.ndarray) -> Frequency:
    """Infer the frequency of sorted, unique times; gaps do not matter where most are regular.

    Daily rows with a few on weekends, such as a special session on a Saturday, are weekdays. They
    are the sessions of New York where hardly any falls on a holiday of its exchange and they span
    half a year or more. Intraday times that lie in the sessions of an exchange, by its clock or in
    UTC, continue in its sessions. Days of the week, and hours, on which rows hardly ever come, as
    where a shop is closed, are left out.
    """
    return _infer(times.dtype.str, times.tobytes())


def tells_frequency(times: np.ndarray) -> bool:
    """Return whether a series' rows tell its frequency.

    One row does not, nor do rows on days of one week, from which it does not show whether weekends
    have rows, too.
    """
    if len(times) < 2 or times.dtype.kind != "M" or infer_frequency(times) != Frequency("B"):
        return len(times) > 1
    days = times[[0, -1]].astype("datetime64[D]")
    return bool((np.busday_count(days[:1], days[1:]) < np.diff(days).astype(np.int64)).all())


def frequency_beside(times: np.ndarray, usual: Frequency) -> Frequency:
    """Return the frequency of a series; the usual one of its panel where its rows do not tell."""
    own = infer_frequency(times)
    other_kind = (usual.alias == "step") != (times.dtype.kind in "iu")
    if tells_frequency(times) or other_kind:
        return own
    if len(times) > 1 and usual.alias not in ("D", "B"):
        return own
    if usual.alias.startswith("W-"):  # the row says which day its weeks have
        return Frequency(f"W-{pd.DatetimeIndex(times)[-1].strftime('%a').upper()}")
    return usual


@functools.lru_cache(maxsize=1024)
def _infer(dtype: str, raw: bytes) -> Frequency:
    # Cached, as most series of a panel have the same times.
    times = np.frombuffer(raw, dtype)
    if times.dtype.kind in "iu":
        steps = np.diff(times)
        return Frequency("step", int(np.median(steps)) if len(steps) else 1)
    index = pd.DatetimeIndex(times)
    if len(index) < 2:
        return Frequency("B")
    typical = pd.Timedelta(np.median(np.diff(index.to_numpy())))
    if not _ABOUT_A_MONTH[0] <= typical.days <= _ABOUT_A_MONTH[1] and _one_a_month(index):
        return Frequency("months")
    if typical == _DAY:
        if (index.day_of_week[-_LATELY:] >= 5).mean() > _SOME:
            return Frequency("D", open=infer_open(times, 86_400))
        holidays = regular_holidays()
        within = holidays[(holidays >= index[0]) & (holidays <= index[-1])]
        kept = index.normalize().isin(within).sum() <= _RARE * len(within)
        return Frequency("B", nyse=bool(kept) and len(within) >= _FEWEST_HOLIDAYS)
    if typical < _DAY:
        return _within_days(index, typical)
    if typical < 7 * _DAY and (days := infer_open(times, 86_400)):
        return Frequency("D", open=days)
    if 5 <= typical.days <= 8:
        return Frequency(f"W-{name_of_weekday(index)}")
    months = typical.days / 30.44
    if months > 0.9 and (alias := edge_of_months(index, round(months))):
        return Frequency(alias)
    day = int(index.day.max())
    of_day = (index.day == np.minimum(day, index.days_in_month)).mean() >= _NEARLY_ALL
    if typical.days >= 28 and of_day:  # or nearly all are the last day of a shorter month
        return Frequency("months", round(months), day=day)
    if alias := rule_of(index):
        return Frequency(alias)
    if typical.days >= 28 and abs(months - round(months)) <= 1 - _NEARLY_ALL:
        return Frequency("months", round(months))
    if typical.days <= 4 and index.day_of_week.max() < 5:
        return Frequency("B")
    return Frequency(f"{typical.days}D")


def _within_days(index: pd.DatetimeIndex, typical: pd.Timedelta) -> Frequency:
    """Return the frequency of times of day; ``typical``: the median distance of two."""
    times, seconds = index.to_numpy(), typical.total_seconds()
    minutes = 60.0 * round(seconds / 60)
    gaps = np.diff(times).astype("timedelta64[ns]").astype(np.int64)
    late = abs(seconds - minutes) <= _LATE * seconds and (gaps == typical.value).mean() < 0.5
    if seconds >= _BY_MINUTES and late:
        seconds = minutes
    if seconds % 1:
        return Frequency(f"{round(1000 * seconds)}ms" if seconds >= 0.001 else f"{typical.value}ns")
    step = int(seconds)
    if hours := infer_hours(index, step):
        return Frequency(f"{step}s", hours=hours)
    slots = infer_open(times, step)
    finer = int(np.gcd.reduce(gaps)) // 10**9
    # Of a day with a break, such as 10:30, 11:30, 14:00 and 15:00.
    if slots and _LEAST_SLOT <= finer < step and (fine := infer_open(times, finer)):
        return Frequency(f"{finer}s", open=fine)
    return Frequency(f"{step}s", open=slots)


def _one_a_month(index: pd.DatetimeIndex) -> bool:
    """Return whether nearly every month has one row, be it on its first day or on its last."""
    days = index.to_numpy()[[0, -1]].astype("datetime64[D]").astype(np.int64)
    mean = (days[1] - days[0]) / (len(index) - 1)
    if len(index) < _FEW_MONTHS or not _ABOUT_A_MONTH[0] <= mean <= _ABOUT_A_MONTH[1]:
        return False  # as nearly always
    steps = np.diff(index.year * 12 + index.month)
    return bool((steps >= 1).all() and (steps == 1).mean() >= _NEARLY_ALL)


def odd_rows(times: Shaped[np.ndarray, " row"]) -> Bool[np.ndarray, " row"]:
    """Return which rows are at none of the times of their frequency, counted from the first.

    False for all rows of days, weekdays, times of day and whole numbers.
    """
    odd = np.zeros(len(times), bool)
    if times.dtype.kind != "M" or len(times) < _FEW_MONTHS:
        return odd
    frequency, index = infer_frequency(times), pd.DatetimeIndex(times)
    if frequency.seconds or frequency.alias.endswith(("ms", "ns")):
        return odd
    if frequency.day:
        return np.asarray(index.day != np.minimum(frequency.day, index.days_in_month))
    if frequency.alias == "months":
        return odd | (not _one_a_month(index))
    days = index.normalize()
    odd = ~days.isin(pd.date_range(days[0], days[-1], freq=frequency.offset))
    return odd & np.array([frequency.starts_at(day) == day for day in days])


_LATEST = 61  # rows that are compared; in fewer, too many gaps might be weekends and holidays
_FEWEST = 3  # gaps that are needed to compare; one or two might be a weekend
_ALIKE = 1.25  # gaps are alike up to this ratio; the lengths of months differ by a ninth
_COMMON = 0.1  # share of gaps of the usual length that makes a series spaced as usual
_FEWEST_REGULAR = 6  # gaps that tell whether rows come at regular distances
_REGULAR = 0.5  # share of gaps that are alike in a regular series

_UNITS = {86_400: "day", 3_600: "hour", 60: "minute", 1: "second"}


def spacing_of(times: Shaped[np.ndarray, " row"]) -> float:
    """Return the median gap between a series' latest rows, in seconds, or in whole numbers.

    Of an even number of gaps, it is the shorter of the two in the middle. NaN for less than two
    rows.

    ``times``: sorted and unique, dates or whole numbers.
    """
    gaps = _gaps(times)
    return float(np.percentile(gaps, 50, method="lower")) if len(gaps) else float("nan")


def usual_spacing(times: Shaped[np.ndarray, " row"]) -> float | None:
    """Return the spacing of half of a series' rows or more, in seconds, or in whole numbers.

    None where there is none, and where the series has fewer than seven rows.
    """
    gaps = _gaps(times, len(times))
    if len(gaps) < _FEWEST_REGULAR:
        return None
    usual = float(np.percentile(gaps, 50, method="lower"))
    alike = (gaps > usual / _ALIKE) & (gaps < usual * _ALIKE)
    return usual if alike.mean() >= _REGULAR else None


def spaced_otherwise(
    times: Shaped[np.ndarray, " row"],
    spacing: float,
    others: str = "those that the model was fitted on",
) -> str | None:
    """Say in words how a series' spacing differs from that of other rows; None if it does not.

    Weekends, nights and holidays make no difference where some gaps have the usual length.

    - ``times``: the times of the series, sorted and unique
    - ``spacing``: the usual gap of the others, as :func:`spacing_of` returns it; NaN: not known
    - ``others``: what the other rows are, in words
    """
    gaps, now = _gaps(times), spacing_of(times)
    if len(gaps) < _FEWEST or not np.isfinite(spacing) or 1 / _ALIKE < now / spacing < _ALIKE:
        return None
    as_usual = (gaps > spacing / _ALIKE) & (gaps < spacing * _ALIKE)
    if as_usual.mean() >= _COMMON:
        return None
    dated = times.dtype.kind == "M"
    return (
        f"its rows are {_in_words(now, dated=dated)} apart, {others} "
        f"{_in_words(spacing, dated=dated)}"
    )


def _gaps(times: Shaped[np.ndarray, " row"], rows: int = _LATEST) -> Float[np.ndarray, " gap"]:
    """Return the gaps between the latest rows; earlier rows may be further apart."""
    gaps = np.diff(times[-rows:])
    if gaps.dtype.kind == "m":
        return gaps.astype("timedelta64[ns]").astype(np.int64) / 1e9
    return gaps.astype(float)


def _in_words(spacing: float, *, dated: bool) -> str:
    if not dated:
        return f"{spacing:g}"
    unit = next((unit for unit in _UNITS if spacing >= unit), 1)
    count = f"{spacing / unit:.3g}"
    return f"{count} {_UNITS[unit]}{'' if count == '1' else 's'}"


_BASES = {
    "D": "day", "B": "weekday", "W": "week", "SMS": "half month", "SME": "half month",
    "step": "whole number",
}  # fmt: skip
_PERIODS = {3: "quarter", 12: "year"}


def in_words(frequency: Frequency) -> str:
    """Return a frequency in words, such as "weekdays" or "every 5 minutes"."""
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
    elif base not in _BASES and (seconds := frequency.seconds):
        whole = next(unit for unit in _UNITS if seconds % unit == 0)
        count, unit = seconds // whole, _UNITS[whole]
    return f"{unit}s" if count == 1 else f"every {count} {unit}s"


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
    return _after(times.dtype.str, times.tobytes(), horizon, usual)


@functools.lru_cache(maxsize=64)
def _after(
    dtype: str, raw: bytes, horizon: int, usual: Frequency | None
) -> Shaped[np.ndarray, "row horizon"]:
    # Cached, as most series of a panel have the same times.
    times = np.frombuffer(raw, dtype)
    ahead = np.empty((len(times), horizon), dtype)
    row, count = 0, _FIRST
    known_from = functools.partial(frequency_beside, usual=usual) if usual else infer_frequency
    frequency = known_from(times[:1])
    while row < len(times):
        expected = frequency.after(times[row], count + horizon).astype(dtype)
        came = times[row + 1 : row + 1 + count]
        as_expected = came == expected[: len(came)]
        same = len(came) if as_expected.all() else int(np.argmin(as_expected))
        windows = np.lib.stride_tricks.sliding_window_view(expected, horizon)
        ahead[row : row + 1 + same] = windows[: 1 + same]
        row += same + 1
        if same < len(came):
            frequency, count = known_from(times[: row + 1]), _FIRST
        else:
            row -= row < len(times)  # go on from the latest row that was expected
            count = min(2 * count, _MOST)
    ahead.setflags(write=False)
    return ahead
