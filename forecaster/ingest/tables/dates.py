"""Read times: dates in common formats, times of day in a column of their own, and whole numbers."""

import datetime
import enum
import re

import numpy as np
import pandas as pd

from forecaster.errors import DataError, UsageError, quoted, warn
from forecaster.ingest.tables.location import TableLocation
from forecaster.ingest.tables.numbers import BLANK, plain_cells
from forecaster.series import SERIAL_START, dates_of_numbers, means_now, other_meaning, split_offset

EXCEL, STEPS, UTC = "excel", "steps", "utc"
_SHORT_YEAR = "%d-%b-%y"
_DAY_FORMATS = (
    "%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%d-%b-%Y", _SHORT_YEAR,
    "%b %d, %Y",
)  # fmt: skip
_MONTH_FORMATS = ("%m/%Y", "%b %Y", "%b-%Y", "%B %Y")
# Hours, minutes, seconds, and AM or PM.
_TIME_OF_DAY = (
    r"([01]?[0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9](?:\.[0-9]{1,9})?))?(?: ?([AaPp])[Mm])?"
)
# The day before these, such as 28.03.2024 10:00 or 3/28/2024, 9:30 PM.
_DAY_AND_CLOCK = re.compile(rf"^(.*[0-9]),?[T ] *{_TIME_OF_DAY}$")
_MIDNIGHT_AHEAD = r"24:00(?::00(?:\.0+)?)?"  # 24:00 ends a day
_NO_CLOCK = np.iinfo(np.int64).min  # NaT
_ISO_DAY = r"\d{4}(?:-\d\d-|/\d\d/|\d\d)\d\d"
_QUARTER = r"^(?:(\d{4})[- ]?Q([1-4])|Q([1-4])[-/ ]?(\d{4}))$"
_WEEK = r"^(\d{4})-?W(\d\d)(?:-?([1-7]))?$"
_MONTH = r"^(\d{4})-?M(\d\d)$"
_LONGEST_PERIOD = 10  # characters, as in 2024-W05-1
_ONE_DIGIT = r"\d{4}\.\d"  # 2024.1 is January, or October of a table that holds fractions
_FURTHER_OFFSET = r"[T ]\d\d(?::?\d\d){0,2}(?:[.,]\d+)?\s*[+-]\d"
# Days that stay within nanoseconds at any time of day and with any offset.
_REACHED = (pd.Timestamp("1677-09-23"), pd.Timestamp("2262-04-10"))
_END_OF_DAY = r"(?<=\d[T ])24:00(?=$|:00(?:\.0+)?(?:$|[ Zz+-])|[ Zz+-])"
_HEAD = 100  # cells that are looked at first
_LEAST_CLOCK, _SHARE_OF_CLOCKS = 100, 0.5  # 100 is 01:00; share of times that are this or later
_MIDNIGHTS = [pd.Timedelta(0), pd.Timedelta(days=1)]
_LAST_COUNT = 3_000  # counts of steps, and years, hardly begin later
_LAST_SERIAL = 2_958_465  # 9999-12-31


def check_date_format(date_format: str | None) -> None:
    """Raise UsageError unless times can be read by this format.

    That is one of strftime that holds at least the year, with an offset (%z) only at its end, or
    ``excel`` (days of a spreadsheet since 1899-12-30), ``steps`` (whole numbers count steps) or
    ``utc`` (times with an offset become times in UTC).
    """
    if date_format is None:
        return
    if not isinstance(date_format, str):
        raise _bad_format(date_format)
    if date_format in (EXCEL, STEPS, UTC):
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
        "(whole numbers count steps), or utc (times with an offset become times in UTC)"
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
        return SERIAL_START + pd.to_timedelta((days * 86_400).round(), unit="s")
    if date_format.endswith("%z"):
        text, date_format = split_offset(text)[0], date_format.removesuffix("%z").rstrip()
    dates = pd.to_datetime(text, format=date_format, errors="coerce")
    return dates.dt.tz_localize(None) if isinstance(dates.dtype, pd.DatetimeTZDtype) else dates


