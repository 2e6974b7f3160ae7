"""Read CSV files of any encoding, separator and header."""

import bz2
import codecs
import contextlib
import csv
import gzip
import io
import lzma
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import pandas as pd

from forecaster.errors import DataError, listed, printable
from forecaster.files import most_cells, most_unpacked
from forecaster.ingest.tables.numbers import has_separators, is_number_column
from forecaster.ingest.tables.roles import Columns, canonical, canonical_names
from forecaster.ingest.tables.two_levels import as_one_level
from forecaster.ingest.tickers.universe import SEPARATOR_LINE

_BLANK = ["", "NA", "N/A", "#N/A", "NaN", "nan", "null", "NULL", "None"]
_OPENERS: Any = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}  # .zip has its own reader
_AT_ONCE = 2**20  # characters that are read at once
_HEAD = 20  # lines that are searched for the header
_MOST_COLUMNS = 10_000
_UNEVEN = re.compile(r"Expected (\d+) fields in line (\d+), saw (\d+)")  # error of pandas
_QUOTED_NUMBER = re.compile(r'"[ +$(-]*[0-9]+[.,][0-9]')


class Table(NamedTuple):
    """The content of a file.

    - ``frame``: names are text; numbers are floats, or text if they have two readings
    - ``plain_points``: whether the point in 1.234 is the decimal sign if no other number decides,
      since commas separate the cells and no number is quoted
    """

    frame: pd.DataFrame
    plain_points: bool


class _Header(NamedTuple):
    """The header of a file.

    - ``above``: number of lines above it
    - ``separator``: the separator of cells
    - ``columns``: the names of the columns, as written
    - ``quotes_numbers``: whether a number in the first lines is quoted
    - ``stated``: columns with names or times, as stated by the caller
    - ``levels``: the number of lines with names: 2 for prices and tickers, as from yfinance
    """

    above: int
    separator: str
    columns: list[str]
    quotes_numbers: bool
    stated: list[str]
    levels: int = 1

    @property
    def names(self) -> list[str]:
        """The columns whose cells are read as written: 0005 is not 5, and NA is a ticker."""
        return [
            name
            for name in self.columns
            if canonical(name) in ("unique_id", "name") or name in self.stated
        ]


class _LastLine(NamedTuple):
    """The number and the text of a file's last line; empty text after a line ending."""

    number: int
    text: str


def read_csv(path: Path, columns: Columns | None = None) -> Table:
    """Read a file; the index of its frame counts lines, so that errors can name them.

    ``columns``: the columns with series, times and target, if their names do not show it

    Raises DataError if the file is not a table of text, and also any errors of pandas and of the
    decompression libraries.
    """
    where, columns = printable(path, lines=False), columns or Columns()
    encoding = _find_encoding(path)
    last = _check_text(path, encoding, where)
    header = _read_header(path, encoding, where, columns)
    _check_end(last, header, where)
    if header.levels == 2:
        with _opened(path) as file:
            two = pd.read_csv(
                file, header=[0, 1], index_col=0, encoding=encoding, sep=header.separator,
                skiprows=header.above,
            )  # fmt: skip
        two = two.reset_index()
        two.index += header.above + 2
        return Table(as_one_level(two, where), plain_points=True)
    names = set(header.names)
    options: dict[str, Any] = {
        "encoding": encoding,
        "sep": header.separator,
        "skiprows": header.above,
        "dtype": dict.fromkeys(names, str),
        "na_values": {column: _BLANK for column in header.columns if column not in names},
        "keep_default_na": False,
        "skip_blank_lines": False,
        "low_memory": False,
    }
    table = _parsed(path, options)
    if not isinstance(table.index, pd.RangeIndex):
        # All rows have more cells than the header; a single empty cell at the end is accepted.
        last = table.iloc[:, -1]
        if not ((last.isna() | last.eq("")).all() and table.index.nlevels == 1):
            raise DataError(
                f"{where}, line {header.above + 2}: more cells than the header has columns; are "
                "there commas within numbers? Quote them, or leave them out"
            )
        options |= {"index_col": False, "usecols": range(len(header.columns))}
        table = _parsed(path, options)
    plain_points = header.separator == "," and not header.quotes_numbers
    others = [column for column in table if column not in names]
    fractions = [column for column in others if pd.api.types.is_float_dtype(table[column])]
    if fractions and (
        columns.decimal == ","
        or (columns.decimal is None and _is_uncertain(table, plain_points=plain_points))
    ):
        # 1.234 may be more than a thousand, so the text is needed to decide.
        options["dtype"] = dict.fromkeys([*names, *fractions], str)
        table = _parsed(path, options)
    table.index += header.above
    return Table(table.dropna(how="all", subset=others) if others else table, plain_points)


def _parsed(path: Path, options: dict[str, Any]) -> pd.DataFrame:
    """Parse a file, or the one file of an archive: pandas would count the others, too."""
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


def _is_uncertain(table: pd.DataFrame, *, plain_points: bool) -> bool:
    """Return whether points in numbers may separate thousands."""
    names = canonical_names([str(column) for column in table.columns])
    texts = (
        table[column]
        for column in table
        if not pd.api.types.is_numeric_dtype(table[column])
        and names[str(column)] not in ("unique_id", "ds", "time", "name")
    )
    return not plain_points or any(
        has_separators(column) and is_number_column(column) for column in texts
    )


