"""Read which tickers belonged to a universe at which time (point-in-time membership).

A CSV file with the columns ``ticker,start,end``, beside others, has a row for each span of time in
which a ticker belonged, both ends included; an empty end means that the ticker still belongs.
Commas, semicolons or tabs separate the cells.

Tickers beside a column whose name is that of dates, such as ``start`` alone or ``exit_date``, are
refused, since they would otherwise be taken for a list of today's members.
"""

import dataclasses
import re
from datetime import datetime
from pathlib import Path

import numpy as np
import pandas as pd

from forecaster.errors import UsageError
from forecaster.ingest.tickers.universe import (
    Row,
    find_universe,
    normalise,
    read_rows,
    ticker_column,
)

_DATES = {"date", "year", "quarter", "month", "week", "added", "listed", "to", "in", "out"}
_BOUNDS = {
    "start", "begin", "end", "from", "entry", "exit", "first", "since", "until", "thru", "delisted",
    "removed",
}  # fmt: skip
_EXPECTED = "expected ticker,start,end, a row for each span of time in which a ticker belonged"
_EVER = pd.Timestamp("2262-01-01")


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
