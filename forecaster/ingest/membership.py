"""Point-in-time membership of a universe: which tickers belonged to it when.

Two formats, both CSV files:

    date,tickers       the members from that date on: "2000-01-03","AAPL,MSFT"; or a row for each
    ticker,start,end   spans, both ends included; an empty end: still a member
"""

import csv
import dataclasses
import re
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pandas as pd

from forecaster.errors import UsageError
from forecaster.ingest.universe import find_universe, normalise, read_text

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

    Raises UsageError with file and line for an invalid date or ticker.
    """
    path = find_universe(path)
    header, rows = _read_rows(path)
    if header[:2] in (["date", "tickers"], ["date", "ticker"], ["date", "symbol"]):
        spans = _from_lists(rows, path)
    elif len(header) >= 2 and header[0] in ("ticker", "symbol") and header[1] in ("start", "from"):
        spans = _from_spans(rows, path)
    else:
        return None
    if not spans:
        raise UsageError(f"{path}: no ticker in it; expected a row for each date or span")
    return Membership(pd.DataFrame(spans, columns=["unique_id", "start", "end"]))


def _read_rows(path: Path) -> tuple[list[str], list[_Row]]:
    """The cells of the header, and of all rows below; empty when there is no header."""
    lines = [
        (number, line)
        for number, line in enumerate(read_text(path).splitlines(), 1)
        if line.strip() and not line.startswith("#")
    ]
    if not lines:
        return [], []
    header = [cell.strip().lower() for cell in next(csv.reader([lines[0][1]]))]
    header = [name.replace("_date", "").replace(" date", "") for name in header]
    return header, [(number, cells) for number, line in lines[1:] for cells in csv.reader([line])]


_EVER = pd.Timestamp("2262-01-01")
_DAY = pd.Timedelta(days=1)


def _from_lists(rows: list[_Row], path: Path) -> list[_Span]:
    """Spans from rows of a date and the tickers from then on."""
    dated: dict[pd.Timestamp, list[str]] = {}
    for number, cells in rows:
        # The list may be one quoted cell, or stand in cells of its own.
        words = [word for cell in cells[1:] for word in re.split(r"[,;\s]+", cell) if word]
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


def _from_spans(rows: list[_Row], path: Path) -> list[_Span]:
    """Spans from rows of a ticker, its first and its last day."""
    for number, cells in rows:
        if len(cells) < 2:
            raise UsageError(f"{path}, line {number}: expected ticker,start,end")
    spans = [
        (
            normalise(cells[0], f"{path}, line {number}"),
            _date(cells[1], path, number),
            _date(cells[2], path, number) if len(cells) > 2 and cells[2].strip() else _EVER,
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