CLOCK = "time of day"
"""The role of a column with the times of day of the dates in another one."""


class Clock(enum.Enum):
    """Whether a column called ``time`` holds times of day."""

    YES, NO, MAYBE = range(3)


def clock_in(name: str, cells: pd.Series) -> Clock:
    """Return whether a column called ``time`` holds times of day.

    Numbers without a colon are times (930, 1600, or 093000 with seconds) if half of them or more
    have three digits; Stooq's ``<TIME>`` always holds times. Smaller numbers may be times or not,
    and so may a column in which only some cells are times. Zeros or empty cells alone are midnight.

    ``name``: as written
    """
    text = _clock_text(cells)
    if text.str.lower().isin([*BLANK, "0", "0.0", "000000"]).all():
        return Clock.YES
    if _clocks(text) is None:
        written = text[text.str.contains(":", regex=False)].unique()
        return Clock.MAYBE if any(_clock_of(cell) is not None for cell in written) else Clock.NO
    if name.strip().lower() == "<time>" or text.str.contains(":", regex=False).all():
        return Clock.YES
    numbers = pd.to_numeric(text, errors="coerce")
    long = (numbers >= _LEAST_CLOCK)[numbers != 0]
    return Clock.YES if long.mean() >= _SHARE_OF_CLOCKS else Clock.MAYBE


def _clock_text(cells: pd.Series) -> pd.Series:
    return plain_cells(cells).astype(str).where(cells.notna(), "").str.strip()


def _clocks(text: pd.Series) -> "pd.Series[pd.Timedelta] | None":
    """Return times of day as durations after midnight; None if any cell is none."""
    distinct = {cell: _clock_of(cell) for cell in text.unique()}
    if None in distinct.values():
        return None
    return pd.to_timedelta(text.map(distinct).astype("int64"), unit="ns")


def _clock_of(cell: str) -> int | None:
    """Return a time of day in nanoseconds after midnight; None for other text.

    9:30, 9:30 PM and 09:30:00.5 are times, and without a colon 930 and 0930, 93000 and 093000 with
    seconds, and 0 for midnight.
    """
    if ":" not in cell:
        digits = cell.removesuffix(".0")
        digits = digits if len(digits) > 4 else digits.zfill(4) + "00"
        if not re.fullmatch(r"\d{5,6}", digits, re.ASCII):
            return None
        digits = digits.zfill(6)
        cell = f"{digits[:2]}:{digits[2:4]}:{digits[4:]}"
    if re.fullmatch(_MIDNIGHT_AHEAD, cell):
        return 24 * 3600 * 10**9
    found = re.fullmatch(_TIME_OF_DAY, cell)
    return None if found is None else _nanoseconds(*found.groups())


def with_clock(
    table: pd.DataFrame, where: TableLocation, date_format: str | None = None
) -> pd.Series:
    """Return the column of dates with the times of day from the column :data:`CLOCK` added.

    Dates are returned unchanged if all times of day are midnight.
    """
    dates = table["ds"]
    clock = _clocks(_clock_text(table[CLOCK]))
    if clock is None or (clock.isin(_MIDNIGHTS).all() and clock.nunique() == 1):
        return dates
    day = to_times(dates, where, date_format)
    if not pd.api.types.is_datetime64_dtype(day):
        return dates
    return day + clock


