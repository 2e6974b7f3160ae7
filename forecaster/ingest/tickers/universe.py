"""Universe files: which tickers to follow."""

import codecs
import contextlib
import csv
import importlib.resources
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from forecaster.errors import UsageError

_SYMBOL = re.compile(r"^\^?[A-Z0-9][A-Z0-9.\-=_]{0,23}$")
HEADERS = ("symbol", "ticker", "tickers", "symbols", "ticker symbol", "unique_id")
"""Names of a column of tickers."""
_LIKE_A_FILE = re.compile(r"[/\\]|\.(txt|csv|tsv|lst|list|dat|xlsx?|json|parquet)$", re.IGNORECASE)
_DATE = re.compile(r"(\d{4}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2})[-/.]\d{1,4}$|(19|20)\d{6}$")
SEPARATOR_LINE = re.compile(r"\s*\"?sep=(?P<separator>.)\"?\s*", re.IGNORECASE)
"""What Excel writes first to say what parts the cells."""
_MOST_BYTES = 10 * 2**20


def read_universe(path: str | Path) -> list[str]:
    """Read tickers from a text file, one or more a line, or from a CSV with a ``Symbol`` column.

    UTF-8, or UTF-16 with a byte order mark; cells are parted by commas, semicolons or tabs; ``#``
    starts a comment; letter case does not matter; ``BRK.B`` becomes ``BRK-B``, as Yahoo writes
    share classes, while ``SHELL.AS`` keeps its exchange. The order is kept, repeated tickers are
    dropped. A name without a folder, such as ``sp500.txt``, that is no file here is looked up among
    the universes in the package.

    Raises UsageError with file and line when the file is missing, not text, empty, or holds
    something that cannot be a ticker.
    """
    path = find_universe(path)
    tickers: dict[str, None] = {}
    for number, word in _words(path):
        tickers.setdefault(normalise(word, f"{path}, line {number}"))
    if not tickers:
        raise UsageError(f"{path}: no ticker in it; expected one a line, e.g. AAPL")
    return list(tickers)


class Line(NamedTuple):
    """A line of a ticker file, with its number."""

    number: int
    text: str


def read_lines(path: Path) -> tuple[list[Line], str]:
    """The lines of a ticker file without blank ones and comments, and what parts their cells.

    UTF-8, or UTF-16 where a byte order mark says so; Excel's ``sep=;`` is obeyed. Raises UsageError
    when the file is missing, large, or no text.
    """
    lines = [Line(n, text) for n, text in enumerate(_read_text(path).splitlines(), 1)]
    lines = [line for line in lines if line.text.strip() and not line.text.lstrip().startswith("#")]
    if not lines:
        return [], ","
    if told := SEPARATOR_LINE.fullmatch(lines[0].text):
        return lines[1:], told["separator"]
    return lines, max(",;\t", key=lines[0].text.count)


def cells_of(line: str, separator: str) -> list[str]:
    """The cells of a line, without spaces around them."""
    cells = next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])
    return [cell.strip() for cell in cells]


def _read_text(path: Path) -> str:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UsageError(f"{path}: too large for a ticker file ({path.stat().st_size} bytes)")
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    wide = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        text = raw.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text or (wide and not re.search("[A-Za-z0-9]", text)):
        raise UsageError(
            f"{path}: not a text file, or not in UTF-8; expected one ticker a line. Save it as "
            "text in UTF-8"
        )
    return text


def normalise(symbol: str, where: str = "ticker") -> str:
    """A ticker in the spelling used everywhere: upper case, a share class behind a hyphen.

    Raises UsageError when it holds characters that no ticker has.
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
    """Tickers that are named themselves, between commas or spaces; None where a file is meant.

    A file of that name wins, and so does what ends like one. Raises UsageError for what can be
    neither.
    """
    words = list(filter(None, re.split(r"[,;\s]+", text)))
    with contextlib.suppress(OSError):  # too long for the name of a file
        if (path := find_universe(text)).exists() and not path.is_dir():
            return None
    if not words:
        return None
    if len(words) == 1:
        if _LIKE_A_FILE.search(text):
            return None
        if (bundled := find_universe(f"{text}.txt".lower())).exists():
            raise UsageError(
                f"{text!r} is no file; expected a file or tickers between commas. Did you mean "
                f"{bundled.name}?"
            )
    shown = text if len(text) <= 40 else text[:37] + "..."
    where = f"{shown!r} is no file, and of its words"
    return list(dict.fromkeys(normalise(word, where) for word in words))


def find_universe(path: str | Path) -> Path:
    """The file itself, or the package's own of that name."""
    path = Path(path)
    if path.exists() or len(path.parts) != 1:
        return path
    for folder in _bundled_folders():
        if (folder / path.name).is_file():
            return folder / path.name
    return path


def _bundled_folders() -> list[Path]:
    package = Path(str(importlib.resources.files("forecaster")))
    return [package / "universes", package.parent / "data"]  # installed; in a checkout


def _words(path: Path) -> Iterator[tuple[int, str]]:
    """Candidate symbols with their line numbers: cells of a table's symbol column, or all words."""
    lines, separator = read_lines(path)
    if not lines:
        return
    names = [name.lower() for name in cells_of(lines[0].text, separator)]
    if (column := next((names.index(name) for name in HEADERS if name in names), None)) is not None:
        rows = csv.reader([line.text for line in lines[1:]], delimiter=separator)
        for line, cells in zip(lines[1:], rows, strict=False):
            if column < len(cells) and cells[column].strip():
                yield line.number, cells[column].split("#", 1)[0]
        return
    for number, line in lines:
        if "\t" in line or '"' in line:
            raise UsageError(
                f"{path}, line {number}: looks like a table, but no column is called Symbol or "
                "Ticker; expected tickers only, or a header that names their column"
            )
        for word in re.split(r"[,;\s]+", line.split("#", 1)[0]):
            if _DATE.match(word):
                raise UsageError(
                    f"{path}, line {number}: {word!r} is a date, and no header says of what; "
                    "expected tickers only, or a header date,tickers or ticker,start,end"
                )
            if word:
                yield number, word
