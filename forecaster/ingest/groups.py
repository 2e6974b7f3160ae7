"""Read groups of series, such as sectors or portfolios: a CSV file of tickers and their groups."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from forecaster.errors import (
    UsageError,
    hint_of_zeros,
    listed,
    printable,
    spelled,
    spelling_key,
    spellings,
)
from forecaster.ingest.universe import Row, read_rows, ticker_column

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
                f"{self.path}: no group for any of the {len(ids)} series: the file names "
                f"{listed(list(self.group)[:5])}, and the series are called "
                f"{listed(list(ids)[:5])}; expected the same names"
                f"{hint_of_zeros(ids, self.group)}"
            )
        return found


def read_groups(path: str | Path) -> Groups:
    """Read a table with the columns ``ticker`` and ``group``; ignore other columns.

    The column of tickers may also be called ``symbol`` or ``unique_id``. Encoding and separators
    are as in ticker files. A ticker with an empty cell has no group.

    Raises UsageError with file and line for a file without these columns or without rows, and for a
    ticker that is in two groups.
    """
    path = Path(path)
    found: dict[str, tuple[str, str, str]] = {}
    for where, name, label, _ in _rows(path):
        if not label:
            continue
        _, known, before = found.setdefault(spelling_key(name), (name, label, where))
        if known != label:
            raise UsageError(
                f"{where}: {printable(name, lines=False)} is in {label!r}, but in {known!r} on "
                f"{before.removeprefix(f'{path}, ')}; expected one group for a ticker"
            )
    if not found:
        raise UsageError(f"{path}: no ticker with a group; {_EXPECTED}")
    return Groups(path, {name: label for name, label, _ in found.values()})


def read_weights(path: str | Path) -> dict[str, dict[str, float]]:
    """Read the series of each group with their weights, such as the shares that a portfolio holds.

    The columns are those of :func:`read_groups`, and perhaps ``weight``, by default 1; there are no
    others, so that no weight is missed under another name. A ticker may be in several groups.

    Raises UsageError with file and line as :func:`read_groups` does, for another column, for a
    ticker that occurs twice in a group, and for a weight that is 0 or not a number.
    """
    found: dict[str, dict[str, float]] = {}
    seen: set[tuple[str, str]] = set()
    for where, name, label, others in _rows(Path(path)):
        if odd := set(others) - {"weight"}:
            raise UsageError(
                f"{path}: column {min(odd)!r}: expected the columns ticker,group,weight, or "
                "ticker,group alone. Rename it, or leave it out"
            )
        if not label:
            raise UsageError(f"{where}: {printable(name, lines=False)} has no group; {_EXPECTED}")
        key = label, spelling_key(name)
        if key in seen:
            raise UsageError(f"{where}: {name} is twice in {label!r}; add up its weights")
        seen.add(key)
        text = others.get("weight", "1")
        try:
            weight = float(text)
        except ValueError:
            weight = math.nan
        if not math.isfinite(weight) or weight == 0:
            raise UsageError(
                f"{where}: weight: expected a number other than 0, with a decimal point; got "
                f"{text!r}"
            )
        found.setdefault(label, {})[name] = weight
    if not found:
        raise UsageError(f"{path}: no ticker in it; {_EXPECTED}")
    return found


def _rows(path: Path) -> Iterator[tuple[str, str, str, dict[str, str]]]:
    """Yield file and line, ticker, group, and the other cells by the names of their columns."""
    header, *rows = read_rows(path) or [Row("", "", [])]
    column, names = ticker_column(header.cells), [name.lower() for name in header.cells]
    if column is None or "group" not in names:
        got = f"the columns are {listed(header.cells)}" if names else "nothing in it"
        raise UsageError(f"{path}: {got}; {_EXPECTED}")
    if twice := {name for name in names if name and names.count(name) > 1}:
        raise UsageError(f"{path}: column {min(twice)!r} is twice in the header; leave one out")
    for where, _, cells in rows:
        others = dict(zip(names, cells, strict=False))
        name, label = others.pop(names[column]), others.pop("group")
        if not name:
            raise UsageError(f"{where}: no ticker; {_EXPECTED}")
        yield where, name, label, others