def _find_encoding(path: Path) -> str:
    """Return UTF-16 if the file starts with its byte order mark, otherwise UTF-8."""
    with _opened(path) as file:
        start = file.read(2)
    return "utf-16" if start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig"


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading its decompressed bytes."""
    if path.suffix.lower() == ".zip":
        with zipfile.ZipFile(path) as archive, archive.open(_only_file(archive, path)) as file:
            yield file
        return
    with _OPENERS.get(path.suffix.lower(), open)(path, "rb") as file:
        yield file


def _only_file(archive: zipfile.ZipFile, path: Path) -> str:
    """Return the name of the file in an archive. Raises DataError if it holds another number."""
    # macOS adds hidden files: one beside each, and one for each folder.
    names = [
        name
        for name in archive.namelist()
        if not name.startswith("__MACOSX/")
        and not name.rpartition("/")[2].startswith(("._", ".DS_Store"))
        and not name.endswith("/")
    ]
    if len(names) == 1:
        return names[0]
    got = listed(names) or "none"
    raise DataError(
        f"{printable(path, lines=False)}: cannot be read: expected an archive of one file; got "
        f"{got}. Unpack it: a folder of files is read, too"
    )


def _check_text(path: Path, encoding: str, where: str) -> _LastLine:
    """Return the last line; raise DataError with the line if it is not text in this encoding.

    Also raises it for a packed file whose content is far larger than its size suggests.
    """
    last = ""
    lines, size = 1, path.stat().st_size if path.suffix.lower() in (*_OPENERS, ".zip") else None
    unpacked = cells = 0
    with _opened(path) as raw, io.TextIOWrapper(raw, encoding, newline="") as file:
        try:
            while text := file.read(_AT_ONCE):
                if "\0" in text:
                    line = lines + text[: text.index("\0")].count("\n")
                    raise DataError(
                        f"{where}: cannot be read: line {line} holds a NUL character; expected a "
                        "text file. Save it as CSV in UTF-8"
                    )
                lines += text.count("\n")
                last = (last[-_AT_ONCE:] + text).replace("\r", "\n").rpartition("\n")[2]
                if size is not None:
                    unpacked += len(text)
                    cells += sum(text.count(sign) for sign in ",;\t\n\r")
                    _check_unpacked(where, size, unpacked, cells)
        except UnicodeError as error:
            reason = str(error).split(": ")[-1]
            name = "UTF-16" if encoding == "utf-16" else "UTF-8"
            raise DataError(
                f"{where}: cannot be read: not text in {name} ({reason}, after line {lines}). Save "
                "it as CSV in UTF-8"
            ) from error
    return _LastLine(lines, last)


def _check_end(last: _LastLine, header: _Header, where: str) -> None:
    """Raise DataError if a file ends in the middle of a line, as a truncated file does."""
    cells = next(csv.reader([last.text], delimiter=header.separator), [])
    if last.text.strip() and len(cells) < len(header.columns):
        raise DataError(
            f"{where}, line {last.number}: the file ends within this line, which has {len(cells)} "
            f"of {len(header.columns)} cells and no line ending; it seems to have been cut. Write "
            "or fetch it again"
        )


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


def _read_header(path: Path, encoding: str, where: str, stated: Columns) -> _Header:
    """Find the header: the first line that is not blank, not a comment, and not Excel's ``sep=;``.

    Raises DataError if the file is empty or two columns have the same name.
    """
    lines = _first_lines(path, encoding, where)
    above = next(
        (n for n, line in enumerate(lines) if line.strip() and not line.startswith("#")), 0
    )
    named = SEPARATOR_LINE.fullmatch(lines[above])
    if named:
        above = next((n for n in range(above + 1, len(lines)) if lines[n].strip()), above)
    separator = named["separator"] if named else max(",;\t", key=lines[above].count)
    if encoding == "utf-16" and separator not in lines[above]:
        raise DataError(f"{where}: cannot be read: not a table of text in UTF-16. Save it as CSV")
    if (widest := 1 + max(line.count(separator) for line in lines)) > _MOST_COLUMNS:
        raise DataError(f"{where}: {widest:,} columns; expected {_MOST_COLUMNS:,} at most")
    columns = next(csv.reader([lines[above]], delimiter=separator), [])
    if columns[:1] == ["Price"] and "".join(lines[above + 1 : above + 2]).startswith("Ticker"):
        return _Header(above, separator, columns, quotes_numbers=False, stated=[], levels=2)
    if not all(column.strip() for column in columns[1:]):
        _refuse_title(list(csv.reader(lines[above:], delimiter=separator)), above, where)
    counts = Counter(columns)
    doubled = [column for column, count in counts.items() if column.strip() and count > 1]
    if doubled:
        raise DataError(f"{where}: column {min(doubled)!r} appears twice; keep one")
    quoted = any(_QUOTED_NUMBER.search(line) for line in lines[above + 1 :])
    names = stated.read_as_text
    if stated.date_format is not None and stated.time_col is None:  # 01022024 is not 1022024
        names = [*names, *(name for name, new in canonical_names(columns).items() if new == "ds")]
    return _Header(above, separator, columns, quoted, names)


def _refuse_title(rows: list[list[str]], above: int, where: str) -> None:
    """Raise DataError if a later line seems to be the header, as names of columns are missing."""
    full = [len(row) == len(rows[0]) and all(map(_is_name, row[1:])) for row in rows]
    if any(full):
        line = above + full.index(True) + 1
        raise DataError(
            f"{where}, line {above + 1}: columns have no name; the header seems to be in line "
            f"{line}. Delete the lines above it"
        )


def _is_name(cell: str) -> bool:
    return bool(cell.strip()) and not any(sign.isdigit() for sign in cell)


def _first_lines(path: Path, encoding: str, where: str) -> list[str]:
    with _opened(path) as raw, io.TextIOWrapper(raw, encoding) as file:
        text = file.read(_AT_ONCE)
    if not text.strip():
        raise DataError(f"{where}: cannot be read: No columns to parse: the file is empty")
    return text.split("\n", _HEAD)[:_HEAD]
