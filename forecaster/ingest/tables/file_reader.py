"""Read all series of one file: CSV, Parquet, or a download of Stooq's."""

import csv
import re
import urllib.parse
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from forecaster.errors import DataError, printable
from forecaster.files import check_plain, open_parquet, read_parquet_file, readable
from forecaster.ingest.tables.cells import TableLocation
from forecaster.ingest.tables.csv_file import Table, read_csv
from forecaster.ingest.tables.layout import SEPARATOR, each_series, tidy
from forecaster.ingest.tables.options import INFERRED, Columns
from forecaster.ingest.tables.roles import UNITS, canonical, canonical_names, is_needed
from forecaster.machine import free_memory

if TYPE_CHECKING:
    import pyarrow as pa

_COPIES = 3  # number of copies of a table that are in memory at once
PARQUET = (".parquet", ".pq")
SPREADSHEETS = (".xlsx", ".xlsm", ".xlsb", ".xls")
_PACKED = (".bz2", ".xz", ".zip", ".7z")
ENDINGS = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".txt", *PARQUET)
"""Endings of the files that are read in a folder; .txt only those from Stooq."""
TABLES = (*SPREADSHEETS, *_PACKED, ".gz", ".txt", ".dat", ".json", ".feather", ".orc", ".ods")
"""Further endings of files that may hold tables, which are passed over with a warning."""


def read_parquet(path: Path, columns: Columns = INFERRED) -> pd.DataFrame:
    """Read a file; names become categories, and a nested column that has no role is left out.

    ``columns``: the columns with series, times and target, if their names do not show it

    Raises what :func:`forecaster.files.parquet_groups` raises, and DataError for more data than
    fits into memory.
    """
    named = columns.named
    with open_parquet(path) as file:
        names = [field.name for field in file.schema_arrow if _is_read(field, named)]
        rows = file.metadata.num_rows
    need = 8 * rows * len(names) * _COPIES
    if need > (free := free_memory()):
        raise DataError(
            f"{path}: declares {rows:,} rows of {len(names)} columns, which need about "
            f"{need / 2**30:,.0f} GiB; {free / 2**30:,.1f} GiB are free. Split it, or leave "
            "columns out"
        )
    ids = [name for name in names if canonical(name) in ("unique_id", "name") or name in named]
    table = without_decimals(read_parquet_file(path, names, ids))
    return table.to_pandas(ignore_metadata=True, date_as_object=False, self_destruct=True)


def without_decimals(table: "pa.Table") -> "pa.Table":
    """Return a table with decimals as floats; they would arrive as objects in a frame."""
    import pyarrow as pa

    for position, field in enumerate(table.schema):
        if pa.types.is_decimal(field.type):
            floats = table.column(position).cast(pa.float64())
            table = table.set_column(position, field.name, floats)
    return table


def _is_read(field: "pa.Field", named: list[str]) -> bool:
    """Return whether a column is read: not an index of pandas that only counts rows."""
    import pyarrow.types as types

    kind = field.type
    if is_needed(canonical(field.name)) or field.name in named:
        return True
    if field.name.startswith("__index_level_"):
        return types.is_timestamp(kind) or types.is_date(kind)
    return not (types.is_nested(kind) or types.is_fixed_size_binary(kind))


def read_series(
    path: Path,
    name: str | None = None,
    *,
    columns: Columns = INFERRED,
    keys: Mapping[str, str] | None = None,
) -> dict[str, pd.DataFrame]:
    """Read all series of one file; return their frames by name.

    - ``name``: the name of the series, if the file has no column of names; None: the file's name
    - ``columns``: the columns with series, times and target, if their names do not show it
    - ``keys``: of the folders above, see :func:`keys_of`; those are columns that ``columns`` names,
      or that hold the time if the file has none

    ``attrs["units"]`` of a frame holds the currency and the unit by column, if the file states any.

    Raises DataError if the file cannot be read or used.
    """
    table = read_table(path, columns)
    frame, where = table.frame, printable(path, lines=False)
    for key, value in (keys or {}).items():
        names = canonical_names([str(column) for column in frame])
        is_time = canonical(key) == "ds" and "ds" not in names.values()
        if is_time or (key in columns.named and key not in frame):
            frame = frame.assign(**{key: value})
    stooq = any(str(column).strip().lower() == "<ticker>" for column in frame)
    rows = tidy(
        frame, TableLocation(where, counts_rows=is_parquet(path)),
        name or series_name(path, path.parent),
        decimal=table.decimal, columns=columns,
    )  # fmt: skip
    frames: dict[str, pd.DataFrame] = {}
    for series, part in each_series(rows):
        if stooq:  # Stooq writes aapl.us
            series = series.upper().removesuffix(".US")
            part["unique_id"] = series
        # The file may have two spellings of the series.
        frames[series] = join([frames[series], part]) if series in frames else part
    return frames


