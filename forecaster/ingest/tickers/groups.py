"""Read groups of series, such as sectors or portfolios: a CSV file of tickers and their groups."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from forecaster.errors import UsageError, listed, printable
from forecaster.ingest.tickers.universe import cells_of, read_lines, ticker_column
from forecaster.spelling import hint_of_zeros, spelled, spelling_key, spellings

_GROUP = ("group", "sector", "gics sector", "industry", "category")
_WEIGHT = ("weight", "shares", "units", "quantity", "amount")
_EXPECTED = "expected a header ticker,group and a line for each ticker, e.g. AAPL,Technology"


@dataclasses.dataclass(frozen=True)
class Groups:
    """The group of each ticker in a file, under the file's spelling of the ticker."""

    path: Path
    group: Mapping[str, str]

    def of(self, ids: Sequence[str]) -> dict[str, str]:
        """Return the group of each of these series, without series that have no group.

        Letter case and the sign before a share class do not matter: ``brk.b`` is ``BRK-B``.

        Raises UsageError if no series has a group.
        """
        known = spellings(self.group)
        names = {name: spelled(known, name) for name in ids}
        found = {name: self.group[ticker] for name, ticker in names.items() if ticker is not None}
        if not found:
            raise UsageError(
                f"{self.path}: no group for any of the {len(ids)} series; the file has "
                f"{listed(list(self.group)[:5])}, the series are {listed(list(ids)[:5])}; their "
                f"names must be the same{hint_of_zeros(ids, self.group)}"
            )
        return found


def read_groups(path: str | Path) -> Groups:
    """Read a file with a column of tickers and a column of groups; ignore other columns.

    Tickers are in the column ``ticker``, ``symbol`` or ``unique_id``. Groups are in the first
    existing column of ``group``, ``sector``, ``GICS Sector``, ``industry`` and ``category``.
    Encoding and separators are as in ticker files. A ticker with an empty cell has no group.

    Raises UsageError with file and line for a file without these columns or without rows, and for a
    ticker that is in two groups.
    """
    path = Path(path)
    lines, separator = read_lines(path)
    if not lines:
        raise UsageError(f"{path}: nothing in it; {_EXPECTED}")
    where = f"{path}, line {lines[0].number}"
    ticker, group = _columns(cells_of(lines[0].text, separator, where), path)
    found: dict[str, tuple[str, str, int]] = {}
    for number, text in lines[1:]:
        cells = cells_of(text, separator, f"{path}, line {number}")
        if len(cells) <= ticker or not cells[ticker]:
            raise UsageError(f"{path}, line {number}: no ticker; {_EXPECTED}")
        name, label = cells[ticker], cells[group] if len(cells) > group else ""
        if not label:
            continue
        _, known, line = found.setdefault(spelling_key(name), (name, label, number))
        if known != label:
            raise UsageError(
                f"{path}, line {number}: {printable(name, lines=False)} is in {label!r}, but in "
                f"{known!r} on line {line}; expected one group for a ticker"
            )
    if not found:
        raise UsageError(f"{path}: no ticker with a group; {_EXPECTED}")
    return Groups(path, {name: label for name, label, _ in found.values()})


def read_weights(path: str | Path) -> dict[str, dict[str, float]]:
    """Read the series of each group with their weights, such as the shares that a portfolio holds.

    Columns are those of :func:`read_groups`, and for the weight ``weight``, ``shares``, ``units``,
    ``quantity`` or ``amount``; without such a column each weight is 1. A ticker may be in several
    groups.

    Raises UsageError with file and line as :func:`read_groups` does, for several such columns, for
    a ticker that occurs twice in a group, and for a weight that is 0 or not a number.
    """
    path = Path(path)
    lines, separator = read_lines(path)
    if not lines:
        raise UsageError(f"{path}: nothing in it; {_EXPECTED}")
    header = cells_of(lines[0].text, separator, f"{path}, line {lines[0].number}")
    ticker, group = _columns(header, path)
    weight = _weight_column(header, path)
    found: dict[str, dict[str, float]] = {}
    seen: set[tuple[str, str]] = set()
    for number, text in lines[1:]:
        where = f"{path}, line {number}"
        cells = [*cells_of(text, separator, where), *[""] * len(header)]
        name, label = cells[ticker], cells[group]
        if not name:
            raise UsageError(f"{where}: no ticker; {_EXPECTED}")
        if not label:
            raise UsageError(f"{where}: {printable(name, lines=False)} has no group; {_EXPECTED}")
        key = label, spelling_key(name)
        if key in seen:
            raise UsageError(f"{where}: {name} is twice in {label!r}; add up its weights")
        seen.add(key)
        its = found.setdefault(label, {})
        its[name] = 1.0 if weight is None else _number(cells[weight], where)
    if not found:
        raise UsageError(f"{path}: no ticker in it; {_EXPECTED}")
    return found


def _weight_column(header: list[str], path: Path) -> int | None:
    """Return the position of the weights; None if there are none. Raises UsageError for several."""
    found = [number for number, name in enumerate(header) if name.lower() in _WEIGHT]
    if len(found) > 1:
        *most, last = (printable(header[number], lines=False) for number in found)
        raise UsageError(
            f"{path}: the columns {', '.join(most)} and {last} may each be the weight, and sums "
            "differ by it; expected one of them. Of prices, shares give what a portfolio is worth; "
            "leave one of them in the file"
        )
    return found[0] if found else None


def _number(text: str, where: str) -> float:
    """Return a weight. Raises UsageError if it is 0 or not a number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value == 0:
        raise UsageError(
            f"{where}: weight: expected a number other than 0, with a decimal point; got {text!r}"
        )
    return value


def _columns(header: list[str], path: Path) -> tuple[int, int]:
    """Return the positions of the tickers and of the groups."""
    names = [name.lower().replace("_", " ") for name in header]
    ticker = ticker_column(header)
    group = next((names.index(name) for name in _GROUP if name in names), None)
    if ticker is None or group is None:
        missing = "ticker, symbol or unique_id" if ticker is None else "group"
        raise UsageError(
            f"{path}, line 1: the columns are {listed(header)}, none of them {missing}; "
            f"{_EXPECTED} (group may also be called sector, industry or category)"
        )
    return ticker, group
