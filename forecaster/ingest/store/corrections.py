"""The dated corrections of a series, whose rows are stored as they were delivered.

They are kept in the entry of the series and in its file, are applied when it is read, and can be
taken back. A source that has not applied a split to its earlier rows sends them unadjusted again,
or has restated them, all or some. So each row that arrives is compared with the stored one.
"""

import dataclasses
import itertools
from datetime import datetime
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np
import pandas as pd

_PRICES = ("open", "high", "low", "close", "adj_close")
_TIE = 1e-9

Time: TypeAlias = datetime | int


class Adjustment(NamedTuple):
    """Rows before ``time`` are multiplied by ``factor``; for a split, volumes are divided by it.

    A factor of 1 stands for a jump that is not to be adjusted.

    ``rows``: the times of the first and the last row of each run of rows that are adjusted; the
    source has restated the others
    """

    time: str
    factor: float
    split: bool
    rows: tuple[tuple[str, str], ...] = ()

    def before(self, times: np.ndarray) -> np.ndarray:
        """Return which rows are before the time, (row,)."""
        return times < np.datetime64(self.time)

    def among(self, times: np.ndarray) -> np.ndarray:
        """Return which rows are adjusted, (row,)."""
        found = np.zeros(len(times), bool)
        for first, last in self.rows:
            found |= (times >= np.datetime64(first)) & (times <= np.datetime64(last))
        return found

    def of(self, times: np.ndarray, rows: np.ndarray) -> "Adjustment":
        """Return the same adjustment of other rows, (row,)."""
        ends = np.flatnonzero(np.diff(rows, prepend=False, append=False)).reshape(-1, 2)
        return self._replace(rows=tuple((str(times[a]), str(times[b - 1])) for a, b in ends))

    def shows(self, frame: pd.DataFrame) -> bool:
        """Return whether the rows of a series move by about the factor at the time."""
        column = _price_in(frame)
        if column is None:
            return False
        before, prices = self.before(frame["ds"].to_numpy()), frame[column].to_numpy(float)
        earlier, later = (part[np.isfinite(part)] for part in (prices[before], prices[~before]))
        if not len(earlier) or not len(later):
            return False
        left = np.log(later[0] / earlier[-1]) - np.log(self.factor)
        return bool(abs(left) <= abs(np.log(self.factor)) / 2)


