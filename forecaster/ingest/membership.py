"""Point-in-time membership of a universe: which tickers belonged to it when.

Two formats, both CSV files, with commas, semicolons or tabs between the cells:

    date,tickers       the members from that date on: "2000-01-03","AAPL,MSFT"; or a row for each
    ticker,start,end   spans, both ends included; an empty end: still a member; in any order, and
                       among other columns
"""

import dataclasses
import re
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pandas as pd

from forecaster.errors import UsageError
from forecaster.ingest.universe import cells_of, find_universe, normalise, read_lines

_TICKER = ("ticker", "tickers", "symbol", "symbols", "ticker symbol", "unique_id")
_START = ("start", "from", "since")
_END = ("end", "to", "until")
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
    """Read a file of one of the two formats; None when its header is of neither.

    Raises UsageError with file and line for an invalid date or ticker, and for a file that has
    dates but does not say since when each ticker belonged.
    """
    path = find_universe(path)
    header, rows = _read_rows(path)
    ticker, start = _position(header, _TICKER), _position(header, _START)
    if header[:1] == ["date"] and header[1:2] and header[1] in _TICKER:
        spans = _from_lists(rows, path, listed=len(header) == 2)
    elif ticker is not None and start is not None:
        spans = _from_spans(rows, path, (ticker, start, _position(header, _END)))
    elif ticker is not None and (dated := {"date", *_END} & set(header)):
        raise UsageError(
            f"{path}: a column {dated.pop()!r} beside the tickers, but nothing that says since "
            "when each belonged; expected date,tickers or ticker,start,end, or tickers without it"
        )
    else:
        return None
    if not spans:
        raise UsageError(f"{path}: no ticker in it; expected a row for each date or span")
    return Membership(pd.DataFrame(spans, columns=["unique_id", "start", "end"]))


def _read_rows(path: Path) -> tuple[list[str], list[_Row]]:
    """The names of the columns, and the cells of all rows below; empty when there is no header."""
    lines, separator = read_lines(path)
    if not lines:
        return [], []
    header = [name.lower() for name in cells_of(lines[0].text, separator)]
    header = [name.replace("_date", "").replace(" date", "") for name in header]
    while header and not header[-1]:  # spreadsheets fill up rows
        header.pop()
    return header, [(number, cells_of(text, separator)) for number, text in lines[1:]]


def _position(header: list[str], names: tuple[str, ...]) -> int | None:
    """Where a column of one of these names is."""
    return next((index for index, name in enumerate(header) if name in names), None)


_EVER = pd.Timestamp("2262-01-01")
_DAY = pd.Timedelta(days=1)


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
        until = day - _DAY
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
