"""Any accepted table of series as one layout: ``unique_id, ds`` and number columns.

Accepted: ``ticker, date, open, high, low, close[, adj_close], volume`` and ``unique_id, ds, y[,
more]``, in any letter case, with spaces for underscores.
"""

import pandas as pd

from forecaster.errors import DataError

_SPELLINGS = {
    "ticker": "unique_id", "symbol": "unique_id", "date": "ds", "datetime": "ds",
    "adjclose": "adj_close", "adj_close": "adj_close",
}  # fmt: skip
_TARGETS = ("y", "close", "adj_close")
# Month first before day first, as pandas reads them; one impossible month decides.
_WAYS = ("%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%d-%m-%Y", "%d-%b-%Y", "%d-%b-%y", "%b %d, %Y",
         "%m/%d/%Y %H:%M:%S", "%d/%m/%Y %H:%M:%S")  # fmt: skip
_ZONE = r"(?<=:\d\d)(\.\d+)?\s*(Z|[+-]\d\d:?\d\d)$"


def tidy(table: pd.DataFrame, where: str, name: str | None = None) -> pd.DataFrame:
    """Bring a table into the layout ``unique_id, ds, channels...``, sorted by both.

    ``where``: the file, for errors. ``name``: the series' id where the table has no column for it.
    Raises DataError with file, line and column when a column is missing, or a cell is no date or
    no number.
    """
    names = {column: canonical(str(column)) for column in table.columns}
    doubled = [column for column, new in names.items() if list(names.values()).count(new) > 1]
    if doubled:
        raise DataError(f"{where}: columns {', '.join(map(repr, doubled))} mean the same; keep one")
    table = table.rename(columns=names)
    if "unique_id" not in table and name is not None:
        if "ds" in table and table["ds"].duplicated().any():
            raise DataError(
                f"{where}: no column 'ticker', and dates repeat; expected a column with the "
                f"ticker, or one file per ticker. Got {', '.join(map(str, names))}"
            )
        table = table.assign(unique_id=name)
    target = next((column for column in _TARGETS if column in table), None)
    missing = [column for column in ("unique_id", "ds") if column not in table]
    if missing or target is None:
        wanted = [{"unique_id": "ticker", "ds": "date"}[c] for c in missing]
        wanted += [] if target else ["close"]
        raise DataError(
            f"{where}: no column {', '.join(map(repr, wanted))}; expected ticker, date, open, "
            "high, low, close[, adj_close], volume or unique_id, ds, y; got "
            f"{', '.join(map(str, names)) or 'no columns'}"
        )
    out = pd.DataFrame({"unique_id": _ids(table["unique_id"], where)})
    out["ds"] = _dates(table["ds"], where)
    for column in table.columns:
        if column in ("unique_id", "ds"):
            continue
        if column in (*_TARGETS, "open", "high", "low", "volume"):
            out[column] = _numbers(table[column], where, str(column))
        elif pd.api.types.is_numeric_dtype(table[column]):
            out[column] = table[column].astype(float)
    return out.sort_values(["unique_id", "ds"], kind="stable", ignore_index=True)


def canonical(column: str) -> str:
    """A column's name as it is used here, whatever its spelling."""
    name = column.strip().lower().replace(" ", "_").lstrip("\ufeff")
    return _SPELLINGS.get(name, name)


def _ids(column: pd.Series, where: str) -> pd.Series:
    missing = column.isna() | (column.astype(str).str.strip() == "")
    if missing.any():
        raise DataError(f"{_cell(where, missing, 'ticker')}: empty; expected a name")
    return column.astype(str).str.strip()


def _dates(column: pd.Series, where: str) -> pd.Series:
    """Whole numbers stay as they are, unless all are dates such as 20240328; times of day keep
    their wall clock, a timezone is dropped."""
    text = column.astype(str).str.strip()
    if len(text) and text.str.fullmatch(r"-?\d{1,9}").all():
        compact = pd.to_datetime(text, format="%Y%m%d", errors="coerce")
        plausible = text.str.len().eq(8).all() and not compact.isna().any()
        return compact.astype("datetime64[ns]") if plausible else text.astype("int64")
    if isinstance(column.dtype, pd.DatetimeTZDtype):
        return column.dt.tz_localize(None).astype("datetime64[ns]")
    if not pd.api.types.is_datetime64_dtype(column):
        column = _parse(text.str.replace(_ZONE, "", regex=True))
    low, high = pd.Timestamp.min, pd.Timestamp.max
    bad = column.isna() | ~column.between(low, high)
    if bad.any():
        raise DataError(
            f"{_cell(where, bad, 'date')}: {text[bad].iloc[0]!r} is not a date; "
            "expected e.g. 2024-03-28"
        )
    return column.astype("datetime64[ns]")


def _parse(text: pd.Series) -> pd.Series:
    """Dates in ISO 8601, or else in the first of the common ways that reads every row; where
    none does, the ISO reading, NaT in what it cannot read."""
    iso = pd.to_datetime(text, format="ISO8601", errors="coerce")
    if not iso.isna().any():
        return iso
    for way in _WAYS:
        dates = pd.to_datetime(text, format=way, errors="coerce")
        if not dates.isna().any():
            return dates
    return iso


def _numbers(column: pd.Series, where: str, name: str) -> pd.Series:
    numbers = pd.to_numeric(column, errors="coerce").astype(float)
    blank = column.isna() | column.astype(str).str.strip().isin(["", "null", "None", "NaN", "nan"])
    bad = numbers.isna() & ~blank
    if bad.any():
        raise DataError(f"{_cell(where, bad, name)}: {column[bad].iloc[0]!r} is not a number")
    return numbers


def _cell(where: str, bad: pd.Series, column: str) -> str:
    row = int(bad.index[int(bad.to_numpy().argmax())])
    # Line 1 is the header; a Parquet file has rows, not lines.
    place = f"row {row + 1}" if where.endswith((".parquet", ".pq")) else f"line {row + 2}"
    return f"{where}, {place}, column {column!r}"
