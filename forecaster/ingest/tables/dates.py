"""Read times: dates in common formats, times of day in a column of their own, and whole numbers."""

import datetime

import numpy as np
import pandas as pd

from forecaster.errors import DataError, UsageError, quoted
from forecaster.ingest.tables.location import TableLocation
from forecaster.ingest.tables.numbers import plain_cells
from forecaster.series import counts_steps, dates_of_numbers, means_now, split_offset

EXCEL, STEPS, UTC = "excel", "steps", "utc"
EPOCHS = ("s", "ms", "us", "ns")
"""Formats of numbers that count these units since 1970."""
_DAYS = (
    "%Y-%m-%d", "%Y/%m/%d", "%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%d-%b-%Y",
    "%b %d, %Y",
)  # fmt: skip
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p")
_FORMATS = (
    *(day + clock for day in _DAYS for clock in _CLOCKS),
    "%m/%Y", "%b %Y", "%b-%Y", "%B %Y",
)  # fmt: skip
_QUARTER = r"^(?:(\d{4})[- ]?Q([1-4])|Q([1-4])[-/ ]?(\d{4}))$"
_WEEK = r"^(\d{4})-?W(\d\d)(?:-?([1-7]))?$"
_MONTH = r"^(\d{4})-?M(\d\d)$"
_LONGEST_PERIOD = 10  # characters, as in 2024-W05-1
_FURTHER_OFFSET = r"[T ]\d\d(?::?\d\d){0,2}(?:[.,]\d+)?\s*[+-]\d"
# Days that stay within nanoseconds at any time of day and with any offset.
_REACHED = (pd.Timestamp("1677-09-23"), pd.Timestamp("2262-04-10"))
_END_OF_DAY = r"(?<=\d[T ])24:00(?=$|:00(?:\.0+)?(?:$|[ Zz+-])|[ Zz+-])"
_HEAD = 100  # cells that are looked at first
_SERIAL_START = pd.Timestamp("1899-12-30")
_LAST_SERIAL = 2_958_465  # 9999-12-31


def check_date_format(date_format: str | None) -> None:
    """Raise UsageError unless times can be read by this format.

    That is one of strftime that holds at least the year, with an offset (%z) only at its end, or
    ``excel`` (days of a spreadsheet since 1899-12-30), ``steps`` (whole numbers count steps),
    ``s``, ``ms``, ``us`` or ``ns`` (since 1970), or ``utc`` (times with an offset become times in
    UTC).
    """
    if date_format is None:
        return
    if not isinstance(date_format, str):
        raise _bad_format(date_format)
    if date_format in (EXCEL, STEPS, UTC, *EPOCHS):
        return
    utc = datetime.UTC
    days = [
        datetime.datetime(2001, 2, 3, 4, 5, 6, tzinfo=utc),
        datetime.datetime(2002, 3, 4, 5, 6, 7, tzinfo=utc),
    ]
    try:
        back = by_format(pd.Series([day.strftime(date_format) for day in days]), date_format)
    except ValueError as error:
        raise _bad_format(date_format) from error
    if "%" not in date_format or back.dt.year.tolist() != [2001, 2002]:
        raise _bad_format(date_format)


