"""Read which tickers belonged to a universe at which time (point-in-time membership).

Two CSV formats, with commas, semicolons or tabs between the cells:

    date,tickers       all members from that date on: "2000-01-03","AAPL,MSFT"; or with each
                       ticker in a cell or row of its own
    ticker,start,end   spans, both ends included, in any order and beside other columns; an empty
                       end means that the ticker still belongs

Columns are recognised only by their names. Tickers beside a column of dates with any other name are
refused, since they would otherwise be taken for a list of today's members.
"""

import dataclasses
import re
import warnings
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from forecaster.errors import ForecasterWarning, UsageError
from forecaster.ingest.tickers.universe import (
    cells_of,
    find_universe,
    looks_like_a_date,
    normalise,
    read_lines,
    ticker_column,
)

_DATE = ("date", "ds", "effective_date")
_START = ("start", "start_date", "date_added", "first")
_END = ("end", "end_date", "date_removed", "last")
_PERIODS = ("year", "quarter", "month", "week")  # columns that need not look like dates
_EXPECTED = (
    "expected date,tickers or ticker,start,end; start may also be called start_date, date_added or "
    "first, and end end_date, date_removed or last"
)
_EVER = pd.Timestamp("2262-01-01")
_ONE_DAY = pd.Timedelta(days=1)


class _Row(NamedTuple):
    """A row of a file: its place, for error messages, and its cells."""

    where: str
    cells: list[str]


_Span: TypeAlias = tuple[str, pd.Timestamp, pd.Timestamp]


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
    """Read a file of one of the two formats; return None for a list of tickers without dates.

    A ``Date added`` beside columns ``GICS ...`` belongs to a list of today's members. The column is
    ignored, with a :class:`ForecasterWarning`.

    Raises UsageError with file and line for an invalid date or ticker, and for a column of dates
    whose name is in neither format.
    """
    path = find_universe(path)
    lines, separator = read_lines(path)
    table = [
        _Row(where := f"{path}, line {number}", cells_of(text, separator, where))
        for number, text in lines
    ]
    header, rows = (table[0].cells, table[1:]) if table else ([], [])
    while header and not header[-1]:  # spreadsheets pad rows with empty cells
        header.pop()
    ticker = ticker_column(header)
    if ticker is None:
        return None
    names = [_plain(name) for name in header]
    start, end = (_column(names, wanted, path) for wanted in (_START, _END))
    if ticker == 1 and names[0] in _DATE:
        if len(header) > 2:
            raise UsageError(
                f"{path}: the column {header[2]!r} stands beside {header[0]},{header[1]}; expected "
                "these two alone, or ticker,start,end. Leave it out"
            )
        spans = _from_lists(rows)
    elif start is not None and end is not None:
        spans = _from_spans(rows, ticker, start, end)
    elif "date_added" in names and any(name.startswith("gics") for name in names):
        warnings.warn(
            f"{path}: the column {header[names.index('date_added')]!r} is not used, and the "
            f"tickers are taken as members of today. For members over time: {_EXPECTED}",
            ForecasterWarning,
            stacklevel=2,
        )
        return None
    else:
        _refuse_dates(header, rows, path)
        return None
    if not spans:
        raise UsageError(f"{path}: no ticker in it; expected a row for each date or span")
    return Membership(pd.DataFrame(spans, columns=["unique_id", "start", "end"]))


def _plain(name: str) -> str:
    """Return ``start_date`` for ``startDate``, ``Start date`` and ``START-DATE``."""
    return re.sub("(?<=[a-z])(?=[A-Z])|[ -]", "_", name).lower()


def _column(names: list[str], wanted: Sequence[str], path: Path) -> int | None:
    """Return the position of the column with one of these names, or None.

    Raises UsageError if there are two such columns.
    """
    found = [index for index, name in enumerate(names) if name in wanted]
    if len(found) > 1:
        both = " and ".join(repr(names[index]) for index in found[:2])
        raise UsageError(f"{path}: the columns {both} mean the same; keep one")
    return found[0] if found else None


def _refuse_dates(header: list[str], rows: list[_Row], path: Path) -> None:
    """Raise UsageError if a column has dates in most of its non-empty cells."""
    for column in range(max([len(header), *(len(row.cells) for row in rows)])):
        cells = [row.cells[column] for row in rows if len(row.cells) > column and row.cells[column]]
        name = header[column] if column < len(header) else ""
        if 2 * sum(map(looks_like_a_date, cells)) > len(cells) or _plain(name) in _PERIODS:
            called = repr(name) if name else f"{column + 1} without a name"
            raise UsageError(
                f"{path}: the column {called} beside the tickers holds dates; {_EXPECTED}. Rename "
                "it, or leave it out"
            )


def _from_lists(rows: list[_Row]) -> list[_Span]:
    """Return the spans of rows that hold a date and the members from then on."""
    # A dict, to keep the file's order and find tickers at once.
    members: dict[pd.Timestamp, dict[str, None]] = {}
    for where, (day, *lists) in rows:
        words = [word for cell in lists for word in re.split(r"[,;\s]+", cell) if word]
        if dates := [word for word in words if looks_like_a_date(word)]:
            raise UsageError(f"{where}: {dates[0]!r} is a date; expected tickers behind the first")
        names = dict.fromkeys(normalise(word, where) for word in words)
        members.setdefault(_date(day, where), {}).update(names)
    spans: list[_Span] = []
    since: dict[str, pd.Timestamp] = {}
    for day, names in sorted(members.items()):
        for name in [name for name in since if name not in names]:
            spans.append((name, since.pop(name), day - _ONE_DAY))
        for name in names:
            since.setdefault(name, day)
    return spans + [(name, start, _EVER) for name, start in since.items()]


def _from_spans(rows: list[_Row], ticker: int, first: int, last: int) -> list[_Span]:
    """Return the spans of rows that hold ticker, first and last day in these columns."""
    spans: list[_Span] = []
    for where, cells in rows:
        if len(cells) <= max(ticker, first):
            raise UsageError(f"{where}: expected ticker,start,end")
        name, start = normalise(cells[ticker], where), _date(cells[first], where)
        end = _date(cells[last], where) if len(cells) > last and cells[last] else _EVER
        if end < start:
            raise UsageError(f"{where}: {name} ends before it starts")
        spans.append((name, start, end))
    return spans


def _date(text: str, where: str) -> pd.Timestamp:
    try:
        day = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise UsageError(f"{where}: {text!r} is not a date; expected e.g. 2024-03-28") from error
    return pd.Timestamp(day).tz_localize(None).normalize()
