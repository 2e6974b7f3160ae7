"""Read times, ISO 8601, periods and whole numbers, and the step between them that a caller states.

All else is refused with the date formats that read it.
"""

import dataclasses
import datetime
import re
import shlex
import warnings
from collections.abc import Iterable

import numpy as np
import pandas as pd
from pandas.tseries.api import guess_datetime_format

from forecaster.errors import DataError, UsageError, quoted, warn
from forecaster.ingest.tables.cells import TableLocation, missing_option, plain_cells
from forecaster.series import (
    Frequency,
    Panel,
    common_frequency,
    counts_steps,
    dates_of_numbers,
    in_words,
    means_now,
    show_time,
    split_offset,
)

EXCEL, STEPS, UTC = "excel", "steps", "utc"
EPOCHS = ("s", "ms", "us", "ns")
"""Formats of numbers that count these units since 1970."""
_NAMED = (
    "%d-%b-%y", "%d/%m/%y", "%m/%d/%y", "%d.%m.%y", "%y%m%d", "%d%m%Y", "%m%d%Y", "%m/%Y", "%b %Y",
    "%b-%Y", "%B %Y", EXCEL, *EPOCHS,
)  # fmt: skip
"""Formats that an error names if they read the column, beside those that pandas guesses."""
_OUR_TIME = (pd.Timestamp("1972-01-01"), pd.Timestamp("2100-01-01"))
_PERIOD = re.compile(r"^(\d{4})[- ]?([QMW])(\d\d?)(?:-?([1-7]))?$", re.IGNORECASE)
# Offsets beyond those on earth; and fractions: 2020.5 is the middle of a year, and no May.
_NO_DATE = r"[T ]\d\d(?::?\d\d){0,2}(?:[.,]\d+)?\s*[+-]\d|^-?\d+\.\d*$"
# Days that stay within nanoseconds at any time of day and with any offset.
_REACHED = (pd.Timestamp("1677-09-23"), pd.Timestamp("2262-04-10"))
_END_OF_DAY = r"(?<=\d[T ])24:00(?=$|:00(?:\.0+)?(?:$|[ Zz+-])|[ Zz+-])"
_HEAD = 10  # cells that show the format
_SERIAL_START = pd.Timestamp("1899-12-30")
_LAST_SERIAL = 2_958_465  # 9999-12-31
_DAY = 86_400  # seconds
_FEW = 0.1  # share of rows that may be later on a day that has one


def check_date_format(date_format: str | None) -> None:
    """Raise UsageError unless times can be read by this format.

    That is one of strftime that holds at least the year, or ``excel`` (days of a spreadsheet since
    1899-12-30), ``steps`` (whole numbers count steps), ``s``, ``ms``, ``us`` or ``ns`` (since
    1970), or ``utc`` (times with an offset become times in UTC).
    """
    if date_format is None:
        return
    known = (EXCEL, STEPS, UTC, *EPOCHS)
    if not isinstance(date_format, str) or not (
        date_format in known or re.search("%[YyGcxDF]", date_format)
    ):
        raise UsageError(
            f"date format {date_format!r}: expected one such as %d/%m/%Y (day first) or "
            "%Y-%m-%d %H:%M, in the codes of strftime; or excel (days of a spreadsheet), or steps "
            "(whole numbers count steps), or s, ms, us or ns (counted since 1970), or utc (times "
            "with an offset become times in UTC)"
        )


def by_format(text: pd.Series, date_format: str) -> pd.Series:
    """Return text as times in this format, NaT where it has another; offsets are left out.

    With the format ``steps``: whole numbers, NaN elsewhere. With ``utc``: times in UTC, NaT where
    there is no offset. Raises ValueError if the format is none of strftime, and with ``utc`` if
    dates can be read in two ways.
    """
    if date_format == UTC:
        local, offsets = split_offset(text)
        if offsets is None:
            return pd.Series(pd.NaT, text.index, dtype="datetime64[ns]")
        times = _parse(local).where(local != text)
        return times.where(times.between(*_REACHED)).astype("datetime64[ns]") - offsets
    if date_format in (EXCEL, STEPS):
        # int64 would be exact beyond 2**53, but no count of rows reaches that
        numbers = pd.to_numeric(text, errors="coerce").astype(float)
        if date_format == STEPS:
            return numbers.where((numbers % 1 == 0) & (numbers.abs() < 2**53))
        days = numbers.where(numbers.between(1, _LAST_SERIAL))
        return _SERIAL_START + pd.to_timedelta((days * 86_400).round(), unit="s")
    if date_format in EPOCHS:
        numbers = pd.to_numeric(text, errors="coerce")
        return pd.to_datetime(numbers, unit=date_format, errors="coerce")
    if date_format.endswith("%z"):
        text, date_format = split_offset(text)[0], date_format.removesuffix("%z").rstrip()
    dates = pd.to_datetime(text, format=date_format, errors="coerce")
    return dates.dt.tz_localize(None) if isinstance(dates.dtype, pd.DatetimeTZDtype) else dates