@dataclasses.dataclass(frozen=True)
class Corrections:
    """The corrections of a series.

    - ``adjustments``: for splits and changes of currency
    - ``names``: its former names, and the time of the first row that the source ever had under its
      present one; later rows under the former name are of another series. None: there was no such
      row yet
    """

    adjustments: tuple[Adjustment, ...] = ()
    names: dict[str, Time | None] = dataclasses.field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.adjustments or self.names)

    @staticmethod
    def read(text: str | None) -> "Corrections":
        """Read the corrections of a file of a series. Raises ValueError."""
        return Corrections() if text is None else msgspec.json.decode(text, type=Corrections)

    def text(self) -> str | None:
        """Return the corrections as the file of the series holds them; None: there are none."""
        return msgspec.json.encode(self).decode() if self else None

    def factor(self, column: str, times: np.ndarray) -> np.ndarray | None:
        """Return what the rows of a column are multiplied by, (row,); None: it is not adjusted."""
        factor = None
        for one in self.adjustments:
            if one.rows and (column in _PRICES or (one.split and column == "volume")):
                by = one.factor if column in _PRICES else 1 / one.factor
                factor = np.where(one.among(times), by, 1.0) * (1.0 if factor is None else factor)
        return factor

    def applied(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return the delivered rows of a series with the corrections."""
        times = frame["ds"].to_numpy()
        factors = {str(column): self.factor(str(column), times) for column in frame}
        return frame.assign(**{c: frame[c] * f for c, f in factors.items() if f is not None})

    def of_rows(
        self, frame: pd.DataFrame, stored: pd.DataFrame | None, came: np.ndarray | None = None
    ) -> "Corrections":
        """Return the corrections of a series that was delivered again.

        A row that the source has restated is on the scale of the stored rows, which are corrected.
        Any other is multiplied by those factors that bring it nearest to the stored one, once a
        rescaling of all rows, such as a later split, is taken out: the rows after all adjusted
        times show it. A row that is not stored is treated like the nearest one that came and is.

        - ``frame``: rows as the source has them; among them may be stored ones as they were
          delivered
        - ``stored``: the rows of the series before, corrected; None: there are none, and an
          adjustment is applied if its jump shows
        - ``came``: the rows of the frame that came from the source, (row,); None: all. Others stay
          as they are
        """
        if not (its := self.adjustments):
            return self
        times = frame["ds"].to_numpy()
        before = np.array([one.before(times) for one in its])  # (adjustment, row)
        column = None if stored is None else _price_in(frame, stored)
        if stored is None or column is None:
            rows = [one.shows(frame) & part for one, part in zip(its, before, strict=True)]
        else:
            came = np.ones(len(frame), bool) if came is None else came
            rows = np.array([one.among(times) for one in its])
            factors = np.log([one.factor for one in its])
            gaps = _gaps(frame[came], stored, column)
            rows[:, came] = _adjusted(before[:, came], factors, *gaps)
        made = (one.of(times, each) for one, each in zip(its, rows, strict=True))
        return dataclasses.replace(self, adjustments=tuple(made))


NONE = Corrections()


def told(corrections: Corrections, frame: pd.DataFrame, came: np.ndarray) -> str:
    """Say how many of the rows that came from the source are adjusted, and how many it restated.

    ``came``: the rows of the frame that came from the source, (row,)
    """
    said: list[str] = []
    times = frame["ds"].to_numpy()
    for one in corrections.adjustments:
        if one.factor == 1:
            continue
        where, its = f"before {one.time}", one.among(times)
        if number := int((its & came).sum()):
            said.append(f"{number:,} rows {where} came unadjusted: times {one.factor:.6g}")
        if number := int((one.before(times) & ~its & came).sum()):
            said.append(f"{number:,} rows {where} came restated: kept")
    return "; ".join(said)


def _adjusted(
    before: np.ndarray, factors: np.ndarray, gap: np.ndarray, distance: np.ndarray
) -> np.ndarray:
    """Return which rows that came are to be adjusted, (adjustment, row).

    - ``before`` (adjustment, row): the rows before each time
    - ``factors`` (adjustment,): the logarithms of the factors
    - ``gap``, ``distance`` (row,): see :func:`_gaps`
    """
    later = ~before.any(0) & (distance == 0) & np.isfinite(gap)
    if later.any():
        gap = gap - np.median(gap[later])
    chosen = np.zeros_like(before)
    for group in np.unique(before, axis=1).T:  # of rows between two of the times
        its = np.flatnonzero((group == before.T).all(1))
        seen = its[np.isfinite(gap[its])]
        if len(seen):
            seen = seen[distance[seen] == distance[seen].min()]  # those that are stored, if any are
            best = _nearest_factors(gap[seen], np.where(group, factors, 0.0))
            chosen[:, its] = best[:, _nearest(seen, its)]
    return chosen


def _price_in(*frames: pd.DataFrame) -> str | None:
    """Return the column of prices that frames are compared by; None if they share none."""
    return next((n for n in ("close", *_PRICES) if all(n in each for each in frames)), None)


def _gaps(frame: pd.DataFrame, stored: pd.DataFrame, column: str) -> tuple[np.ndarray, np.ndarray]:
    """Return by how much each row lies below the stored row nearest in time, and how far that is.

    The first, (row,), is of logarithms; NaN where it is not known. The second is in nanoseconds.
    """
    stored = stored[stored[column] > 0]
    if stored.empty:
        return np.full(len(frame), np.nan), np.zeros(len(frame))
    times, known = (each["ds"].to_numpy().astype("datetime64[ns]").astype(np.int64)
                    for each in (frame, stored))  # fmt: skip
    at = _nearest(known, times)
    prices = frame[column].where(frame[column] > 0).to_numpy(float)
    return np.log(stored[column].to_numpy(float)[at] / prices), np.abs(known[at] - times)


def _nearest(known: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Return the positions of the numbers, sorted, that are nearest to others; of two the first."""
    after = np.searchsorted(known, wanted).clip(0, len(known) - 1)
    before = (after - 1).clip(0)
    return np.where(wanted - known[before] <= known[after] - wanted, before, after)


def _nearest_factors(gap: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Return which of the logarithms, that are not 0, add up to nearly each gap, (factor, row)."""
    best, chosen = np.full(len(gap), np.inf), np.zeros((len(factors), len(gap)), bool)
    for some in itertools.product(*((False, True) if factor else (False,) for factor in factors)):
        left = np.abs(gap - factors @ np.array(some))
        better = left < best - _TIE
        best = np.where(better, left, best)
        chosen[:, better] = np.array(some)[:, None]
    return chosen
