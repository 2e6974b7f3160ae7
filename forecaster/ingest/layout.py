"""Any accepted table of series as one layout: ``unique_id, ds`` and number columns.

Accepted: ``ticker, date, open, high, low, close[, adj_close], volume`` and ``unique_id, ds, y[,
more]``, in any letter case, and as Yahoo, Stooq, Nasdaq, Alpha Vantage and Investing.com spell
them in the files that one downloads there.
"""

import numpy as np
import pandas as pd

from forecaster.errors import DataError, listed
from forecaster.ingest.numbers import (
    Decimal,
    cell,
    find_decimal,
    is_number_column,
    to_numbers,
)

_SPELLINGS = {
    "ticker": "unique_id", "symbol": "unique_id", "date": "ds", "datetime": "ds",
    "adjclose": "adj_close", "adjusted_close": "adj_close", "adj._close": "adj_close",
    "close/last": "close", "vol": "volume", "vol.": "volume", "stock_splits": "splits",
    "otwarcie": "open", "najwyzszy": "high", "najnizszy": "low", "zamkniecie": "close",
    "wolumen": "volume",
}  # fmt: skip
# These count only where no other column has the meaning.
_WEAK = {"name": "unique_id", "timestamp": "ds", "data": "ds", "price": "close"}
_PRICES = ("open", "high", "low", "volume", "dividends", "splits")
_SHARES = "change_%"
_UNUSED = ("per", "openint", _SHARES, "capital_gains")
_CONTROL = (
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff"
    "\U000e0000-\U000e007f]"
)
_TARGETS = ("y", "close", "adj_close")
_NEEDED = {"unique_id": "ticker", "ds": "date"}  # and what they are called in files of prices
_MOST_WRONG = 0.5  # of numbers such as 20240328; if more are no dates, they count steps
_SHORT_YEAR = "%d-%b-%y"
# Month first is tried before day first, as in pandas; one impossible month decides.
_DATE_FORMATS = (
    "%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%d-%b-%Y", _SHORT_YEAR,
    "%b %d, %Y", "%m/%d/%Y %H:%M:%S", "%d/%m/%Y %H:%M:%S",
)  # fmt: skip
_ZONE = r"(?<=:\d\d)(\.\d+)?\s*(Z|[+-]\d\d:?\d\d)$"


def tidy(
    table: pd.DataFrame,
    where: str,
    name: str | None = None,
    *,
    decimal: Decimal | None = None,
    plain_points: bool = False,
) -> pd.DataFrame:
    """Bring a table into the layout ``unique_id, ds, channels...``, sorted by both.

    - ``where``: the file, for errors
    - ``name``: the series' id where the table has no column for it
    - ``decimal``: the sign before a fraction in numbers that are text; None: what they show
    - ``plain_points``: a lone point in a number is the decimal one, see :func:`find_decimal`

    Raises DataError with file, line and column when a column is missing, a cell is no date or no
    number, or numbers may be read in two ways.
    """
    columns = listed(table.columns)
    table = _with_canonical_names(table, where)
    if "ds" in table and "time" in table:
        table = table.assign(ds=_with_time(table, where))
    if "unique_id" not in table and name is not None:
        if "ds" in table and table["ds"].duplicated().any():
            raise DataError(
                f"{where}: no column 'ticker', and dates repeat; expected a column with the "
                f"ticker, or one file per ticker. Got {columns}"
            )
        table = table.assign(unique_id=name)
    _check_columns(table, where, columns)
    numbers = _numbers(table, where, decimal, plain_points=plain_points)
    keys = {"unique_id": _ids(table["unique_id"], where), "ds": _dates(table["ds"], where)}
    return _sorted(pd.DataFrame(keys | numbers))


def _numbers(
    table: pd.DataFrame, where: str, decimal: Decimal | None, *, plain_points: bool
) -> dict[str, pd.Series]:
    """All columns of numbers, as floats: those that are needed, and others that hold nothing else.

    One sign is the decimal one in all of them.
    """
    texts, out = {}, {}
    for column in map(str, table.columns):
        if column in ("unique_id", "ds", "time", "name", *_UNUSED):
            continue
        needed = column in (*_TARGETS, *_PRICES)
        yes_or_no = pd.api.types.is_bool_dtype(table[column])
        if pd.api.types.is_numeric_dtype(table[column]) and not (needed and yes_or_no):
            out[column] = table[column].astype(float)
        elif needed or is_number_column(table[column]):
            out[column] = texts[column] = table[column].astype(str) if yes_or_no else table[column]
    # Changes in percent are not used, but show how numbers are written.
    shares = {n: table[n].astype(str).str.rstrip("% ") for n in (_SHARES,) if n in table}
    evidence = None
    if not decimal:
        evidence = find_decimal(texts | shares, where, plain_points=plain_points)
    decimal = decimal or (evidence.decimal if evidence else ".")
    return out | {
        column: to_numbers(cells, where, column, decimal, evidence)
        for column, cells in texts.items()
    }


def _with_canonical_names(table: pd.DataFrame, where: str) -> pd.DataFrame:
    """The same table; raises DataError when two columns would have one name."""
    names = canonical_names([str(column) for column in table.columns])
    table = table.set_axis(list(map(str, table.columns)), axis=1)
    doubled = [column for column, new in names.items() if list(names.values()).count(new) > 1]
    if doubled:
        raise DataError(f"{where}: columns {', '.join(map(repr, doubled))} mean the same; keep one")
    return table.rename(columns=names)