def is_parquet(path: Path) -> bool:
    """Return whether a file is named as a Parquet file."""
    return path.name.lower().endswith(PARQUET)


def read_table(path: Path, columns: Columns) -> Table:
    """Read a CSV or Parquet file as it is; arguments and errors as of :func:`read_series`."""
    where, name = printable(path, lines=False), path.name.lower()
    try:
        check_plain(path)
        if name.endswith(SPREADSHEETS):
            raise DataError(
                f"{where}: Excel files are not read; save the sheet as CSV (UTF-8), or write "
                "Parquet, and name that file"
            )
        if name.endswith(_PACKED):
            raise DataError(f"{where}: of packed files only .gz is read; unpack it")
        if is_parquet(path):
            return Table(read_parquet(path, columns))
        return read_csv(path, columns)
    except (OSError, EOFError, zlib.error, csv.Error, ValueError, ArithmeticError, TypeError,
            RuntimeError, IndexError) as error:  # fmt: skip
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(f"{where}: cannot be read: {reason}") from error


def join(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """Join parts of one series, sorted by time, with the currencies and units that any states.

    Raises DataError if some hold dates and others whole numbers, or if currencies or units differ.
    """
    if len(frames) == 1:
        return frames[0]
    if len({frame["ds"].dtype.kind for frame in frames}) > 1:
        raise DataError(
            "its parts disagree: some hold dates, others whole numbers; write all alike"
        )
    units: dict[str, str] = {}
    for key, unit in (pair for each in frames for pair in each.attrs.get("units", {}).items()):
        kind = UNITS.get(canonical(key)) or key  # older series files have the column's name, as ccy
        if units.setdefault(kind, unit) != unit:
            raise DataError(
                f"its parts disagree: the {kind} of some is {units[kind]!r}, of others {unit!r}; "
                "convert the numbers, or give each its own series"
            )
    joined = pd.concat(frames, ignore_index=True)
    joined.attrs["units"] = units
    return joined.sort_values("ds", kind="stable", ignore_index=True)


def keys_of(path: Path, folder: Path) -> dict[str, str]:
    """Return the keys in the names of the folders from ``folder`` to a file: of ``store=A``."""
    pairs = [part.partition("=") for part in path.relative_to(folder).parts[:-1]]
    return {key: urllib.parse.unquote(readable(value)) for key, sign, value in pairs if sign}


def series_name(path: Path, folder: Path) -> str:
    """Return the series that a file below ``folder`` is named after.

    This is NAME if a folder above the file is called ``ticker=NAME``; the values of all keys that
    are no times if there are others (``store=A``); the folder of part files of Spark; otherwise the
    file's name without its ending. A ticker may contain dots.
    """
    keys = keys_of(path, folder)
    values = [value for key, value in keys.items() if canonical(key) == "unique_id"]
    values = values[:1] or [v for k, v in keys.items() if canonical(k) not in _TIME_KEYS]
    if values:
        return SEPARATOR.join(values)
    ending = next(end for end in (*ENDINGS, "") if path.name.lower().endswith(end))
    stem = path.name[: len(path.name) - len(ending)]
    if _SPARK.fullmatch(stem):
        return readable(path.parent.name)
    if stooq := _STOOQ.fullmatch(stem):
        return readable(stooq[1].upper())
    return readable(stem)


_TIME_KEYS = ("ds", "time", "timestamp", "year", "quarter", "month", "week", "day", "hour")
_SPARK = re.compile(r"part-\d{5}\b.*")
_STOOQ = re.compile(r"(.+)(?:\.us|_us_[dwm])", re.IGNORECASE)  # names of Stooq's downloads
