"""Read all series of one file: CSV of any separator, Parquet, or a download of Stooq's."""

import csv
import gzip
import io
import re
import urllib.parse
import zlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast

import pandas as pd

from forecaster.errors import DataError, printable
from forecaster.files import (
    SEPARATOR_LINE,
    check_plain,
    most_cells,
    most_unpacked,
    open_parquet,
    read_parquet_file,
    readable,
)
from forecaster.ingest.tables.cells import Decimal, TableLocation
from forecaster.ingest.tables.layout import SEPARATOR, as_one_level, each_series, tidy
from forecaster.ingest.tables.options import INFERRED, Columns
from forecaster.ingest.tables.roles import UNITS, canonical, canonical_names, is_needed
from forecaster.machine import free_memory

if TYPE_CHECKING:
    import pyarrow as pa

_BLANK = ["", "NA", "N/A", "#N/A", "NaN", "nan", "null", "NULL", "None"]
_AT_ONCE = 2**20  # characters that are read at once
_HEAD = 20  # lines that are searched for the header
_MOST_COLUMNS = 10_000
_UNEVEN = re.compile(r"Expected (\d+) fields in line (\d+), saw (\d+)")  # error of pandas
_QUOTED_NUMBER = re.compile(r'"[ +$(-]*[0-9]+[.,][0-9]')
_COPIES = 3  # number of copies of a table that are in memory at once
PARQUET = (".parquet", ".pq")
SPREADSHEETS = (".xlsx", ".xlsm", ".xlsb", ".xls")
_PACKED = (".bz2", ".xz", ".zip", ".7z")
ENDINGS = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".txt", *PARQUET)
"""Endings of the files that are read in a folder; .txt only those from Stooq."""
TABLES = (*SPREADSHEETS, *_PACKED, ".gz", ".txt", ".dat", ".json", ".feather", ".orc", ".ods")
"""Further endings of files that may hold tables, which are passed over with a warning."""
_TIME_KEYS = ("ds", "time", "timestamp", "year", "quarter", "month", "week", "day", "hour")
_SPARK = re.compile(r"part-\d{5}\b.*")
_STOOQ = re.compile(r"(.+)(?:\.us|_us_[dwm])", re.IGNORECASE)  # names of Stooq's downloads


class Table(NamedTuple):
    """The content of a file.

    - ``frame``: names are text; numbers are floats, or text if they have two readings
    - ``decimal``: the decimal sign in numbers that are text, if it is known: the point, since
      commas separate the cells and no number is quoted
    """

    frame: pd.DataFrame
    decimal: Decimal | None = None


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


class _Start(NamedTuple):
    """The first lines of a file.

    - ``above``: number of lines above the header
    - ``separator``: the separator of cells
    - ``columns``, ``cells``: the cells of the header and of the line after it
    - ``quotes_numbers``: whether a number in the first lines is quoted
    """

    above: int
    separator: str
    columns: list[str]
    cells: list[str]
    quotes_numbers: bool


def read_csv(path: Path, columns: Columns = INFERRED) -> Table:
    """Read a file; the index of its frame counts lines, so that errors can name them.

    ``columns``: the columns with series, times and target, if their names do not show it

    Raises DataError if the file is not a table of text, and also any errors of pandas and gzip.
    """
    where = printable(path, lines=False)
    lines, last, line = _check_text(path, where)
    start = _find_header(lines, where)
    cells = next(csv.reader([last], delimiter=start.separator), [])
    if last.strip() and len(cells) < len(start.columns):
        raise DataError(
            f"{where}, line {line}: the file ends within this line, which has {len(cells)} of "
            f"{len(start.columns)} cells and no line ending; it seems to have been cut. Write or "
            "fetch it again"
        )
    if start.columns[:1] == ["Price"] and start.cells[:1] == ["Ticker"]:  # as from yfinance
        two = _parsed(path, start, header=[0, 1], index_col=0).reset_index()
        two.index += start.above + 2
        return Table(as_one_level(two, where), ".")
    names = [name if name.strip() else f"Unnamed: {n}" for n, name in enumerate(start.columns)]
    if doubled := [column for column, count in Counter(names).items() if count > 1]:
        raise DataError(f"{where}: column {min(doubled)!r} appears twice; keep one")
    return _table(path, start, names, columns, where)


def _table(path: Path, start: _Start, names: list[str], columns: Columns, where: str) -> Table:
    """Read the rows below the header; numbers stay text where a sign in them has two readings."""
    as_text = _read_as_written(names, columns)
    others = [name for name in names if name not in as_text]
    extra = [f"\0{n}" for n in range(len(names), len(start.cells))]  # a comma at the end of lines
    types = dict.fromkeys(as_text, str)
    options: dict[str, Any] = {
        "header": 0, "names": [*names, *extra], "dtype": types, "keep_default_na": False,
        "na_values": dict.fromkeys(others, _BLANK), "skip_blank_lines": False, "low_memory": False,
    }  # fmt: skip
    table = _parsed(path, start, **options)
    plain = start.separator == "," and not start.quotes_numbers and columns.decimal != ","
    fractions = [name for name in table if pd.api.types.is_float_dtype(table[name])]
    if fractions and not plain:  # 1.234 may be more than a thousand: the text is needed to decide
        types |= dict.fromkeys(fractions, str)
        table = _parsed(path, start, **options)
    if not table[extra].isin(_BLANK).all(axis=None):
        raise DataError(
            f"{where}, line {start.above + 2}: more cells than the header has columns; are there "
            "commas within numbers? Quote them, or leave them out"
        )
    table = table.drop(columns=extra)
    table.index += start.above
    table = table.dropna(how="all", subset=others) if others else table
    return Table(table, "." if plain else None)


