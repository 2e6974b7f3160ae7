"""Frequency of a panel's times, and which times come next."""

import dataclasses
import functools
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import cast

import numpy as np
import pandas as pd
from jaxtyping import Float, Shaped

from forecaster.series.calendar.exchanges import regular_holidays, regular_sessions
from forecaster.series.calendar.hours import Hours, infer_hours
from forecaster.series.calendar.times import Time

_DAY = pd.Timedelta(days=1)
_RARE = 0.02  # of the holidays have a row: exceptions
_LATELY, _SOME = 60, 0.1  # latest rows, of which more lie on weekends where these are no exceptions
_NEARLY_ALL = 0.9  # of dates have one day of the month


@dataclasses.dataclass(frozen=True)
class Frequency:
    """How the times of a panel advance.

    - ``alias``: a pandas offset alias, ``"step"`` for whole numbers that advance by ``step``, or
      ``"months"`` for dates that advance by ``step`` months
    - ``step``: see there
    - ``nyse``: weekdays without the holidays of the New York Stock Exchange
    - ``hours``: of intraday times, the exchange whose sessions they keep to
    - ``day``: of months, the day in them, 31 for the last one; 0 where they have no common one
    """

    alias: str
    step: int = 1
    nyse: bool = False
    hours: Hours | None = None
    day: int = 0

    def after(self, last: Time, count: int) -> Shaped[np.ndarray, " later"]:
        """The next ``count`` times after ``last``, a date or a whole number."""
        if self.alias == "step":
            return int(cast(int, last)) + self.step * np.arange(1, count + 1)
        last = pd.Timestamp(last)
        if self.hours is not None and len(times := self.hours.after(last, count)) == count:
            return times
        if self.alias == "months":
            return np.array([self._month(last, i) for i in range(1, count + 1)], "datetime64[ns]")
        if self.nyse:
            day = last.normalize()
            times = regular_sessions(day, day + (2 * count + 15) * _DAY) + (last - day)
        else:
            times = pd.date_range(last, periods=count + 2, freq=self.alias)
        return times[times > last][:count].to_numpy("datetime64[ns]")

    def elapsed(self, last: Time, now: Time) -> int:
        """How many times lie after ``last`` and up to ``now``; 0 for whole numbers."""
        if self.alias == "step" or pd.Timestamp(now) <= pd.Timestamp(last):
            return 0
        last, now = pd.Timestamp(last), pd.Timestamp(now)
        if self.alias == "months":
            return ((now.year - last.year) * 12 + now.month - last.month) // self.step
        if self.hours is not None:
            times = self.hours.between(last, now)
            return int(((times > last.to_datetime64()) & (times <= now.to_datetime64())).sum())
        times = (
            regular_sessions(last, now) if self.nyse else pd.date_range(last, now, freq=self.alias)
        )
        return int((times > last).sum())

    def _month(self, last: pd.Timestamp, count: int) -> pd.Timestamp:
        """So many steps of months later, or that month's last day where it is too short.

        Where dates have no common day a month's last day stays a month's last day.
        """
        later = last + pd.DateOffset(months=self.step * count)
        if self.day:
            return later.replace(day=min(self.day, later.days_in_month))
        return later + pd.offsets.MonthEnd(0) if last.is_month_end else later


def common_frequency(series: Iterable[np.ndarray]) -> Frequency:
    """The frequency that most series have; times of each sorted and unique."""
    return most_common(Counter(infer_frequency(times) for times in series))


def most_common(counts: Mapping[Frequency, int]) -> Frequency:
    """The frequency of so many series that most have."""
    if not counts:
        return Frequency("B")
    kinds = Counter[Frequency]()  # series on other days of the month are of one frequency
    for kind, count in counts.items():
        kinds[dataclasses.replace(kind, day=0)] += count
    most = min(
        kinds, key=lambda kind: (-kinds[kind], kind.alias, kind.step, kind.nyse, str(kind.hours))
    )
    same = [kind for kind in counts if dataclasses.replace(kind, day=0) == most]
    return min(same, key=lambda kind: (-counts[kind], kind.day))


def infer_frequency(times: np.ndarray) -> Frequency:
    """Infer a frequency from sorted, unique times; gaps do not matter as long as most are regular.

    Rare rows on weekends, such as sessions of a special Saturday, make no series one of all days.
    Weekdays count as the sessions of New York when hardly a time falls on one of its holidays and
    the times span half a year or more. Intraday times that keep to the sessions of an exchange go
    on in them, by its clock or in UTC.
    """
    return _infer(times.dtype.str, times.tobytes())