def to_times(
    column: pd.Series, where: TableLocation, date_format: str | None = None
) -> tuple[pd.Series, pd.Series | None]:
    """Return a column as datetimes, or as whole numbers if they count steps; and its offsets.

    Whole numbers are dates by :func:`forecaster.series.dates_of_numbers`. An offset from UTC or a
    time zone is dropped, and the local time of day kept, except with the format ``utc``. A period
    becomes its start. The offsets, which local times have from UTC, are None if no time has one.

    ``date_format``: of text and numbers, and ``utc`` also of timestamps with a time zone; see
    :func:`check_date_format`. None: ISO 8601.

    Raises DataError for a cell that is not a date, and for whole numbers that may count steps or be
    dates.
    """
    given, offsets = column, None
    if isinstance(column.dtype, pd.PeriodDtype):
        column = column.dt.to_timestamp()
    if isinstance(column.dtype, pd.DatetimeTZDtype):
        in_utc = column.dt.tz_convert("UTC").dt.tz_localize(None)
        column = in_utc if date_format == UTC else column.dt.tz_localize(None)
        offsets = column - in_utc
    if not pd.api.types.is_datetime64_dtype(column):
        codes, kinds = pd.factorize(plain_cells(column), use_na_sentinel=False)  # most repeat
        texts = pd.Series(kinds).astype(str).str.strip().fillna("")
        try:
            times, offsets = _read(texts, date_format)
        except ValueError as error:
            first = pd.Series(True, column.index)
            raise DataError(f"{where.cell(first, 'ds')}: {error}") from error
        given, column = (part.take(codes).set_axis(column.index) for part in (texts, times))
        offsets = None if offsets is None else offsets.take(codes).set_axis(column.index)
    counts = pd.api.types.is_numeric_dtype(column)
    bad = column.isna()
    if not counts:
        bad |= ~column.between(pd.Timestamp.min, pd.Timestamp.max)
    if bad.any():
        raise DataError(
            f"{where.cell(bad, 'ds')}: {quoted(given[bad].iloc[0])} "
            f"{_what_is_wrong(given, column, bad, date_format)}"
        )
    return column.astype("int64" if counts else "datetime64[ns]"), offsets


def _what_is_wrong(
    given: pd.Series, times: pd.Series, bad: pd.Series, date_format: str | None
) -> str:
    """Return what a column of times has wrong, and which option reads it."""
    marks = "" if bad.all() else missing_option(given[bad])
    rows = f". Correct it or, to leave out such rows, say {marks}" if marks else ""
    if times[bad].notna().iloc[0]:
        span = "from 1677-09-22 to 2262-04-11"
        return f"is too far away; expected a date {span}{rows or '. Correct it, or leave it out'}"
    if date_format is not None:
        kind = "whole number" if date_format == STEPS else "date"
        return f"is not a {kind}; expected what --date-format {date_format} says{rows}"
    forms = _fitting(given) if bad.all() else []
    how = f"say how: {_as_options(forms)}" if forms else "say how by --date-format"
    return (
        "is not a date; expected e.g. 2024-03-28, alike in all rows, from 1677-09-22 to "
        f"2262-04-11{rows or f'. If dates are written in another way, {how}'}"
    )


