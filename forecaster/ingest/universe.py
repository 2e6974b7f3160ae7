"""Read universe files: the tickers to follow, or which belonged at which time.

A CSV file with the columns ``ticker,start,end``, beside others, has a row for each span of time in
which a ticker belonged, both ends included; an empty end means that the ticker still belongs.
Commas, semicolons or tabs separate the cells.

Tickers beside a column whose name is that of dates, such as ``start`` alone or ``exit_date``, are
refused, since they would otherwise be taken for a list of today's members.
"""

import contextlib
import csv
import dataclasses
import importlib.resources
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from forecaster.errors import UsageError
from forecaster.files import SEPARATOR_LINE, read_plain

_SYMBOL = re.compile(r"^\^?[A-Z0-9][A-Z0-9.\-=_]{0,23}$")
_HEADERS = ("symbol", "ticker", "tickers", "symbols", "ticker symbol", "unique_id")
_ENDING = re.compile(r"\.(te?xt?|csv|tsv|lst|list|dat|xlsx?|json|parquet)$", re.IGNORECASE)
_FOLDER = re.compile(r"[/\\]")
_DATE = re.compile(r"(19|20)\d{6}|\d{1,4}[-./]\d{1,2}[-./]\d{1,4}")
_DATES = {"date", "year", "quarter", "month", "week", "added", "listed", "to", "in", "out"}
_BOUNDS = {
    "start", "begin", "end", "from", "entry", "exit", "first", "since", "until", "thru", "delisted",
    "removed",
}  # fmt: skip
_EXPECTED = "expected ticker,start,end, a row for each span of time in which a ticker belonged"
_EVER = pd.Timestamp("2262-01-01")


def read_universe(path: str | Path) -> list[str]:
    """Read tickers from a text file, one or more a line, or from a CSV with a ``Symbol`` column.

    The file is in UTF-8; commas, semicolons or tabs separate its cells; ``#`` starts a comment.
    Letter case does not matter. ``BRK.B`` becomes ``BRK-B``, as Yahoo writes share classes, while
    ``SHELL.AS`` keeps its exchange. The order is kept, and repeated tickers are dropped. If
    ``path`` is a plain name such as ``sp500.txt`` and there is no such file, the file is searched
    for among the universes in the package.

    Raises UsageError with file and line if the file is missing, not text, empty, or holds something
    that cannot be a ticker.
    """
    path = find_universe(path)
    header, *rows = read_rows(path) or [Row("", "", [])]
    if (column := ticker_column(header.cells)) is None:
        words = [(row.where, word) for row in (header, *rows) for word in _words(row)]
    else:
        words = [(row.where, word.split("#", 1)[0]) for row in rows
                 for word in row.cells[column:][:1] if word]  # fmt: skip
    tickers = dict.fromkeys(normalise(word, where) for where, word in words)
    if not tickers:
        raise UsageError(f"{path}: no ticker in it; expected one a line, e.g. AAPL")
    return list(tickers)


class Row(NamedTuple):
    """A line of a file: its file and number, for error messages, its text and its cells."""

    where: str
    text: str
    cells: list[str]


def read_rows(path: Path) -> list[Row]:
    """Read a list or table of tickers; return its lines, without blanks and comments, as rows.

    A first line ``sep=;``, as Excel writes it, names the separator; otherwise the separator is the
    comma, semicolon or tab that is most frequent in the first line. The first row is the header of
    a table; a later one has a cell for each of its columns, and further ones if it is longer.

    Raises UsageError if the file is missing or not text, and for a quote that is not
    closed on its line, since its cell would swallow further lines.
    """
    lines = [(f"{path}, line {n}", text) for n, text in enumerate(_read_text(path).splitlines(), 1)]
    lines = [(at, text) for at, text in lines if text.strip() and not text.lstrip().startswith("#")]
    if lines and (named := SEPARATOR_LINE.fullmatch(lines[0][1])):
        separator, lines = named["separator"], lines[1:]
    else:
        separator = max(",;\t", key=lines[0][1].count) if lines else ","
    rows: list[Row] = []
    for where, text in lines:
        try:
            (cells,) = csv.reader([text], delimiter=separator, skipinitialspace=True, strict=True)
        except (csv.Error, ValueError, TypeError) as error:
            raise UsageError(
                f"{where}: cannot be split into cells: {error}; expected a line for each row. "
                "Close the quote, or leave it out"
            ) from error
        cells = [cell.strip() for cell in cells]
        while not rows and cells and not cells[-1]:  # spreadsheets pad rows with empty cells
            cells.pop()
        missing = len(rows[0].cells) - len(cells) if rows else 0
        rows.append(Row(where, text, cells + [""] * missing))
    return rows


def ticker_column(header: list[str]) -> int | None:
    """Return the position of the column that is called ticker, symbol or unique_id, or None."""
    names = [name.lower() for name in header]
    return next((names.index(name) for name in _HEADERS if name in names), None)


def _read_text(path: Path) -> str:
    try:
        text = read_plain(path).decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise UsageError(
            f"{path}: not a text file, or not in UTF-8; expected one ticker a line. Save it as "
            "text in UTF-8"
        )
    return text