@functools.lru_cache(maxsize=1024)
def _infer(dtype: str, raw: bytes) -> Frequency:
    # Most series of a panel share their times: cached, each kind of them is looked at once.
    times = np.frombuffer(raw, dtype)
    if times.dtype.kind in "iu":
        steps = np.diff(times)
        return Frequency("step", int(np.median(steps)) if len(steps) else 1)
    index = pd.DatetimeIndex(times)
    if len(index) < 2:
        return Frequency("B")
    typical = pd.Timedelta(np.median(np.diff(index.to_numpy())))
    if typical == _DAY:
        if (index.day_of_week[-_LATELY:] >= 5).mean() > _SOME:
            return Frequency("D")
        return Frequency("B", nyse=_keeps_holidays(index))
    if typical < _DAY:
        step = max(1, int(typical.total_seconds()))
        return Frequency(f"{step}s", hours=infer_hours(index, step))
    if alias := _regular(index):
        return Frequency(alias)
    if 5 <= typical.days <= 8:
        return Frequency(f"W-{index[-1].strftime('%a').upper()}")
    if typical.days >= 28:
        return Frequency("months", round(typical.days / 30.44), day=_day_of_months(index))
    if index.day_of_week.max() < 5:
        return Frequency("B")
    return Frequency(f"{typical.days}D")


def _regular(index: pd.DatetimeIndex) -> str | None:
    """The offset alias of times without any gap, as pandas finds it."""
    if len(index) < 3:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # later versions of pandas return an offset instead
        offset = pd.infer_freq(index)
    return getattr(offset, "freqstr", offset)


def _day_of_months(index: pd.DatetimeIndex) -> int:
    """The day that nearly all dates have in their months, if these are long enough; else 0."""
    lengths = index.days_in_month
    for day in (31, int(index.day.max())):
        if (index.day == np.minimum(day, lengths)).mean() >= _NEARLY_ALL:
            return day
    return 0


def _keeps_holidays(index: pd.DatetimeIndex) -> bool:
    holidays = regular_holidays(index[0].year, index[-1].year)
    within = holidays[(holidays >= index[0]) & (holidays <= index[-1])]
    kept = len(within) >= 4 and index.normalize().isin(within).sum() <= _RARE * len(within)
    return bool(kept)


_LATEST = 61  # rows: of fewer, too many gaps might be weekends and holidays
_FEWEST = 3  # gaps; one or two might be a weekend
_ALIKE = 1.25  # times as far; months differ by a ninth
_COMMON = 0.1  # of the gaps: of weekdays, most are a day; of two rows a day, half are the shorter

_UNITS = {86_400: "day", 3_600: "hour", 60: "minute", 1: "second"}


def spacing_of(times: Shaped[np.ndarray, " row"]) -> float:
    """The usual gap between a series' latest rows: in seconds, or in the whole numbers that count.

    ``times``: sorted, unique. It is the median, of the two in the middle the shorter, so one of the
    gaps. NaN for less than two rows.
    """
    gaps = _gaps(times)
    return float(np.percentile(gaps, 50, method="lower")) if len(gaps) else float("nan")


def spaced_otherwise(times: Shaped[np.ndarray, " row"], spacing: float) -> str | None:
    """In words, how a series' latest rows are spaced, where that is not the usual gap of another.

    ``spacing``: that gap, of :func:`spacing_of`. None where they are alike, or nothing is known:
    gaps as of weekends, nights and holidays do not matter, as long as the usual one occurs.
    """
    gaps, now = _gaps(times), spacing_of(times)
    if len(gaps) < _FEWEST or not np.isfinite(spacing) or 1 / _ALIKE < now / spacing < _ALIKE:
        return None
    as_usual = (gaps > spacing / _ALIKE) & (gaps < spacing * _ALIKE)
    if as_usual.mean() >= _COMMON:
        return None
    dated = times.dtype.kind == "M"
    return (
        f"its rows are {_in_words(now, dated=dated)} apart, those that the model was fitted on "
        f"{_in_words(spacing, dated=dated)}"
    )


def _gaps(times: Shaped[np.ndarray, " row"]) -> Float[np.ndarray, " gap"]:
    """Between the latest rows, as earlier ones may be further apart."""
    gaps = np.diff(times[-_LATEST:])
    if gaps.dtype.kind == "m":
        return gaps.astype("timedelta64[ns]").astype(np.int64) / 1e9
    return gaps.astype(float)


def _in_words(spacing: float, *, dated: bool) -> str:
    if not dated:
        return f"{spacing:g}"
    unit = next((unit for unit in _UNITS if spacing >= unit), 1)
    count = f"{spacing / unit:.3g}"
    return f"{count} {_UNITS[unit]}{'' if count == '1' else 's'}"
