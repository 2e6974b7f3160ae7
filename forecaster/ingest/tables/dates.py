"""Read times: dates in common formats, times of day in a column of their own, and whole numbers."""

import datetime

import pandas as pd

from forecaster.errors import DataError, UsageError
from forecaster.ingest.tables.location import TableLocation

_MOST_WRONG = 0.5  # if more of the eight-digit numbers are not dates, they count steps
_SHORT_YEAR = "%d-%b-%y"
_DATE_FORMATS = (
    "%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%d-%b-%Y", _SHORT_YEAR,
    "%b %d, %Y", "%m/%d/%Y %H:%M:%S", "%d/%m/%Y %H:%M:%S",
)  # fmt: skip
_ZONE = r"(?<=:\d\d)(\.\d+)?\s*(Z|[+-]\d\d:?\d\d)$"


def check_date_format(date_format: str | None) -> None:
    """Raise UsageError unless the format is one of strftime that holds at least the year."""
    if date_format is None:
        return
    days = [datetime.datetime(2001, 2, 3, 4, 5, 6), datetime.datetime(2002, 3, 4, 5, 6, 7)]
    try:
        written = [day.strftime(date_format) for day in days]
        back = pd.to_datetime(pd.Series(written), format=date_format)
    except ValueError as error:
        raise _bad_format(date_format) from error
    if "%" not in date_format or back.dt.year.tolist() != [2001, 2002]:
        raise _bad_format(date_format)


def _bad_format(date_format: str) -> UsageError:
    return UsageError(
        f"date format {date_format!r}: expected one such as %d/%m/%Y (day first) or "
        "%Y-%m-%d %H:%M, in the codes of strftime"
    )


def with_time(
    table: pd.DataFrame, where: TableLocation, date_format: str | None = None
) -> pd.Series:
    """Return the column of dates with the times of day from the column ``time`` added.

    Dates are returned unchanged if the column holds no times of day, or only midnight.
    """
    dates = table["ds"]
    clock = table["time"].astype(str).str.strip().str.removesuffix(".0").str.replace(":", "")
    # 930 and 0930 are hours and minutes; 93000 and 093000 have seconds; 0 is midnight.
    clock = clock.where(clock.str.len() > 4, clock.str.zfill(4) + "00").str.zfill(6)
    if not clock.str.fullmatch(r"([01]\d|2[0-3])[0-5]\d[0-5]\d").all() or (clock == "000000").all():
        return dates
    day = to_times(dates, where, date_format)
    if not pd.api.types.is_datetime64_dtype(day):
        return dates
    return day + pd.to_timedelta(
        clock.str[:2] + ":" + clock.str[2:4] + ":" + clock.str[4:], errors="coerce"
    )


def to_times(column: pd.Series, where: TableLocation, date_format: str | None = None) -> pd.Series:
    """Return a column as datetimes, or as whole numbers if they count steps.

    Numbers such as 20240328 are dates if at least half of them are valid dates. A timezone is
    dropped, and the local time of day kept. A period becomes its start.

    ``date_format``: of text and numbers; None: the formats of ``_parse``. Raises DataError for a
    cell that is not a date.
    """
    given = column
    if isinstance(column.dtype, pd.PeriodDtype):
        column = column.dt.to_timestamp()
    if isinstance(column.dtype, pd.DatetimeTZDtype):
        column = column.dt.tz_localize(None)
    if not pd.api.types.is_datetime64_dtype(column):
        text = column.astype(str).str.strip()
        if date_format is not None:
            column = pd.to_datetime(text, format=date_format, errors="coerce")
            if isinstance(column.dtype, pd.DatetimeTZDtype):
                column = column.dt.tz_localize(None)
        elif len(text) and text.str.fullmatch(r"-?\d{1,9}").all():
            column = pd.to_datetime(text, format="%Y%m%d", errors="coerce")
            if not text.str.len().eq(8).all() or column.isna().mean() > _MOST_WRONG:
                return text.astype("int64")
        else:
            try:
                column = _parse(text.str.replace(_ZONE, "", regex=True))
            except ValueError as error:
                raise DataError(f"{where}: {error}") from error
    bad = column.isna() | ~column.between(pd.Timestamp.min, pd.Timestamp.max)
    if bad.any():
        expected = "e.g. 2024-03-28" if date_format is None else f"one written as {date_format}"
        raise DataError(
            f"{where.cell(bad, 'ds')}: {str(given[bad].iloc[0]).strip()!r} is not a date; "
            f"expected {expected}"
        )
    return column.astype("datetime64[ns]")


def _parse(text: pd.Series) -> pd.Series:
    """Read dates in ISO 8601, or else in the common format that fits every cell.

    If several formats fit, those that give sorted dates are preferred, then those that give no
    weekends. If none fits, cells that are not in ISO 8601 become NaT. Raises ValueError if several
    readings remain, or if a year of two digits may be in this century or the last.
    """
    iso = pd.to_datetime(text, format="ISO8601", errors="coerce")
    if not iso.isna().any():
        return iso
    readings = [pd.to_datetime(text, format=form, errors="coerce") for form in _DATE_FORMATS]
    short = readings[_DATE_FORMATS.index(_SHORT_YEAR)]
    if (late := short > pd.Timestamp.now() + pd.Timedelta(days=366)).any():
        raise ValueError(
            f"the year of {text[late].iloc[0]!r} may be in this century or the last; write it in "
            "full"
        )
    readings = [dates for dates in readings if not dates.isna().any()]
    if not readings:
        return iso
    # 01/02/2024 has two readings. Files are mostly sorted, and exchanges closed on weekends.
    for plausible in (lambda d: d.is_monotonic_increasing or d.is_monotonic_decreasing,
                      lambda d: (d.dt.day_of_week < 5).all()):  # fmt: skip
        readings = [dates for dates in readings if plausible(dates)] or readings
    if any((dates != readings[0]).any() for dates in readings):
        raise ValueError(
            f"dates such as {text.iloc[0]!r} may have the month or the day first; choose by "
            "--date-format %d/%m/%Y (in Python date_format=), or write them as 2024-03-28"
        )
    return readings[0]