def _fitting(text: pd.Series) -> list[str]:
    """Return formats that read all texts as dates, numbers as days of our time, or as steps.

    Where none does, those that the first text seems to have.
    """
    guessed = (form for cell in text.iloc[:_HEAD] for form in _guessed(cell))
    forms = [form for form in dict.fromkeys(guessed) if by_format(text, form).notna().all()]
    forms = forms or list(dict.fromkeys(_guessed(text.iloc[0])))
    forms += [form for form in _NAMED if by_format(text, form).between(*_OUR_TIME).all()]
    return [*forms, STEPS] if by_format(text, STEPS).notna().all() else forms


def _guessed(written: str) -> list[str]:
    """Return the formats in which pandas reads a date: with the month, and with the day first."""
    plain = re.sub(r" ?[AaPp][Mm]$", "", written)
    orders = (False,) if re.match(r"\d{4}", plain) else (False, True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a date that has another order than this one
        guessed = [guess_datetime_format(plain, dayfirst=day_first) for day_first in orders]
    forms = [form for form in guessed if form is not None and "%Y" in form]
    if plain == written:
        return forms
    space = " " if written[len(plain)] == " " else ""
    return [f"{form.replace('%H', '%I')}{space}%p" for form in forms]


def may_be_dates(column: pd.Series) -> bool:
    """Return whether cells are dates, or would be with a date format."""
    text = plain_cells(column).astype(str).str.strip().fillna("")
    return bool(_parse(text).notna().all()) or any("%" in form for form in _fitting(text))


def _as_options(formats: Iterable[str]) -> str:
    said = [f"--date-format {shlex.quote(form)}" for form in formats]
    return f"{' or '.join(said)} (in Python date_format=)"


def _read(text: pd.Series, date_format: str | None) -> tuple[pd.Series, pd.Series | None]:
    """Return text as local times, or as numbers that count steps, and the offsets from UTC, if any.

    NaT where it is neither. 24:00 is 00:00 of the next day. Raises ValueError if the texts can be
    read in two ways.
    """
    ends = text.str.contains(_END_OF_DAY, regex=True)
    text = text.mask(means_now(text), "").str.replace(_END_OF_DAY, "00:00", regex=True)
    if date_format is None and len(text) and text.str.fullmatch(r"-?\d{1,18}").all():
        return _of_numbers(text), None
    has_offsets = date_format is None or date_format.endswith("%z")
    local, offsets = split_offset(text) if has_offsets else (text, None)
    times = _parse(local) if date_format is None else by_format(text, date_format)
    if ends.any() and pd.api.types.is_datetime64_dtype(times):
        times += pd.to_timedelta(ends.astype(int), unit="D")
    return times, offsets


def _of_numbers(text: pd.Series) -> pd.Series:
    """Return whole numbers as dates, or unchanged if they count steps.

    Raises ValueError for numbers that may be either.
    """
    numbers = text.astype("int64")
    dates = dates_of_numbers(numbers.to_numpy())
    if dates is not None:
        return dates.set_axis(text.index)
    if not counts_steps(numbers.to_numpy()):
        raise ValueError(
            f"{text.iloc[0]!r} may count steps or be a date; expected dates such as 2024-03-28, or "
            f"steps from 1 on. Say which: {_as_options(_fitting(text))}"
        )
    return numbers


def _parse(text: pd.Series) -> pd.Series:
    """Read dates in ISO 8601.

    Weeks (2024-W05), months (2024M03) and quarters (2024Q1) become their first day. Cells that are
    none become NaT, and those of another precision than most, such as 2021 among its months.
    """
    plain = text.mask(text.str.contains(_NO_DATE, regex=True), "")
    if plain.str.contains("[QWMqwm]", regex=True).any():
        plain = plain.str.replace(_PERIOD, _first_day, regex=True)
    dates = pd.to_datetime(plain, format="ISO8601", errors="coerce")
    return dates if dates.isna().any() else dates.mask(_are_less_exact(text))


def _first_day(period: re.Match[str]) -> str:
    """Return the first day, in ISO 8601, of a quarter, month or week; else its text."""
    year, kind, number = int(period[1]), period[2].upper(), int(period[3])
    try:
        if kind == "W":
            return str(datetime.date.fromisocalendar(year, number, int(period[4] or 1)))
        if period[4] is None:
            return str(datetime.date(year, 3 * number - 2 if kind == "Q" else number, 1))
    except ValueError:  # there is no such period in that year
        pass
    return period[0]


def _are_less_exact(written: pd.Series) -> pd.Series:
    """Return which dates have another precision than most, such as 2021 among its months."""
    if written.str.len().nunique() < 2:  # as nearly always
        return written.isna()
    digits = written.str.count(r"\d").where(~written.str.contains("[T ]", regex=True), 99)
    return digits != digits.mode().max()


def stated_frequency(name: str) -> Frequency:
    """Return the frequency of a name of pandas' offsets: W-MON, MS, QE-DEC, B, D, h, 15min.

    Raises UsageError for another text, and for a frequency that does not lead on.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # names that pandas gives up
            offset = Frequency(name).offset
        alias = offset.freqstr
        if isinstance(offset, pd.offsets.Tick) and not (seconds := offset.nanos / 1e9) % 1:
            days = seconds / 86_400
            alias = f"{seconds:.0f}s" if days % 1 else f"{days:.0f}D"
        frequency = Frequency("D" if alias == "1D" else alias, stated=True)
        frequency.after(pd.Timestamp("2024-01-01"), 1)[0]
    except (ValueError, TypeError, IndexError, ZeroDivisionError, Warning, DataError) as error:
        raise UsageError(
            f"frequency {name!r:.80}: expected a name of pandas' offsets: D (days), B (weekdays), "
            "W-MON (weeks, by a day of theirs), 2W-FRI, MS or ME (first or last day of months), "
            "QE-DEC, YS, h, 15min"
        ) from error
    return frequency


def with_frequency(panel: Panel, name: str | None) -> Panel:
    """Return a panel with the frequency that is stated for its dates, if one is."""
    if name is None or panel.times.dtype.kind != "M":
        return panel
    return dataclasses.replace(panel, frequency=stated_frequency(name))


def tell_odd_rows(times: pd.Series, ids: pd.Series, name: str, where: TableLocation) -> None:
    """Warn of the rows that are at none of the times of a stated frequency.

    ``times``, ``ids``: of each row of a table, in any order

    Raises DataError for times that count steps, for steps of hours where all rows have one time of
    day, and for steps of days or longer where rows have several on one day.
    """
    if not pd.api.types.is_datetime64_dtype(times):
        raise DataError(
            f"{where}: --frequency {name} (in Python frequency=) is of dates, and column "
            f"{where.column('ds')!r} counts in whole numbers; leave it out"
        )
    frequency, ordered = stated_frequency(name), times.sort_values()
    _refuse_other_kind(frequency, times, ids, name, where)
    fits = ordered.groupby(ids.cat.codes).transform(lambda its: frequency.fits(its.to_numpy()))
    odd = ~fits.astype(bool).reindex(times.index)
    if odd.any():
        warn(
            f"{where.cell(odd, 'ds')}: {show_time(times[odd].iloc[0])} is at no time of "
            f"--frequency {name} ({in_words(frequency)}), which {odd.sum():,} of {len(odd):,} rows "
            "do not fit. They are kept, and forecasts go on from the latest row that fits; correct "
            "them, leave them out, or state another frequency"
        )


def _refuse_other_kind(
    frequency: Frequency, times: pd.Series, ids: pd.Series, name: str, where: TableLocation
) -> None:
    """Raise DataError for a step within days where rows are of days, and the other way around."""
    rows = pd.DataFrame({"id": ids.cat.codes, "time": times, "day": times.dt.normalize()})
    on_one_day = rows.duplicated(["id", "day"]) & ~rows.duplicated(["id", "time"])
    is_tick = isinstance(frequency.offset, pd.offsets.Tick)
    within_days = is_tick and frequency.base[1] != "D" and frequency.seconds % _DAY != 0
    one_clock = times.nunique() > 2 and (times - rows["day"]).nunique() == 1
    if not (one_clock if within_days else on_one_day.mean() > _FEW):
        return
    each = (np.unique(part) for _, part in rows.groupby("id")["time"])
    shown = common_frequency(each)
    found = "one time of day in all rows" if within_days else "several rows on one day"
    bad = times.notna() if within_days else on_one_day
    option = f"Say {shown.option}, or leave" if shown.option else "Leave"
    raise DataError(
        f"{where.cell(bad, 'ds')}: {found}, but --frequency {name} (in Python frequency=) means "
        f"{in_words(frequency)}; the rows show {in_words(shown)}. {option} it out"
    )