def normalise(symbol: str, where: str = "ticker") -> str:
    """Return a ticker in the spelling used everywhere: upper case, share class after a hyphen.

    ``where``: the file and line, for error messages. Raises UsageError for characters that no
    ticker has.
    """
    name = symbol.strip().strip("\"'").upper()
    if re.fullmatch(r"[A-Z0-9]+\.[A-C]", name):
        name = name.replace(".", "-")
    if not symbol.isascii() or not _SYMBOL.match(name) or ".." in name:
        shown = symbol if len(symbol) <= 40 else symbol[:37] + "..."
        raise UsageError(
            f"{where}: {shown!r} cannot be a ticker; expected letters, digits and . - = _ "
            "(and ^ in front of an index), 24 at most, e.g. BRK-B, ^GSPC, EURUSD=X"
        )
    return name


def listed_tickers(text: str) -> list[str] | None:
    """Return the tickers in a text such as ``AAPL,BRK-B``; None if the text names a file.

    The text names a file if the file exists, or if the text ends like a file name. Raises
    UsageError if it can be neither.
    """
    words = list(filter(None, re.split(r"[,;\s]+", text)))
    with contextlib.suppress(OSError):  # too long for the name of a file
        if (path := find_universe(text)).exists() and not path.is_dir():
            return None
    if not words:
        return None
    if len(words) == 1:
        if _FOLDER.search(text) or _ENDING.search(text):
            return None
        if (bundled := find_universe(f"{text}.txt".lower())).exists():
            raise UsageError(
                f"{text!r} is not a file; expected a file or tickers between commas. Did you mean "
                f"{bundled.name}?"
            )
    shown = text if len(text) <= 40 else text[:37] + "..."
    where = f"{shown!r} is neither a file nor a list of tickers"
    return list(dict.fromkeys(normalise(word, where) for word in words))


def find_universe(path: str | Path) -> Path:
    """Return the path itself if it exists, otherwise the package's own universe of that name."""
    path = Path(path)
    if path.exists() or len(path.parts) != 1:
        return path
    package = Path(str(importlib.resources.files("forecaster")))
    for folder in (package / "universes", package.parent / "data"):  # installed; in a checkout
        if (folder / path.name).is_file():
            return folder / path.name
    return path


def _words(row: Row) -> Iterator[str]:
    """Yield the words of a line that is no row of a table."""
    if "\t" in row.text or '"' in row.text:
        raise UsageError(
            f"{row.where}: looks like a table, but no column is called Symbol or Ticker; expected "
            "tickers only, or a header that names their column"
        )
    for word in re.split(r"[,;\s]+", row.text.split("#", 1)[0]):
        if _DATE.fullmatch(word):
            raise UsageError(
                f"{row.where}: {word!r} is a date, and no header says what it means; expected "
                "tickers only, or a header ticker,start,end"
            )
        if word:
            yield word


@dataclasses.dataclass(frozen=True)
class Membership:
    """Spans ``unique_id, start, end``; a ticker may have several."""

    spans: pd.DataFrame

    @property
    def tickers(self) -> list[str]:
        """All tickers that ever belonged, in the order of the file."""
        return list(dict.fromkeys(self.spans["unique_id"]))

    def holds(self, ids: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Return whether the ticker of each row belonged at the row's time.

        ``ids``, ``times`` and the result are (row,).
        """
        out = np.zeros(len(ids), bool)
        times = times.astype("datetime64[D]")  # both ends are whole days
        groups = pd.Series(np.arange(len(ids))).groupby(np.asarray(ids, object)).indices
        for name, start, end in self.spans.itertuples(index=False):
            rows = groups.get(name)
            if rows is not None:
                out[rows] |= (times[rows] >= start) & (times[rows] <= end)
        return out


def read_membership(path: str | Path) -> Membership | None:
    """Read a file of members over time; return None for a list of tickers without dates.

    Raises UsageError with file and line for an invalid date or ticker, and for another column whose
    name is that of dates.
    """
    path = find_universe(path)
    header, *rows = read_rows(path) or [Row("", "", [])]
    if (ticker := ticker_column(header.cells)) is None:
        return None
    names = [name.lower() for name in header.cells]
    if not {"start", "end"} <= set(names):
        if bound := next(filter(_is_of_dates, names), None):
            raise UsageError(
                f"{path}: the column {bound!r} beside the tickers seems to hold dates; "
                f"{_EXPECTED}. Rename it, or leave it out"
            )
        return None
    first, last = names.index("start"), names.index("end")
    spans: list[tuple[str, pd.Timestamp, pd.Timestamp]] = []
    for where, _, cells in rows:
        name, start = normalise(cells[ticker], where), _date(cells[first], where)
        end = _date(cells[last], where) if cells[last] else _EVER
        if end < start:
            raise UsageError(f"{where}: {name} ends before it starts")
        spans.append((name, start, end))
    if not spans:
        raise UsageError(f"{path}: no ticker in it; {_EXPECTED}")
    return Membership(pd.DataFrame(spans, columns=["unique_id", "start", "end"]))


def _is_of_dates(name: str) -> bool:
    """Return whether a column has the name of dates; "Date first added" is no bound of a span."""
    words = set(re.split(r"[\W_]+|(?=date)|(?<=date)", name))
    bounds = words & _BOUNDS or {"last", "date"} <= words  # "Last" alone is a price
    return name in _DATES or (bool(bounds) and "added" not in words)


def _date(text: str, where: str) -> pd.Timestamp:
    try:
        day = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise UsageError(f"{where}: {text!r} is not a date; expected e.g. 2024-03-28") from error
    return pd.Timestamp(day).tz_localize(None).normalize()