def _read_as_written(names: list[str], stated: Columns) -> list[str]:
    """Return the columns whose cells are read as text: 0005 is not 5, and NA is a ticker."""
    words = {"unique_id", "name", "<time>"}
    found = [name for name in names if {canonical(name), name.strip().lower()} & words]
    if stated.date_format is not None and stated.time_col is None:  # 01022024 is not 1022024
        found += [name for name, new in canonical_names(names).items() if new == "ds"]
    return [*found, *stated.read_as_text]


def _parsed(path: Path, start: _Start, **options: Any) -> pd.DataFrame:
    """Read a file by pandas, from the header on."""
    try:
        with _opened(path) as file:
            return pd.read_csv(
                file, encoding="utf-8-sig", sep=start.separator, skiprows=start.above, **options
            )
    except pd.errors.ParserError as error:
        if not (found := _UNEVEN.search(str(error))):
            raise
        raise DataError(
            f"{printable(path, lines=False)}, line {found[2]}: "
            f"{found[3]} cells, {found[1]} before; are there {start.separator!r} within names or "
            "numbers? Quote them, or leave them out. If this line holds the names of the columns, "
            "delete those above it"
        ) from error


def _opened(path: Path) -> IO[bytes]:
    """Open a file for reading its unpacked bytes."""
    return cast(IO[bytes], gzip.open(path)) if path.suffix.lower() == ".gz" else path.open("rb")


def _check_text(path: Path, where: str) -> tuple[list[str], str, int]:
    """Return the first lines of a file, its last one, empty after a line ending, and their number.

    Raises DataError with the line if the file is not text in UTF-8, and for a packed file whose
    content is far larger than its size suggests.
    """
    size, head, last, line, held = path.stat().st_size, "", "", 1, Counter[str]()
    most = {"characters": most_unpacked(size), "cells": most_cells(size)}
    with _opened(path) as raw, io.TextIOWrapper(raw, "utf-8-sig", newline="") as file:
        try:
            while text := file.read(_AT_ONCE):
                if "\0" in text:
                    raise _no_text(path, where)
                head = head or text
                line += text.count("\n")
                last = (last[-_AT_ONCE:] + text).replace("\r", "\n").rpartition("\n")[2]
                if not isinstance(raw, gzip.GzipFile):
                    continue
                held["characters"] += len(text)
                held["cells"] += sum(text.count(sign) for sign in ",;\t\n\r")
                for what in most:
                    if held[what] > most[what]:
                        raise DataError(
                            f"{where}: a packed file of {size:,} bytes that holds more than "
                            f"{most[what]:,} {what}; unpack it, and check that its content is what "
                            "you expect"
                        )
        except UnicodeError as error:
            raise _no_text(path, where) from error
    return re.split("\r\n?|\n", head, maxsplit=_HEAD)[:_HEAD], last, line


def _no_text(path: Path, where: str) -> DataError:
    """Return the error of a file that is not in UTF-8, with the command that turns it into it."""
    with _opened(path) as file:
        content = file.read(max(size := path.stat().st_size, most_unpacked(size)))
    try:
        content.decode("utf-8")
        at = content.index(b"\0")
    except UnicodeDecodeError as error:
        at = error.start
    line = content[:at].count(b"\n") + 1
    is_wide = content[:2] in (b"\xff\xfe", b"\xfe\xff") or 4 * content.count(0) > len(content)
    found = f"line {line} holds the byte 0x{content[at]:02x}"
    said = f"{where}: cannot be read: {found}; expected text in UTF-8"
    if not is_wide and (content[at] == 0 or not content.decode("utf-8", "ignore").isascii()):
        return DataError(f"{said}, which the rest of the file is: correct this byte")
    encoding = "UTF-16" if is_wide else "WINDOWS-1252"
    return DataError(
        f"{said}, and this seems to be {encoding}. In a spreadsheet save it as CSV UTF-8, or run "
        f"`iconv -f {encoding} -t UTF-8 FILE > NEW.csv`"
    )


def _find_header(lines: list[str], where: str) -> _Start:
    """Find the header: the first line that is not blank, not a comment, and not Excel's ``sep=;``.

    Raises DataError if the file is empty, or has too many columns.
    """
    if not "".join(lines).strip():
        raise DataError(f"{where}: cannot be read: No columns to parse: the file is empty")
    above = next(
        (n for n, line in enumerate(lines) if line.strip() and not line.startswith("#")), 0
    )
    named = SEPARATOR_LINE.fullmatch(lines[above])
    if named:
        above = next((n for n in range(above + 1, len(lines)) if lines[n].strip()), above)
    separator = named["separator"] if named else max(",;\t", key=lines[above].count)
    if (widest := 1 + max(line.count(separator) for line in lines)) > _MOST_COLUMNS:
        raise DataError(f"{where}: {widest:,} columns; expected {_MOST_COLUMNS:,} at most")
    columns, first = (
        next(csv.reader(lines[n : n + 1], delimiter=separator), []) for n in (above, above + 1)
    )
    quoted = any(_QUOTED_NUMBER.search(line) for line in lines[above + 1 :])
    return _Start(above, separator, columns, first, quotes_numbers=quoted)