def to_times(column: pd.Series, where: TableLocation, date_format: str | None = None) -> pd.Series:
    """Return a column as datetimes, or as whole numbers if they count steps.

    Whole numbers are dates by the rules of :func:`forecaster.series.dates_of_numbers`. An offset
    from UTC or a time zone is dropped, and the local time of day kept, except with the format
    ``utc``. A period becomes its start.

    ``date_format``: of text and numbers, and ``utc`` also of timestamps with a time zone; see
    :func:`check_date_format`. None: the formats of ``_parse``.

    Raises DataError for a cell that is not a date, and for whole numbers that seem to count steps
    but have the pattern of dates.
    """
    given = column
    if isinstance(column.dtype, pd.PeriodDtype):
        column = column.dt.to_timestamp()
    if isinstance(column.dtype, pd.DatetimeTZDtype):
        in_zone = column.dt.tz_convert("UTC") if date_format == UTC else column
        column = in_zone.dt.tz_localize(None)
    if not pd.api.types.is_datetime64_dtype(column):
        given = plain_cells(column)
        text = given.astype(str).str.strip()
        text = text.mask(means_now(text), "")
        text, ends = _without_24(text)
        try:
            if date_format is not None:
                column = by_format(text, date_format)
            elif len(text) and text.str.fullmatch(r"-?\d{1,9}").all():
                column = _of_numbers(text, where)
            else:
                column = _parse(split_offset(text)[0])
        except ValueError as error:
            raise DataError(f"{where}: {error}") from error
        if ends is not None and pd.api.types.is_datetime64_dtype(column):
            column = column + pd.to_timedelta(ends.astype(int), unit="D")
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
    text = _without_24(plain_cells(cells).astype(str).str.strip())[0]
    numbers = text.str.fullmatch(r"[-+]?\d*(?:[.,]\d+)?")
    if means_now(text).any() or (date_format is None and numbers.any()):
        return False
    try:
        if date_format is not None:
            return bool(by_format(text, date_format).notna().all())
        return bool(_parse(split_offset(text)[0]).notna().all())
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
            "e.g. 2024-03-28; if all are written alike, say how: --date-format, e.g. %d/%m/%Y, "
            "excel or steps (in Python date_format=)"
        )
    if date_format == EXCEL:
        return "the days since 1899-12-30, as --date-format excel says"
    if date_format == STEPS:
        return "the number of a step, as --date-format steps says"
    if date_format == UTC:
        return "a time with its offset, such as 2024-03-28T10:00+01:00, as --date-format utc says"
    return f"one written as {date_format}"


def _of_numbers(text: pd.Series, where: TableLocation) -> pd.Series:
    """Return whole numbers as dates, or unchanged if they count steps.

    Raises DataError for numbers that seem to count steps but have the pattern of dates.
    """
    numbers = text.astype("int64")
    dates = dates_of_numbers(numbers.to_numpy())
    if dates is not None:
        return dates.set_axis(text.index)
    if meaning := other_meaning(numbers.to_numpy()):
        raise DataError(
            f"{where}, column {where.column('ds')!r}: numbers such as {text.iloc[0]} may be "
            f"{meaning}. If they count steps, say --date-format steps (in Python date_format=)"
        )
    if (first := int(numbers.min())) > _LAST_COUNT:
        warn(
            f"{where}, column {where.column('ds')!r}: numbers such as {first} are taken to count "
            "steps. If they are days or seconds since some day, convert them to dates; if they "
            "count steps, --date-format steps says so (in Python date_format=)"
        )
    return numbers


def _parse(text: pd.Series) -> pd.Series:
    """Read dates in ISO 8601, or else in the common format that fits every cell.

    Weeks (2024-W05), months (2024M03) and quarters (2024Q1) become their first day. A day may have
    a time of day in any of the formats.

    If no format fits, cells that the most fitting one does not read become NaT. Raises ValueError
    if formats that fit give different dates, or if a year of two digits may be in this century or
    the last.
    """
    codes, kinds = pd.factorize(text, use_na_sentinel=False)  # most texts repeat
    written = pd.Series(kinds)
    if (bare := written.str.fullmatch(_ONE_DIGIT)).any():
        raise ValueError(
            f"{written[bare].iloc[0]!r} may be January, October as a fraction, or a part of a "
            "year; write months as 2024-10"
        )
    # Offsets beyond those on earth are none.
    written = written.mask(written.str.contains(_FURTHER_OFFSET, regex=True), "")

    def in_rows(dates: pd.Series) -> pd.Series:
        if len(dates) == len(text):  # no text repeats
            return dates.set_axis(text.index)
        return dates.take(codes).set_axis(text.index)

    iso = pd.to_datetime(written, format="ISO8601", errors="coerce")
    if not iso.isna().any():
        return in_rows(iso)
    if (periods := _parse_periods(written)).notna().any():
        return in_rows(periods)
    partly = [iso, *_in_each_format(written)]
    readings = [in_rows(dates) for dates in partly if not dates.isna().any()]
    if not readings:
        rows = np.bincount(codes, minlength=len(written))
        return in_rows(max(partly, key=lambda dates: rows[dates.notna().to_numpy()].sum()))
    if any((dates != readings[0]).any() for dates in readings):
        raise ValueError(
            f"dates such as {written.iloc[0]!r} may have the month or the day first, as no number "
            "in them is above 12; choose by --date-format %d/%m/%Y (in Python date_format=), or "
            "write them as 2024-03-28"
        )
    return readings[0]