def _check_columns(table: pd.DataFrame, where: str, columns: str) -> None:
    """Raise DataError when a needed column is missing; ``columns``: those of the file."""
    missing = [word for name, word in _NEEDED.items() if name not in table]
    if not any(target in table for target in _TARGETS):
        missing.append("close")
    if missing:
        raise DataError(
            f"{where}: no column {', '.join(map(repr, missing))}; expected ticker, date, open, "
            "high, low, close[, adj_close], volume or unique_id, ds, y; got "
            f"{columns or 'no columns'}"
        )


def _sorted(table: pd.DataFrame) -> pd.DataFrame:
    """Sorted by id and time; files of many million rows mostly are already."""
    ids = table["unique_id"].cat
    if not ids.categories.is_monotonic_increasing:
        table["unique_id"] = ids.reorder_categories(sorted(ids.categories))
    codes, times = table["unique_id"].cat.codes.to_numpy(), table["ds"].to_numpy()
    later = (np.diff(codes) > 0) | ((np.diff(codes) == 0) & (times[1:] >= times[:-1]))
    if not later.all():
        table = table.iloc[np.lexsort((times, codes))]
    return table.reset_index(drop=True)


def canonical(column: str) -> str:
    """A column's name as it is used here, whatever its spelling."""
    name = column.strip().lower().lstrip("\ufeff").strip("<>*'\" ").replace(" ", "_")
    return _SPELLINGS.get(name, name)


def canonical_names(columns: list[str]) -> dict[str, str]:
    """The names used here by those of a table; some spellings count only where no other does."""
    names = {column: canonical(column) for column in columns}
    for column, name in names.items():
        if name in _WEAK and _WEAK[name] not in names.values():
            names[column] = _WEAK[name]
    return names


def is_needed(name: str) -> bool:
    """Whether a column of that canonical name is used although it holds no numbers."""
    return name in ("unique_id", "ds", "time", *_TARGETS, *_PRICES) or name in _WEAK


def _ids(column: pd.Series, where: str) -> pd.Series:
    """As categories: each name is checked once, however many rows it has."""
    kinds = column if isinstance(column.dtype, pd.CategoricalDtype) else column.astype("category")
    names = pd.Series(kinds.cat.categories.astype(str)).str.strip()
    codes = kinds.cat.codes.to_numpy()
    missing = pd.Series((codes < 0) | (names == "").to_numpy()[codes], index=column.index)
    if missing.any():
        raise DataError(f"{cell(where, missing, 'ticker')}: empty; expected a name")
    if (bad := names.str.contains(_CONTROL, regex=True)).any():
        odd = pd.Series(bad.to_numpy()[codes], index=column.index)
        raise DataError(
            f"{cell(where, odd, 'ticker')}: {names[bad].iloc[0]!r} holds a control character"
        )
    merged, unique = pd.factorize(names)
    return pd.Series(
        pd.Categorical.from_codes(merged[codes], categories=pd.Index(unique, dtype=object)),
        index=column.index,
    )


def _with_time(table: pd.DataFrame, where: str) -> pd.Series:
    """The dates, with the times of day from the column ``time``."""
    dates = table["ds"]
    clock = table["time"].astype(str).str.strip().str.removesuffix(".0").str.replace(":", "")
    # 930 and 0930 are hours and minutes, 93000 and 093000 have seconds; 0 is midnight.
    clock = clock.where(clock.str.len() > 4, clock.str.zfill(4) + "00").str.zfill(6)
    if not clock.str.fullmatch(r"([01]\d|2[0-3])[0-5]\d[0-5]\d").all() or (clock == "000000").all():
        return dates
    day = _dates(dates, where)
    if not pd.api.types.is_datetime64_dtype(day):
        return dates
    return day + pd.to_timedelta(
        clock.str[:2] + ":" + clock.str[2:4] + ":" + clock.str[4:], errors="coerce"
    )


def _dates(column: pd.Series, where: str) -> pd.Series:
    """A column of dates, or of whole numbers that are no dates such as 20240328.

    Times of day keep their wall clock; a timezone is dropped.
    """
    given = column
    if isinstance(column.dtype, pd.DatetimeTZDtype):
        return column.dt.tz_localize(None).astype("datetime64[ns]")
    if not pd.api.types.is_datetime64_dtype(column):
        text = column.astype(str).str.strip()
        if len(text) and text.str.fullmatch(r"-?\d{1,9}").all():
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
        raise DataError(
            f"{cell(where, bad, 'date')}: {str(given[bad].iloc[0]).strip()!r} is not a date; "
            "expected e.g. 2024-03-28"
        )
    return column.astype("datetime64[ns]")


def _parse(text: pd.Series) -> pd.Series:
    """Dates in ISO 8601, or else in the first of the common formats that fits every row.

    Where none does, the ISO reading, with NaT for what it cannot read.
    """
    iso = pd.to_datetime(text, format="ISO8601", errors="coerce")
    if not iso.isna().any():
        return iso
    readings = [pd.to_datetime(text, format=form, errors="coerce") for form in _DATE_FORMATS]
    short = readings[_DATE_FORMATS.index(_SHORT_YEAR)]
    if (late := short > pd.Timestamp.now() + pd.Timedelta(days=366)).any():
        raise ValueError(
            f"the year of {text[late].iloc[0]!r} may be of this century or the last; write it in "
            "full"
        )
    readings = [dates for dates in readings if not dates.isna().any()]
    if not readings:
        return iso
    # 01/02/2024 has two readings. Files are in order of time, and exchanges are closed on weekends.
    for plausible in (lambda d: d.is_monotonic_increasing or d.is_monotonic_decreasing,
                      lambda d: (d.dt.dayofweek < 5).all()):  # fmt: skip
        readings = [dates for dates in readings if plausible(dates)] or readings
    if any((dates != readings[0]).any() for dates in readings):
        raise ValueError(
            f"dates such as {text.iloc[0]!r} may have the month or the day first; write them as "
            "2024-03-28"
        )
    return readings[0]
