"""Point-in-time membership of a universe: which tickers belonged to it when.

Two formats, both CSV files, with commas, semicolons or tabs between the cells:

    date,tickers       the members from that date on: "2000-01-03","AAPL,MSFT"; or a row for each
    ticker,start,end   spans, both ends included; an empty end: still a member; in any order, and
                       among other columns

The columns' usual other names are understood too. Dates that are not understood are refused:
without them a file of members over time would pass for a list of today's.
"""

import dataclasses
import re
import warnings
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from forecaster.errors import ForecasterWarning, UsageError
from forecaster.ingest.tickers.universe import cells_of, find_universe, normalise, read_lines

_TICKER = ("ticker", "tickers", "symbol", "symbols", "ticker symbol", "unique id")
_DAY = ("date", "ds", "effective", "as of")
# A column of the second names may be something else, such as the last price: its cells decide.
_START = ("start", "from", "since"), ("begin", "added", "joined", "entry", "first", "valid from")
_END = (
    ("end", "to", "until"),
    ("till", "thru", "through", "removed", "left", "exit", "last", "valid to", "valid until"),
)
_TIMES = ("year", "quarter", "month", "week", "period", *_DAY, *_END[0])
_MONTH = "(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
_DATED = re.compile(
    r"(\d{4}[-/]\d{1,2}|\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{2}|\d{4})"
    r"|(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])"
    rf"|(\d{{1,2}}[ -])?{_MONTH}[. -]+(\d{{1,2}},? )?(\d{{2}}|\d{{4}}))([T ]\d.*)?",
    re.IGNORECASE,
)
_CHANGE = re.compile(
    "(add(ed|ition)?|remov(e|ed|al)|delet(e|ed|ion)|drop(ped)?|in|out|join(ed)?)",
    re.IGNORECASE,
)
_EXPECTED = "expected date,tickers or ticker,start,end"
_Row: TypeAlias = tuple[int, list[str]]  # the number of the line, and its cells
_Span: TypeAlias = tuple[str, pd.Timestamp, pd.Timestamp]


@dataclasses.dataclass(frozen=True)
class Membership:
    """Spans ``unique_id, start, end``; a ticker may have several."""

    spans: pd.DataFrame

    @property
    def tickers(self) -> list[str]:
        """All tickers that ever belonged, in the file's order."""
        return list(dict.fromkeys(self.spans["unique_id"]))

    def holds(self, ids: np.ndarray, times: np.ndarray) -> np.ndarray:
        """Whether each ticker belonged at the time beside it; both (row,), result (row,)."""
        out = np.zeros(len(ids), bool)
        times = times.astype("datetime64[D]")  # both ends are whole days
        groups = pd.Series(np.arange(len(ids))).groupby(np.asarray(ids, object)).indices
        for name, start, end in self.spans.itertuples(index=False):
            rows = groups.get(name)
            if rows is not None:
                out[rows] |= (times[rows] >= start) & (times[rows] <= end)
        return out


def read_membership(path: str | Path) -> Membership | None:
    """Read a file of one of the two formats; None when it is a list of tickers without dates.

    A ``Date added`` beside the columns ``GICS ...`` of a list of today's members is not used, which
    a :class:`ForecasterWarning` says.

    Raises UsageError with file and line for an invalid date or ticker, and for a file with dates
    that do not say since when, or until when, each ticker belonged.
    """
    path = find_universe(path)
    table = _Table.read(path)
    ticker = next(iter(table.named(_TICKER)), None)
    if ticker is None:
        return None
    start, end = table.dates(_START), table.dates(_END)
    if ticker == 1 and table.names[0] in _DAY:
        table.refuse_others({0}, "beside the dates of lists")
        table.refuse_changes()
        spans = _from_lists(table.rows, path, listed=len(table.names) == 2)
    elif start is None:
        table.refuse_undated()
        return None
    elif end is None and table.is_of_today(start):
        warnings.warn(
            f"{path}: the column {table.header[start]!r} is not used, and the tickers are taken as "
            f"they are: members of today. For members over time: {_EXPECTED}",
            ForecasterWarning,
            stacklevel=2,
        )
        return None
    else:
        if end is None:
            table.refuse_others({start}, "but is not understood as the end")
        spans = _from_spans(table.rows, path, (ticker, start, end))
    if not spans:
        raise UsageError(f"{path}: no ticker in it; expected a row for each date or span")
    return Membership(pd.DataFrame(spans, columns=["unique_id", "start", "end"]))


