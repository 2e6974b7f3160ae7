"""Adjust stored prices before a session for a split or a change of unit, now and later.

        prices/<source>/adjustments.json   by series, a list of time, factor, whether it is a split,
        and the SHA-256 of the file whose rows it was to adjust first

A source that has not applied a split to its earlier rows sends them unadjusted again. So
adjustments are kept, and each row that arrives is compared with the stored one, which is adjusted.
"""

import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from forecaster.errors import StoreError
from forecaster.files import atomic, read_plain
from forecaster.ingest.store.store import Store

FILE = "adjustments.json"
_PRICES = ("open", "high", "low", "close", "adj_close")
_TIE = 1e-9


class Adjustment(NamedTuple):
    """Rows before ``time`` are multiplied by ``factor``; for a split, volumes are divided by it.

    A factor of 1 stands for a jump that is not to be adjusted. While the file of the series has the
    hash ``of``, its rows are not adjusted yet: the command was interrupted.
    """

    time: str
    factor: float
    split: bool
    of: str = ""

    def before(self, frame: pd.DataFrame) -> np.ndarray:
        """Return which rows the adjustment is for, (row,)."""
        return (frame["ds"] < pd.Timestamp(self.time)).to_numpy()

    def shows(self, frame: pd.DataFrame) -> bool:
        """Return whether the rows of a series move by about the factor at the time."""
        column = _price_in(frame)
        if column is None:
            return False
        before, prices = self.before(frame), frame[column].to_numpy(float)
        earlier, later = (part[np.isfinite(part)] for part in (prices[before], prices[~before]))
        if not len(earlier) or not len(later):
            return False
        left = np.log(later[0] / earlier[-1]) - np.log(self.factor)
        return bool(abs(left) <= abs(np.log(self.factor)) / 2)

    def applied(self, frame: pd.DataFrame, rows: np.ndarray | None = None) -> pd.DataFrame:
        """Return a series with the rows before the time, or some of them, adjusted."""
        rows = self.before(frame) if rows is None else rows
        frame = frame.copy()
        for name in _PRICES:
            if name in frame:
                frame[name] = frame[name].where(~rows, frame[name] * self.factor)
        if self.split and "volume" in frame:
            frame["volume"] = frame["volume"].where(~rows, frame["volume"] / self.factor)
        return frame


def read_adjustments(folder: Path) -> dict[str, list[Adjustment]]:
    """Read the adjustments of a store, by series. Raises StoreError when the file is damaged."""
    path = folder / FILE
    try:
        content = json.loads(read_plain(path))
        return {
            str(name): [
                Adjustment(str(t), float(f), bool(s), *map(str, of)) for t, f, s, *of in each
            ]
            for name, each in content.items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise StoreError(f"{path}: cannot be read: {error}; remove it, and adjust again") from error


def write_adjustments(folder: Path, adjustments: Mapping[str, list[Adjustment]]) -> None:
    """Write the adjustments of a store; without any, remove the file. Raises WriteError."""
    path = folder / FILE
    if adjustments:
        text = json.dumps({name: [list(one) for one in each] for name, each in adjustments.items()})
        atomic.write_file(path, lambda to: to.write_text(text, "utf-8"))
        return
    atomic.remove_file(path)


def read_adjusted(store: Store, name: str, adjustments: Sequence[Adjustment]) -> pd.DataFrame:
    """Return the stored rows of a series with all its adjustments; errors as of the store."""
    frame = store.read_one(name)
    for one in adjustments:
        if one.of == store.index.series[name].sha256:
            frame = one.applied(frame)
    return frame


def adjusted(
    frame: pd.DataFrame,
    adjustments: Sequence[Adjustment],
    stored: pd.DataFrame | None,
    came: np.ndarray | None = None,
) -> tuple[pd.DataFrame, list[np.ndarray]]:
    """Return a series with its adjustments, and for each one the rows that it changed, (row,).

    A row that its source has restated is on the scale of the stored rows, which are adjusted. Any
    other is multiplied by those factors that bring it nearest to the stored one, once a rescaling
    of all rows, such as a later split, is taken out: the rows after all adjusted times show it. A
    row that is not stored is treated like the nearest one that came and is.

    - ``frame``: rows as the source has them; among them may be stored ones
    - ``stored``: the rows of the series before, adjusted; None: there are none, and an adjustment
      is applied if its jump shows
    - ``came``: the rows of the frame that came from the source, (row,); None: all
    """
    if not adjustments:
        return frame, []
    came = np.ones(len(frame), bool) if came is None else came
    rows = [np.zeros(len(frame), bool) for _ in adjustments]
    column = None if stored is None else _price_in(frame, stored)
    if stored is None or column is None:
        for number in sorted(range(len(rows)), key=lambda k: adjustments[k].time, reverse=True):
            if adjustments[number].shows(frame):
                rows[number] = adjustments[number].before(frame)
                frame = adjustments[number].applied(frame)
        return frame, rows
    factors = np.log([one.factor for one in adjustments])
    before = np.array([one.before(frame) for one in adjustments])
    gap, distance = _gaps(frame, stored, column)
    later = came & ~before.any(0) & (distance == 0) & np.isfinite(gap)
    if later.any():
        gap = np.where(came, gap - np.median(gap[later]), gap)
    groups = np.vstack([before, came]).T  # of rows between two of the adjusted times
    for group in np.unique(groups, axis=0):
        which, every = group[:-1], np.flatnonzero((group == groups).all(1))
        part = every[np.isfinite(gap[every])]
        if not len(part):
            continue
        part = part[distance[part] == distance[part].min()]  # those that are stored, if any are
        chosen = _nearest_factors(gap[part], np.where(which, factors, 0.0))
        for its, like in zip(rows, chosen[:, _nearest(part, every)], strict=True):
            its[every] = like
    for one, its in zip(adjustments, rows, strict=True):
        if its.any():
            frame = one.applied(frame, its)
    return frame, rows


def told(
    frame: pd.DataFrame,
    adjustments: Sequence[Adjustment],
    rows: Sequence[np.ndarray],
    came: np.ndarray,
) -> str:
    """Say how many of the rows that came from the source were adjusted, and how many it restated.

    - ``rows``: for each adjustment, the rows that it changed, (row,)
    - ``came``: the rows that came from the source, (row,)
    """
    said: list[str] = []
    for one, its in zip(adjustments, rows, strict=True):
        if one.factor == 1:
            continue
        where = f"before {one.time}"
        if number := int((its & came).sum()):
            said.append(f"{number:,} rows {where} came unadjusted: times {one.factor:.6g}")
        if number := int((one.before(frame) & ~its & came).sum()):
            said.append(f"{number:,} rows {where} came restated: kept")
    return "; ".join(said)


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
    """Return the positions of the numbers, sorted, that are nearest to others."""
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