def _in_each_format(text: pd.Series) -> list[pd.Series]:
    """Read dates, with or without a time of day, in each of the formats; NaT where it has another.

    Raises ValueError if a year of two digits may be in this century or the last.
    """
    days, clock = _split_clock(text)
    codes, kinds = pd.factorize(days, use_na_sentinel=False)  # a day has many times
    each = pd.Series(kinds)
    by_form = {form: pd.to_datetime(each, format=form, errors="coerce") for form in _DAY_FORMATS}
    iso_days = each.where(each.str.fullmatch(_ISO_DAY))
    by_form["ISO8601"] = pd.to_datetime(iso_days, format="ISO8601", errors="coerce")
    short = by_form[_SHORT_YEAR]
    if (late := short > pd.Timestamp.now() + pd.Timedelta(days=366)).any():
        first = text[late.to_numpy()[codes]].iloc[0]
        raise ValueError(
            f"the year of {first!r} may be in this century or the last; write it in full"
        )
    read = [_at(dates, clock, codes) for dates in by_form.values()]
    timed = clock.notna()  # months have no time of day
    for form in _MONTH_FORMATS:
        months = pd.to_datetime(each, format=form, errors="coerce").take(codes)
        read.append(months.set_axis(text.index).mask(timed))
    return read


def _split_clock(text: pd.Series) -> tuple[pd.Series, pd.Series]:
    """Return times that are text without their times of day, and these as durations.

    Text without a valid time of day is unchanged, and its duration is missing.
    """
    none = pd.Series(pd.NaT, text.index, dtype="timedelta64[ns]")
    if not text.str.contains(":", regex=False).any():
        return text, none
    days = text.to_numpy(dtype=object, copy=True)
    clock = np.full(len(days), _NO_CLOCK)
    durations: dict[str, int | None] = {}  # of what follows a day: most of it repeats
    for row, cell in enumerate(days):
        found = _DAY_AND_CLOCK.match(cell) if isinstance(cell, str) else None
        if found is None:
            continue
        tail = cell[found.end(1) :]
        if tail not in durations:
            durations[tail] = _nanoseconds(*found.groups()[1:])
        if (duration := durations[tail]) is not None:
            days[row], clock[row] = found[1], duration
    days = pd.Series(days, text.index, dtype=object)
    return days, pd.Series(clock.view("timedelta64[ns]"), text.index)


def _nanoseconds(hours: str, minutes: str, seconds: str | None, half: str | None) -> int | None:
    """Return a time of day in nanoseconds after midnight; None for an hour with AM or PM but 1-12.

    - ``seconds``: may have a fraction
    - ``half``: ``a`` or ``p`` for AM or PM
    """
    hour = int(hours)
    if half is not None:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + 12 * (half in "pP")
    whole, _, fraction = (seconds or "0").partition(".")
    full = (hour * 60 + int(minutes)) * 60 + int(whole)
    return full * 10**9 + int(fraction.ljust(9, "0"))


def _at(days: pd.Series, clock: pd.Series, codes: np.ndarray) -> pd.Series:
    """Return days at times of day; NaT for days that nanoseconds do not reach.

    - ``days``: the distinct days; ``codes``: which of them each row has
    - ``clock``: the time of day of each row
    """
    clock = clock.fillna(pd.Timedelta(0))
    if not clock.any():
        return days.take(codes).set_axis(clock.index)
    reached = days.where(days.between(*_REACHED)).astype("datetime64[ns]")
    return reached.take(codes).set_axis(clock.index) + clock


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