class _Table(NamedTuple):
    """A file's columns, as they are called and by the plain form of their names, and its rows."""

    path: Path
    header: list[str]
    names: list[str]
    rows: list[_Row]

    @staticmethod
    def read(path: Path) -> "_Table":
        """The file; without any column when it is empty."""
        lines, separator = read_lines(path)
        header = cells_of(lines[0].text, separator) if lines else []
        while header and not header[-1]:  # spreadsheets fill up rows
            header.pop()
        rows = [(number, cells_of(text, separator)) for number, text in lines[1:]]
        return _Table(path, header, [_plain(name) for name in header], rows)

    def named(self, names: tuple[str, ...]) -> list[int]:
        """The columns that have one of these names."""
        return [index for index, name in enumerate(self.names) if name in names]

    def dates(self, names: tuple[tuple[str, ...], tuple[str, ...]]) -> int | None:
        """The column of one of the first names, or of dates and one of the second."""
        sure, likely = names
        found = [*self.named(sure), *(i for i in self.named(likely) if self._are(_DATED, i))]
        if len(found) > 1:
            both = " and ".join(repr(self.header[index]) for index in found[:2])
            raise UsageError(f"{self.path}: the columns {both} may mean the same; {_EXPECTED}")
        return found[0] if found else None

    def is_of_today(self, start: int) -> bool:
        """Whether it looks like the public list of the S&P 500's members."""
        return "added" in self.names[start].split() and any(
            name.startswith("gics") for name in self.names
        )

    def refuse_undated(self) -> None:
        """Raise UsageError for a column of dates, or of a time's name."""
        dated = [*self.named(_TIMES), *self._dated()]
        if dated:
            raise UsageError(
                f"{self.path}: a column {self._called(dated[0])} beside the tickers, but nothing "
                f"that says since when each belonged; {_EXPECTED}, or tickers without it"
            )

    def refuse_others(self, used: set[int], why: str) -> None:
        """Raise UsageError for a column of dates other than those that are used."""
        if others := [index for index in self._dated() if index not in used]:
            raise UsageError(
                f"{self.path}: a column {self._called(others[0])} holds dates, {why}; {_EXPECTED}. "
                "Rename it, or leave it out"
            )

    def refuse_changes(self) -> None:
        """Raise UsageError for a column that says whether a ticker came or went."""
        for index in range(2, len(self.names)):
            if self._are(_CHANGE, index):
                raise UsageError(
                    f"{self.path}: a column {self._called(index)} of changes; expected all members "
                    "at each date, or ticker,start,end"
                )

    def _dated(self) -> list[int]:
        width = max((len(cells) for _, cells in self.rows), default=0)
        return [index for index in range(width) if self._are(_DATED, index)]

    def _are(self, form: re.Pattern[str], column: int) -> bool:
        """Whether most cells of a column that are not empty have a form."""
        cells = [cells[column] for _, cells in self.rows if len(cells) > column and cells[column]]
        return bool(cells) and 2 * sum(map(bool, map(form.fullmatch, cells))) > len(cells)

    def _called(self, column: int) -> str:
        names = dict(enumerate(self.header))
        return repr(name) if (name := names.get(column)) else f"{column + 1} without a name"


def _plain(name: str) -> str:
    """``startDate``, ``start_dt`` and ``Date start`` are all ``start``."""
    words = re.sub("(?<=[a-z])(?=[A-Z])|[_-]", " ", name).lower().split()
    return " ".join([word for word in words if word not in ("date", "dt", "day")] or words)


_EVER = pd.Timestamp("2262-01-01")
_ONE_DAY = pd.Timedelta(days=1)


def _from_lists(rows: list[_Row], path: Path, *, listed: bool) -> list[_Span]:
    """Spans from rows of a date and the tickers from then on.

    ``listed``: all cells behind the date hold tickers, not only the first.
    """
    dated: dict[pd.Timestamp, list[str]] = {}
    for number, cells in rows:
        # The list may be one quoted cell, or stand in cells of its own.
        words = [
            word
            for cell in cells[1 : None if listed else 2]
            for word in re.split(r"[,;\s]+", cell)
            if word
        ]
        names = [normalise(word, f"{path}, line {number}") for word in words]
        dated.setdefault(_date(cells[0], path, number), []).extend(names)
    spans: list[_Span] = []
    since: dict[str, pd.Timestamp] = {}
    for day, names in sorted(dated.items()):
        until = day - _ONE_DAY
        for name in [name for name in since if name not in names]:
            spans.append((name, since.pop(name), until))
        for name in names:
            since.setdefault(name, day)
    return spans + [(name, start, _EVER) for name, start in since.items()]


def _from_spans(rows: list[_Row], path: Path, columns: tuple[int, int, int | None]) -> list[_Span]:
    """Spans from rows of a ticker, its first and its last day, which are in these columns."""
    ticker, first, last = columns
    for number, cells in rows:
        if len(cells) <= max(ticker, first):
            raise UsageError(f"{path}, line {number}: expected ticker,start,end")
    spans = [
        (
            normalise(cells[ticker], f"{path}, line {number}"),
            _date(cells[first], path, number),
            _date(cells[last], path, number)
            if last is not None and len(cells) > last and cells[last]
            else _EVER,
        )
        for number, cells in rows
    ]
    for (number, _), (name, start, end) in zip(rows, spans, strict=True):
        if end < start:
            raise UsageError(f"{path}, line {number}: {name} ends before it starts")
    return spans


def _date(text: str, path: Path, number: int) -> pd.Timestamp:
    try:
        day = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise UsageError(
            f"{path}, line {number}: {text!r} is not a date; expected e.g. 2024-03-28"
        ) from error
    return pd.Timestamp(day).tz_localize(None).normalize()
