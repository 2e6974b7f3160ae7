"""CSV files from elsewhere: their encoding, separator and header, and all that stands in them."""

import bz2
import codecs
import contextlib
import csv
import gzip
import io
import lzma
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import pandas as pd

from forecaster.errors import DataError, printable
from forecaster.ingest.tables.numbers import Decimal, has_separators, is_number_column
from forecaster.ingest.tables.roles import Columns, canonical, canonical_names
from forecaster.ingest.tickers.universe import SEPARATOR_LINE

_BLANK = ["", "NA", "N/A", "#N/A", "NaN", "nan", "null", "NULL", "None"]
_OPENERS: Any = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}  # and .zip
_AT_ONCE = 2**20  # characters
_HEAD = 20  # lines
_QUOTED_NUMBER = re.compile(r'"[ +$(-]*[0-9]+[.,][0-9]')


class Table(NamedTuple):
    """What a file holds: names as text, numbers as floats where they can be read in one way only.

    ``plain_points``: the point of a number such as 1.234 is the decimal one, unless commas in
    other numbers say otherwise. Commas part the cells, and no quotes protect a number from that.
    """

    frame: pd.DataFrame
    plain_points: bool


class _Header(NamedTuple):
    """The header of a file.

    - ``above``: how many lines are above it
    - ``separator``: what parts the cells
    - ``columns``: their names, as written
    - ``quotes_numbers``: whether numbers stand in quotes, as far as the first lines show
    - ``said``: columns that the caller says hold names or times
    """

    above: int
    separator: str
    columns: list[str]
    quotes_numbers: bool
    said: list[str]

    @property
    def names(self) -> list[str]:
        """The columns that hold names, which stay as written: 0005 is not 5, NA is a ticker."""
        return [
            name
            for name in self.columns
            if canonical(name) in ("unique_id", "name") or name in self.said
        ]


def read_csv(path: Path, decimal: Decimal | None = None, columns: Columns | None = None) -> Table:
    """Read a file; its frame's index keeps count of lines, so that errors can name them.

    - ``decimal``: the sign before a fraction; None: to be decided by what is in the file
    - ``columns``: what the columns are, where their names do not say so

    Raises DataError when it is no table of text, and OSError, ValueError or others of the readers.
    """
    where = printable(path, lines=False)
    encoding = _find_encoding(path)
    _check_text(path, encoding, where)
    header = _read_header(path, encoding, where, columns or Columns())
    options: dict[str, Any] = {
        "encoding": encoding,
        "sep": header.separator,
        "skiprows": header.above,
        "dtype": dict.fromkeys(header.names, str),
        "na_values": {column: _BLANK for column in header.columns if column not in header.names},
        "keep_default_na": False,
        "skip_blank_lines": False,
        "low_memory": False,
    }
    table = pd.read_csv(path, **options)
    if not isinstance(table.index, pd.RangeIndex):
        # All rows have more cells than the header. One empty one at the end may be.
        if not (table.iloc[:, -1].isna().all() and table.index.nlevels == 1):
            raise DataError(
                f"{where}, line {header.above + 2}: more cells than the header has columns; are "
                "there commas within numbers? Quote them, or leave them out"
            )
        options["index_col"] = False
        table = pd.read_csv(path, **options)
    plain_points = header.separator == "," and not header.quotes_numbers
    others = [column for column in table if column not in header.names]
    fractions = [column for column in others if pd.api.types.is_float_dtype(table[column])]
    if fractions and (
        decimal == "," or (decimal is None and _is_uncertain(table, plain_points=plain_points))
    ):
        # 1.234 may be a thousand and more: how it is written decides.
        options["dtype"] = dict.fromkeys([*header.names, *fractions], str)
        table = pd.read_csv(path, **options)
    table.index += header.above
    return Table(table.dropna(how="all", subset=others) if others else table, plain_points)


def _is_uncertain(table: pd.DataFrame, *, plain_points: bool) -> bool:
    """Whether points in numbers may be something else than decimal ones."""
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
    """UTF-16 where a byte order mark says so, as Excel's "Unicode text" has one; else UTF-8."""
    with _opened(path) as file:
        start = file.read(2)
    return "utf-16" if start in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig"


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a file, unpacked."""
    if path.suffix.lower() == ".zip":
        with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as file:
            yield file
        return
    with _OPENERS.get(path.suffix.lower(), open)(path, "rb") as file:
        yield file


def _check_text(path: Path, encoding: str, where: str) -> None:
    """Raise DataError, naming the line, when a file is not text in this encoding."""
    lines = 1
    with _opened(path) as raw, io.TextIOWrapper(raw, encoding, newline="") as file:
        try:
            while text := file.read(_AT_ONCE):
                if "\0" in text:
                    line = lines + text[: text.index("\0")].count("\n")
                    raise DataError(
                        f"{where}: cannot be read: line {line} holds a NUL character; expected a "
                        "table of text. Save it as CSV in UTF-8"
                    )
                lines += text.count("\n")
        except UnicodeError as error:
            reason = str(error).split(": ")[-1]
            name = "UTF-16" if encoding == "utf-16" else "UTF-8"
            raise DataError(
                f"{where}: cannot be read: not text in {name} ({reason}, after line {lines}). Save "
                "it as CSV in UTF-8"
            ) from error


def _read_header(path: Path, encoding: str, where: str, said: Columns) -> _Header:
    """Find the header: the first line that is neither blank, nor a comment, nor Excel's ``sep=;``.

    Raises DataError when the file is empty, or a column is there twice.
    """
    lines = _first_lines(path, encoding, where)
    above = next(
        (n for n, line in enumerate(lines) if line.strip() and not line.startswith("#")), 0
    )
    told = SEPARATOR_LINE.fullmatch(lines[above])
    if told:
        above = next((n for n in range(above + 1, len(lines)) if lines[n].strip()), above)
    separator = told["separator"] if told else max(",;\t", key=lines[above].count)
    if encoding == "utf-16" and separator not in lines[above]:
        raise DataError(f"{where}: cannot be read: no table of text in UTF-16. Save it as CSV")
    columns = next(csv.reader([lines[above]], delimiter=separator), [])
    doubled = {column for column in columns if column.strip() and columns.count(column) > 1}
    if doubled:
        raise DataError(f"{where}: column {sorted(doubled)[0]!r} is there twice; keep one")
    quoted = any(_QUOTED_NUMBER.search(line) for line in lines[above + 1 :])
    names = said.names
    if said.date_format is not None and said.time_col is None:  # 01022024 is not 1022024
        names = [*names, *(name for name, new in canonical_names(columns).items() if new == "ds")]
    return _Header(above, separator, columns, quoted, names)


def _first_lines(path: Path, encoding: str, where: str) -> list[str]:
    with _opened(path) as raw, io.TextIOWrapper(raw, encoding) as file:
        text = file.read(_AT_ONCE)
    if not text.strip():
        raise DataError(f"{where}: cannot be read: No columns to parse: the file is empty")
    return text.split("\n", _HEAD)[:_HEAD]
