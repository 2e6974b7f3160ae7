"""Universe files: which tickers to follow."""

import csv
import importlib.resources
import re
from collections.abc import Iterator
from pathlib import Path

from forecaster.errors import UsageError

_SYMBOL = re.compile(r"^\^?[A-Z0-9][A-Z0-9.\-=_]{0,23}$")
_HEADERS = ("symbol", "ticker", "tickers", "symbols", "ticker symbol", "unique_id")
_MOST_BYTES = 10 * 2**20


def read_universe(path: str | Path) -> list[str]:
    """Read tickers from a text file, one or more a line, or from a CSV with a ``Symbol`` column.

    UTF-8 with or without a byte order mark; ``#`` starts a comment; letter case does not matter;
    ``BRK.B`` becomes ``BRK-B``, as Yahoo writes share classes, while ``SHELL.AS`` keeps its
    exchange. The order is kept, repeated tickers are dropped. A name without a folder, such as
    ``sp500.txt``, that is no file here is looked up among the universes in the package.

    Raises UsageError with file and line when the file is missing, not text, empty, or holds
    something that cannot be a ticker.
    """
    path = find_universe(path)
    tickers: dict[str, None] = {}
    for number, word in _words(read_text(path), path):
        tickers.setdefault(normalise(word, f"{path}, line {number}"))
    if not tickers:
        raise UsageError(f"{path}: no ticker in it; expected one a line, e.g. AAPL")
    return list(tickers)


def read_text(path: Path) -> str:
    """The text of a small file. Raises UsageError when it is missing, large, or no text."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise UsageError(f"{path}: too large for a ticker file ({path.stat().st_size} bytes)")
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise UsageError(f"{path}: not a text file; expected one ticker a line, in UTF-8")
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


def _words(text: str, path: Path) -> Iterator[tuple[int, str]]:
    """Candidate symbols with their line numbers: cells of a table's symbol column, or all words."""
    lines = [(n, line) for n, line in enumerate(text.splitlines(), 1)]
    lines = [(n, line) for n, line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not lines:
        return
    separator = max(",;\t", key=lines[0][1].count)
    header = next(csv.reader([lines[0][1]], delimiter=separator))
    names = [cell.strip().lower() for cell in header]
    if (
        column := next((names.index(name) for name in _HEADERS if name in names), None)
    ) is not None:
        rows = csv.reader([line for _, line in lines[1:]], delimiter=separator)
        for (number, _), cells in zip(lines[1:], rows, strict=False):
            if column < len(cells) and cells[column].strip():
                yield number, cells[column].split("#", 1)[0]
        return
    for number, line in lines:
        if "\t" in line or '"' in line:
            raise UsageError(
                f"{path}, line {number}: looks like a table, but no column is called Symbol or "
                "Ticker; expected tickers only, or a header that names their column"
            )
        for word in re.split(r"[,;\s]+", line.split("#", 1)[0]):
            if word:
                yield number, word
