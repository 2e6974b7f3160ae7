"""Read CSV files in UTF-8, of any separator and header."""

import csv
import gzip
import io
import re
from collections import Counter
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import pandas as pd

from forecaster.errors import DataError, printable
from forecaster.files import SEPARATOR_LINE, most_cells, most_unpacked
from forecaster.ingest.tables.decimals import Decimal
from forecaster.ingest.tables.roles import Columns, canonical, canonical_names
from forecaster.ingest.tables.two_levels import as_one_level

_BLANK = ["", "NA", "N/A", "#N/A", "NaN", "nan", "null", "NULL", "None"]
_AT_ONCE = 2**20  # characters that are read at once
_HEAD = 20  # lines that are searched for the header
_MOST_COLUMNS = 10_000
_UNEVEN = re.compile(r"Expected (\d+) fields in line (\d+), saw (\d+)")  # error of pandas
_QUOTED_NUMBER = re.compile(r'"[ +$(-]*[0-9]+[.,][0-9]')


class Table(NamedTuple):
    """The content of a file.

    - ``frame``: names are text; numbers are floats, or text if they have two readings
    - ``decimal``: the decimal sign in numbers that are text, if it is known: the point, since
      commas separate the cells and no number is quoted
    """

    frame: pd.DataFrame
    decimal: Decimal | None = None


class _Header(NamedTuple):
    """The header of a file.

    - ``above``: number of lines above it
    - ``separator``: the separator of cells
    - ``columns``: the names of the columns
    - ``names``: the columns whose cells are read as written: 0005 is not 5, and NA is a ticker
    - ``extra``: columns beyond those, which must be empty
    - ``quotes_numbers``: whether a number in the first lines is quoted
    - ``levels``: the number of lines with names: 2 for prices and tickers, as from yfinance
    """

    above: int
    separator: str
    columns: list[str]
    names: list[str]
    extra: list[str]
    quotes_numbers: bool
    levels: int = 1


def read_csv(path: Path, columns: Columns | None = None) -> Table:
    """Read a file; the index of its frame counts lines, so that errors can name them.

    ``columns``: the columns with series, times and target, if their names do not show it

    Raises DataError if the file is not a table of text, and also any errors of pandas and gzip.
    """
    where, columns = printable(path, lines=False), columns or Columns()
    lines, last, line = _check_text(path, where)
    header = _find_header(lines, where, columns)
    cells = next(csv.reader([last], delimiter=header.separator), [])
    if last.strip() and len(cells) < len(header.columns):
        raise DataError(
            f"{where}, line {line}: the file ends within this line, which has {len(cells)} of "
            f"{len(header.columns)} cells and no line ending; it seems to have been cut. Write or "
            "fetch it again"
        )
    options: dict[str, Any] = {
        "encoding": "utf-8-sig", "sep": header.separator, "skiprows": header.above,
    }  # fmt: skip
    if header.levels == 2:
        with _opened(path) as file:
            two = pd.read_csv(file, header=[0, 1], index_col=0, **options).reset_index()
        two.index += header.above + 2
        return Table(as_one_level(two, where), ".")
    options |= {
        "header": 0,
        "names": [*header.columns, *header.extra],
        "dtype": dict.fromkeys(header.names, str),
        "na_values": {name: _BLANK for name in header.columns if name not in header.names},
        "keep_default_na": False,
        "skip_blank_lines": False,
        "low_memory": False,
    }
    table = _parsed(path, options)
    plain = header.separator == "," and not header.quotes_numbers and columns.decimal != ","
    fractions = [name for name in table if pd.api.types.is_float_dtype(table[name])]
    if fractions and not plain:
        # 1.234 may be more than a thousand, so the text is needed to decide.
        options["dtype"] |= dict.fromkeys(fractions, str)
        table = _parsed(path, options)
    for name in header.extra:
        if not table.pop(name).isin(_BLANK).all():
            raise DataError(
                f"{where}, line {header.above + 2}: more cells than the header has columns; are "
                "there commas within numbers? Quote them, or leave them out"
            )
    table.index += header.above
    others = [name for name in table if name not in header.names]
    table = table.dropna(how="all", subset=others) if others else table
    return Table(table, "." if plain else None)


