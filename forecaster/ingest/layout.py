"""Any accepted table of series as one layout: ``unique_id, ds`` and number columns.

Accepted: ``ticker, date, open, high, low, close[, adj_close], volume`` and ``unique_id, ds, y[,
more]``, in any letter case, and as Yahoo, Stooq, Nasdaq, Alpha Vantage and Investing.com spell
them in the files that one downloads there.
"""

import numpy as np
import pandas as pd

from forecaster.errors import DataError

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
_UNUSED = ("per", "openint", "change_%", "capital_gains")
_CONTROL = "[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
_BLANK = ("", "null", "none", "nan", "-", "n/a")
_FACTORS = {"k": 1e3, "m": 1e6, "b": 1e9}
_TARGETS = ("y", "close", "adj_close")
_NEEDED = {"unique_id": "ticker", "ds": "date"}  # and what they are called in files of prices
# Month first is tried before day first, as in pandas; one impossible month decides.
_DATE_FORMATS = (
    "%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%d-%m-%Y", "%d-%b-%Y", "%d-%b-%y", "%b %d, %Y",
    "%m/%d/%Y %H:%M:%S", "%d/%m/%Y %H:%M:%S",
)  # fmt: skip
# A comma that can only be a decimal one: not before just three digits, or behind a point.
_COMMA = r"[+-]?\$?(\d{1,3}(\.\d{3})+,\d+|\d+,(\d{1,2}|\d{4,})[kmbKMB]?)"
_ZONE = r"(?<=:\d\d)(\.\d+)?\s*(Z|[+-]\d\d:?\d\d)$"


def tidy(table: pd.DataFrame, where: str, name: str | None = None) -> pd.DataFrame:
    """Bring a table into the layout ``unique_id, ds, channels...``, sorted by both.

    ``where``: the file, for errors. ``name``: the series' id where the table has no column for it.

    Raises DataError with file, line and column when a column is missing, or a cell is no date or
    no number.
    """
    columns = ", ".join(map(str, table.columns))
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
    numeric = [column for column in table if column in (*_TARGETS, *_PRICES)]
    comma = any(has_decimal_commas(table[name]) for name in numeric if _is_text(table[name]))
    out = {"unique_id": _ids(table["unique_id"], where), "ds": _dates(table["ds"], where)}
    for column in table.columns:
        if column in ("unique_id", "ds", "time", *_UNUSED):
            continue
        if column in numeric:
            out[column] = _numbers(table[column], where, str(column), comma=comma)
        elif pd.api.types.is_numeric_dtype(table[column]):
            out[column] = table[column].astype(float)
    return _sorted(pd.DataFrame(out))


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
        raise DataError(f"{_cell(where, missing, 'ticker')}: empty; expected a name")
    if (bad := names.str.contains(_CONTROL, regex=True)).any():
        odd = pd.Series(bad.to_numpy()[codes], index=column.index)
        raise DataError(
            f"{_cell(where, odd, 'ticker')}: {names[bad].iloc[0]!r} holds a control character"
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
    if not clock.str.fullmatch(r"\d{6}").all() or (clock == "000000").all():
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
            compact = pd.to_datetime(text, format="%Y%m%d", errors="coerce")
            plausible = text.str.len().eq(8).all() and not compact.isna().any()
            return compact.astype("datetime64[ns]") if plausible else text.astype("int64")
        try:
            column = _parse(text.str.replace(_ZONE, "", regex=True))
        except ValueError as error:
            raise DataError(f"{where}: {error}") from error
    bad = column.isna() | ~column.between(pd.Timestamp.min, pd.Timestamp.max)
    if bad.any():
        raise DataError(
            f"{_cell(where, bad, 'date')}: {str(given[bad].iloc[0]).strip()!r} is not a date; "
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


def _is_text(column: pd.Series) -> bool:
    return not pd.api.types.is_numeric_dtype(column)


def has_decimal_commas(column: pd.Series) -> bool:
    """Whether a cell of a column of text can only be a number with a decimal comma."""
    return bool(column.astype(str).str.strip().str.fullmatch(_COMMA).any())


def _numbers(column: pd.Series, where: str, name: str, *, comma: bool) -> pd.Series:
    """A column as numbers; ``comma``: commas are decimal points in this table."""
    if pd.api.types.is_numeric_dtype(column):
        return column.astype(float)
    numbers = pd.to_numeric(column, errors="coerce").astype(float)
    if not comma and not numbers.isna().any():
        return numbers
    text = column.astype(str).str.strip().str.lower()
    blank = column.isna() | text.isin(_BLANK)
    # As people write them: $1,234.50, and volumes such as 2.5M.
    plain = text.str.replace("$", "", regex=False)
    factor = plain.str[-1:].map(_FACTORS)
    plain = plain.where(factor.isna(), plain.str[:-1])
    if comma:
        whole = plain.str.fullmatch(r"[+-]?(\d{1,3}([. ]\d{3})*|\d+)(,\d+)?")
        written = plain.str.replace(r"[. ]", "", regex=True).str.replace(",", ".", regex=False)
    else:
        whole = plain.str.fullmatch(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
        written = plain.str.replace(",", "", regex=False)
    plain = plain.where(~whole, written)
    numbers = pd.to_numeric(plain.where(~blank), errors="coerce").astype(float)
    numbers *= factor.fillna(1.0)
    bad = numbers.isna() & ~blank
    if bad.any():
        raise DataError(f"{_cell(where, bad, name)}: {column[bad].iloc[0]!r} is not a number")
    return numbers


def _cell(where: str, bad: pd.Series, column: str) -> str:
    """Where the first bad cell of a column is, for an error."""
    row = int(bad.index[int(bad.to_numpy().argmax())])
    # Line 1 is the header; a Parquet file has rows, not lines.
    row_or_line = f"row {row + 1}" if where.endswith((".parquet", ".pq")) else f"line {row + 2}"
    return f"{where}, {row_or_line}, column {column!r}"
