"""Groups of series, such as sectors: a CSV file of tickers and the group that each belongs to."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from forecaster.errors import UsageError, listed, printable
from forecaster.ingest.tickers.universe import HEADERS, cells_of, read_lines

_GROUP = ("group", "groups", "sector", "gics sector", "industry", "category", "class")
_EXPECTED = "expected a header ticker,group and a line for each ticker, e.g. AAPL,Technology"


@dataclasses.dataclass(frozen=True)
class Groups:
    """The group of each name in a file, as the names are written there."""

    path: Path
    group: Mapping[str, str]

    def of(self, ids: Sequence[str]) -> dict[str, str]:
        """The group of each of these series that has one.

        Letter case and the sign before a share class do not matter: ``brk.b`` is ``BRK-B``.

        Raises UsageError when none of them has a group.
        """
        by_spelling = {_spelled(name): group for name, group in self.group.items()}
        found = {
            name: self.group.get(name) or by_spelling[_spelled(name)]
            for name in ids
            if name in self.group or _spelled(name) in by_spelling
        }
        if not found:
            raise UsageError(
                f"{self.path}: no group for any of the {len(ids)} series; the file has "
                f"{listed(list(self.group)[:5])}, the series are {listed(list(ids)[:5])}; their "
                "names must be the same"
            )
        return found


def read_groups(path: str | Path) -> Groups:
    """Read a file with a column of tickers and one of groups.

    Columns are found by their names (``ticker`` or ``symbol``, ``group`` or ``sector``, and the
    like), among others; read as ticker files are. A ticker without a group is ungrouped.

    Raises UsageError with file and line for a file without these columns or rows, and for a ticker
    that is in two groups.
    """
    path = Path(path)
    lines, separator = read_lines(path)
    if not lines:
        raise UsageError(f"{path}: nothing in it; {_EXPECTED}")
    ticker, group = _columns(cells_of(lines[0].text, separator), path)
    found: dict[str, tuple[str, str, int]] = {}
    for number, text in lines[1:]:
        cells = cells_of(text, separator)
        if len(cells) <= ticker or not cells[ticker]:
            raise UsageError(f"{path}, line {number}: no ticker; {_EXPECTED}")
        name, its = cells[ticker], cells[group] if len(cells) > group else ""
        if not its:
            continue
        before = found.setdefault(_spelled(name), (name, its, number))
        if before[1] != its:
            raise UsageError(
                f"{path}, line {number}: {printable(name, lines=False)} is in {its!r}, but in "
                f"{before[1]!r} on line {before[2]}; expected one group for a ticker"
            )
    if not found:
        raise UsageError(f"{path}: no ticker with a group; {_EXPECTED}")
    return Groups(path, {name: its for name, its, _ in found.values()})


def _columns(header: list[str], path: Path) -> tuple[int, int]:
    """The positions of the tickers and of the groups."""
    names = [name.strip().lower().replace("_", " ") for name in header]
    tickers = [names.index(n) for n in (*HEADERS, "unique id", "series") if n in names]
    groups = [names.index(name) for name in _GROUP if name in names]
    if tickers and not groups and len(names) == 2:
        groups = [1 - tickers[0]]
    if not (tickers and groups):
        raise UsageError(
            f"{path}, line 1: the columns are {listed(header)}; {_EXPECTED} (a group's column may "
            "also be called sector, industry or category)"
        )
    return tickers[0], groups[0]


def _spelled(name: str) -> str:
    """A name without what does not matter, for comparing."""
    return name.strip().upper().replace(".", "-")