def _parsed(path: Path, options: dict[str, Any]) -> pd.DataFrame:
    try:
        with _opened(path) as file:
            return pd.read_csv(file, **options)
    except pd.errors.ParserError as error:
        if not (found := _UNEVEN.search(str(error))):
            raise
        raise DataError(
            f"{printable(path, lines=False)}, line {found[2]}: "
            f"{found[3]} cells, {found[1]} before; are there {options['sep']!r} within names or "
            "numbers? Quote them, or leave them out"
        ) from error


def _opened(path: Path) -> IO[bytes]:
    """Open a file for reading its unpacked bytes."""
    return cast(IO[bytes], gzip.open(path)) if _is_packed(path) else path.open("rb")


def _is_packed(path: Path) -> bool:
    return path.suffix.lower() == ".gz"


def _check_text(path: Path, where: str) -> tuple[list[str], str, int]:
    """Return the first lines of a file, its last one, empty after a line ending, and their number.

    Raises DataError with the line if the file is not text in UTF-8, and for a packed file whose
    content is far larger than its size suggests.
    """
    is_packed = _is_packed(path)
    head, last, line, unpacked, cells = "", "", 1, 0, 0
    with _opened(path) as raw, io.TextIOWrapper(raw, "utf-8-sig", newline="") as file:
        try:
            while text := file.read(_AT_ONCE):
                if "\0" in text:
                    line += text[: text.index("\0")].count("\n")
                    raise DataError(
                        f"{where}: cannot be read: line {line} holds a NUL character; expected a "
                        "text file. Save it as CSV in UTF-8"
                    )
                head = head or text
                line += text.count("\n")
                last = (last[-_AT_ONCE:] + text).replace("\r", "\n").rpartition("\n")[2]
                if is_packed:
                    unpacked += len(text)
                    cells += sum(text.count(sign) for sign in ",;\t\n\r")
                    _check_unpacked(where, path.stat().st_size, unpacked, cells)
        except UnicodeError as error:
            raise DataError(
                f"{where}: cannot be read: not text in UTF-8 ({str(error).split(': ')[-1]}, after "
                f"line {line}). Save it as CSV in UTF-8"
            ) from error
    return re.split("\r\n?|\n", head, maxsplit=_HEAD)[:_HEAD], last, line


def _check_unpacked(where: str, size: int, unpacked: int, cells: int) -> None:
    """Raise DataError if a packed file of ``size`` bytes holds too much."""
    for count, what, most in (
        (unpacked, "characters", most_unpacked(size)),
        (cells, "cells", most_cells(size)),
    ):
        if count > most:
            raise DataError(
                f"{where}: a packed file of {size:,} bytes that holds more than {most:,} {what}; "
                "unpack it, and check that its content is what you expect"
            )


def _find_header(lines: list[str], where: str, stated: Columns) -> _Header:
    """Find the header: the first line that is not blank, not a comment, and not Excel's ``sep=;``.

    Raises DataError if the file is empty, a column has no name, or two have the same.
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
    if columns[:1] == ["Price"] and first[:1] == ["Ticker"]:
        return _Header(above, separator, columns, [], [], quotes_numbers=False, levels=2)
    columns = [name if name.strip() else f"Unnamed: {n}" for n, name in enumerate(columns)]
    if doubled := [column for column, count in Counter(columns).items() if count > 1]:
        raise DataError(f"{where}: column {min(doubled)!r} appears twice; keep one")
    as_text = ("unique_id", "name", "<time>")
    names = [name for name in columns if {canonical(name), name.strip().lower()} & {*as_text}]
    names += stated.read_as_text
    if stated.date_format is not None and stated.time_col is None:  # 01022024 is not 1022024
        names += [name for name, new in canonical_names(columns).items() if new == "ds"]
    quoted = any(_QUOTED_NUMBER.search(line) for line in lines[above + 1 :])
    extra = [f"\0{n}" for n in range(len(columns), len(first))]  # as of a comma at the end of lines
    return _Header(above, separator, columns, names, extra, quotes_numbers=quoted)