def _bad_format(date_format: object) -> UsageError:
    return UsageError(
        f"date format {date_format!r}: expected one such as %d/%m/%Y (day first) or "
        "%Y-%m-%d %H:%M, in the codes of strftime; or excel (days of a spreadsheet), or steps "
        "(whole numbers count steps), or s, ms, us or ns (counted since 1970), or utc (times with "
        "an offset become times in UTC)"
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


CLOCK = "time of day"
"""The role of a column with the times of day of the dates in another one."""


def is_clock(name: str, cells: pd.Series) -> bool:
    """Return whether a column called ``time`` holds times of day: with colons, or Stooq's."""
    colons = cells.iloc[:_HEAD].astype(str).str.contains(":", regex=False)
    return bool(colons.any()) or _is_stooqs(name)


def _is_stooqs(name: str) -> bool:
    return name.strip().lower() == "<time>"


def clock_of(cells: pd.Series, where: TableLocation) -> pd.Series:
    """Return the times of day of the column :data:`CLOCK`, since midnight.

    They are written as 9:30, 09:30:00.5, 9:30 PM or 24:00, by Stooq as 093000. Raises DataError for
    a cell that holds none.
    """
    codes, kinds = pd.factorize(plain_cells(cells), use_na_sentinel=False)
    text = pd.Series(kinds).astype(str).str.strip()
    if _is_stooqs(where.column(CLOCK)) and (text.str.len().max() > 4 or text.eq("0").all()):
        text = text.str.zfill(6).str.replace(r"^(\d\d)(\d\d)(\d\d)$", r"\1:\2:\3", regex=True)
    times = _read("2000-01-01 " + text).take(codes).set_axis(cells.index)
    if (bad := times.isna()).any():
        raise DataError(
            f"{where.cell(bad, CLOCK)}: {quoted(str(cells[bad].iloc[0]))} is not a time of day; "
            "write all of them as 09:30 or 9:30 PM"
        )
    return times - pd.Timestamp("2000-01-01")


def to_times(column: pd.Series, where: TableLocation, date_format: str | None = None) -> pd.Series:
    """Return a column as datetimes, or as whole numbers if they count steps.

    Whole numbers are dates by :func:`forecaster.series.dates_of_numbers`. An offset from UTC or a
    time zone is dropped, and the local time of day kept, except with the format ``utc``. A period
    becomes its start.

    ``date_format``: of text and numbers, and ``utc`` also of timestamps with a time zone; see
    :func:`check_date_format`. None: the formats of ``_parse``.

    Raises DataError for a cell that is not a date, and for whole numbers that may count steps or be
    dates.
    """
    given = column
    if isinstance(column.dtype, pd.PeriodDtype):
        column = column.dt.to_timestamp()
    if isinstance(column.dtype, pd.DatetimeTZDtype):
        in_zone = column.dt.tz_convert("UTC") if date_format == UTC else column
        column = in_zone.dt.tz_localize(None)
    if not pd.api.types.is_datetime64_dtype(column):
        given = plain_cells(column)
        try:
            column = _read(given.astype(str).str.strip(), date_format)
        except ValueError as error:
            raise DataError(f"{where}, column {where.column('ds')!r}: {error}") from error
    if pd.api.types.is_numeric_dtype(column):
        bad = column.isna()
    else:
        bad = column.isna() | ~column.between(pd.Timestamp.min, pd.Timestamp.max)
    if bad.any():
        kind = "whole number" if date_format == STEPS else "date"
        raise DataError(
            f"{where.cell(bad, 'ds')}: {quoted(str(given[bad].iloc[0]).strip())} is not a {kind}; "
            f"expected {_expected(date_format)}"
        )
    return column.astype("int64" if pd.api.types.is_numeric_dtype(column) else "datetime64[ns]")


def _read(text: pd.Series, date_format: str | None = None) -> pd.Series:
    """Return text as local times, or as numbers that count steps; NaT where it is neither.

    Raises ValueError if the texts can be read in two ways.
    """
    text, ends = _without_24(text.mask(means_now(text), ""))
    if date_format is not None:
        times = by_format(text, date_format)
    elif len(text) and text.str.fullmatch(r"-?\d{1,18}").all():
        times = _of_numbers(text)
    else:
        times = _parse(split_offset(text)[0])
    if ends is None or not pd.api.types.is_datetime64_dtype(times):
        return times
    return times + pd.to_timedelta(ends.astype(int), unit="D")


def _without_24(text: pd.Series) -> tuple[pd.Series, pd.Series | None]:
    """Return times with 00:00 in place of 24:00, and which had it; None for none.

    24:00 is the end of a day, so 00:00 of the next one.
    """
    if not text.str.contains("24:00", regex=False).any():  # quick, as files hardly ever have it
        return text, None
    ends = text.str.contains(_END_OF_DAY, regex=True)
    return text.str.replace(_END_OF_DAY, "00:00", regex=True), ends


def offsets_of(column: pd.Series) -> pd.Series | None:
    """Return the offset from UTC of each time, zero where there is none; None if no cell has one.

    ``column``: times as text or timestamps, as :func:`to_times` takes them.
    """
    if not (pd.api.types.is_object_dtype(column) or pd.api.types.is_string_dtype(column)):
        return None  # a column of timestamps has one time zone, which may have summer time
    return split_offset(plain_cells(column).astype(str).str.strip())[1]


def are_dates(column: pd.Series, date_format: str | None = None) -> bool:
    """Return whether all cells of a column of text are dates, and not only digits.

    Dates whose day and month cannot be told apart are dates, too.
    """
    if not (pd.api.types.is_object_dtype(column) or pd.api.types.is_string_dtype(column)):
        return False
    # The first cells show that most columns of text hold no dates, without reading the others.
    return len(column) > 0 and all(
        _are_dates(cells, date_format) for cells in (column.iloc[:_HEAD], column)
    )


def _are_dates(cells: pd.Series, date_format: str | None) -> bool:
    text = plain_cells(cells).astype(str).str.strip()
    numbers = text.str.fullmatch(r"[-+]?\d*(?:[.,]\d+)?")
    if date_format is None and numbers.any():
        return False
    try:
        return bool(_read(text, date_format).notna().all())
    except ValueError:
        return True


def times_in_utc(column: pd.Series, times: pd.Series) -> pd.Series | None:
    """Return the times in UTC of a column with offsets or a time zone; None if it has neither.

    - ``column``: times as text or timestamps, as :func:`to_times` takes them
    - ``times``: the same without their offsets
    """
    if isinstance(column.dtype, pd.DatetimeTZDtype):
        return column.dt.tz_convert("UTC").dt.tz_localize(None)
    offsets = offsets_of(column)
    return None if offsets is None else times - offsets


def _expected(date_format: str | None) -> str:
    if date_format is None:
        return (
            "e.g. 2024-03-28, alike in all rows, from 1677-09-22 to 2262-04-11; if they are "
            "written in another way, say how: --date-format, e.g. %d/%m/%Y, excel, ms or steps "
            "(in Python date_format=)"
        )
    if date_format == EXCEL:
        return "the days since 1899-12-30, as --date-format excel says"
    if date_format == STEPS:
        return "the number of a step, as --date-format steps says"
    if date_format in EPOCHS:
        return f"a number since 1970, as --date-format {date_format} says"
    if date_format == UTC:
        return "a time with its offset, such as 2024-03-28T10:00+01:00, as --date-format utc says"
    return f"one written as {date_format}"


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
            f"numbers such as {text.iloc[0]} may count steps or be dates; say which: --date-format "
            "steps, or excel (days of a spreadsheet), s, ms, us or ns (since 1970), or a format "
            "such as %Y or %Y%j (in Python date_format=)"
        )
    return numbers


def _parse(text: pd.Series) -> pd.Series:
    """Read dates in ISO 8601, or else in the common format that fits every cell.

    Weeks (2024-W05), months (2024M03) and quarters (2024Q1) become their first day. A day may have
    a time of day.

    Cells that are none become NaT: those that the most fitting format does not read, and those of
    another precision than most, such as 2021 among its months. Raises ValueError if formats that
    fit give different dates.
    """
    codes, kinds = pd.factorize(text, use_na_sentinel=False)  # most texts repeat
    written = pd.Series(kinds)
    # Offsets beyond those on earth are none.
    written = written.mask(written.str.contains(_FURTHER_OFFSET, regex=True), "")
    dates = _parse_distinct(written, np.bincount(codes, minlength=len(written)))
    return (dates if len(dates) == len(text) else dates.take(codes)).set_axis(text.index)


def _parse_distinct(written: pd.Series, rows: np.ndarray) -> pd.Series:
    """Read distinct dates; ``rows``: how many rows have each."""
    iso = pd.to_datetime(written, format="ISO8601", errors="coerce")
    if not iso.isna().any():
        return iso.mask(_are_less_exact(written, rows))
    if (periods := _parse_periods(written)).notna().any():
        return periods
    plain = written.str.replace(r",?[T ] *(?=\d{1,2}:)", " ", regex=True)
    plain = plain.str.replace(r" ?([AaPp][Mm])$", r" \1", regex=True)
    # The first texts show which few formats may fit all.
    fits = {form: _rows_read(plain.iloc[:_HEAD], form, rows) for form in _FORMATS}
    most = max(fits.values())
    if not most:
        return iso
    read = [
        pd.to_datetime(plain, format=form, errors="coerce") for form in fits if fits[form] == most
    ]
    whole = [dates for dates in read if not dates.isna().any()]
    if any((dates != whole[0]).any() for dates in whole):
        raise ValueError(
            f"dates such as {written.iloc[0]!r} may have the month or the day first, as no number "
            "in them is above 12; choose by --date-format %d/%m/%Y or %m/%d/%Y (in Python "
            "date_format=), or write them as 2024-03-28"
        )
    return whole[0] if whole else max(read, key=lambda dates: dates.notna().sum())


def _rows_read(texts: pd.Series, form: str, rows: np.ndarray) -> int:
    read = pd.to_datetime(texts, format=form, errors="coerce").notna()
    return int(rows[: len(texts)][read.to_numpy()].sum())


def _are_less_exact(written: pd.Series, rows: np.ndarray) -> pd.Series:
    """Return which dates have another precision than most, such as 2021 among its months."""
    if written.str.len().nunique() < 2:  # as nearly always
        return written.isna()
    exact = written.str.count(r"\d").where(~written.str.contains("[T ]", regex=True), 99)
    share = np.bincount(exact, rows)
    return exact != np.flatnonzero(share == share.max())[-1]


def _parse_periods(text: pd.Series) -> pd.Series:
    """Return the first day of weeks, months and quarters, NaT for other text."""
    index = text.index
    text = text[text.str.len() <= _LONGEST_PERIOD].str.upper()
    if not text.str.contains("[QWM]", regex=True).any():
        return pd.Series(pd.NaT, index)
    quarters = text.str.extract(_QUARTER)
    year, quarter = quarters[0].fillna(quarters[3]), quarters[1].fillna(quarters[2])
    month = quarter.map({"1": "01", "2": "04", "3": "07", "4": "10"})
    # A column without any text has become one of numbers.
    year, month = year.astype(text.dtype), month.astype(text.dtype)
    months = text.str.extract(_MONTH)
    weeks = text.str.extract(_WEEK)
    day_of_week = weeks[0] + "-" + weeks[1] + "-" + weeks[2].fillna("1")
    firsts = (year + "-" + month).fillna(months[0] + "-" + months[1])
    dates = pd.to_datetime(firsts, format="%Y-%m", errors="coerce")
    days = pd.to_datetime(day_of_week, format="%G-%V-%u", errors="coerce")
    # Before version 3, pandas reads week 53 of a year without it as the first of the next.
    in_year = days.dt.isocalendar().week == pd.to_numeric(weeks[1])
    return dates.fillna(days.where(in_year)).reindex(index)
