"""A source in which some tickers were renamed: rows under either name belong to the new one."""

import itertools
from collections.abc import Container, Mapping, Sequence
from typing import Any, cast

import numpy as np
import pandas as pd

from forecaster.errors import warn
from forecaster.ingest.sources.source import Fetched, Known, Whole, repeated_time
from forecaster.ingest.store.corrections import Time
from forecaster.series import show_time

SAME = 0.02  # maximum spread of the log ratio of two closes that belong to one series


class Renamed(Whole):
    """A source and the former names of its series.

    A rename is dated by the first row that the source ever had under the new name. Rows under the
    old name belong to the new one before that date, and to another series from then on, unless they
    repeat rows under the new name. Once another series has the old name, nothing under it belongs
    to the new one any more. Rows before the date that the source has no longer are taken from the
    store.

    - ``names``: by new name, the former names and their dates; None: there was no row under the new
      name yet. Reading completes the dates
    - ``stored``: the series of the store
    - ``given``: the rows of other series by the old name that each was given, once it is read
    """

    def __init__(
        self,
        source: Whole,
        names: Mapping[str, Mapping[str, Time | None]],
        stored: Container[str],
    ):
        self._source, self._stored = source, stored
        self.name, self.where, self.lost = source.name, source.where, source.lost
        self.frequency = source.frequency
        self.names = {new: dict(olds) for new, olds in names.items()}
        self.given: dict[str, pd.DataFrame] = {}
        # By new and old name, the rows before the date of a name that another series has.
        self._left_out: dict[str, dict[str, pd.DataFrame]] = {}

    def fingerprint(self) -> str:
        """Return the source's own."""
        return self._source.fingerprint()

    def read(self) -> tuple[dict[str, pd.DataFrame], Mapping[str, str]]:
        """Read the source's series, those that were renamed with the rows of their old names."""
        frames, failed = dict(self._source.series[0]), self._source.series[1]
        self.unreadable = self._source.unreadable
        concerned = dict.fromkeys([*self.names, *itertools.chain(*self.names.values())])
        raw = {name: frames[name] for name in concerned if name in frames}
        raw = {name: rows for name, rows in raw.items() if repeated_time(rows) is None}
        for new, olds in self.names.items():
            parts: dict[str, pd.DataFrame] = {}
            for old, known in olds.items():
                olds[old] = date = _date(known, raw.get(old), raw.get(new))
                frames.pop(old, None)
                if old in raw:
                    parts[old], own = _parts(raw[old], raw.get(new), date)
                    if len(own):
                        frames[old] = self.given[old] = own
            reused = {old for old in parts if old in self.given or old in self._stored}
            self._left_out[new] = {old: parts[old] for old in reused}
            its = [parts[old] for old in parts if old not in reused]
            if new in raw:
                frames[new] = joined_in_time([raw[new], *its], new)
            elif its and new not in (*frames, *failed) and set(olds.values()) == {None}:
                frames[new] = joined_in_time(its, new)
        return frames, failed

    def compared(self, item: Fetched, known: Known | None) -> Fetched:
        """Return a series, with the stored rows from before it had its name; see :class:`Whole`."""
        name, came = item.unique_id, item.frame
        if came is None or name not in self.names:
            return super().compared(item, known)
        stored, early = None if known is None else known(name), came[:0]
        if stored is not None and len(stored.frame):  # the source need not have rows of old names
            dates = [time for time in self.names[name].values() if _is_of(time, stored.frame)]
            early, later = _divided(stored.frame, max(cast(list[Any], dates), default=None))
            stored = stored._replace(frame=later)
        for old, rows in self._left_out[name].items():
            _tell_left_out(name, old, rows, early)
        item = super().compared(item, lambda _: stored)
        if item.frame is None:
            return item
        whole = joined_in_time([item.frame, early], name)
        return item._replace(frame=whole, kept=whole["ds"][~whole["ds"].isin(came["ds"])])


def joined_in_time(frames: Sequence[pd.DataFrame], name: str) -> pd.DataFrame:
    """Return the rows of several frames as those of one series; of a time the first row."""
    whole = pd.concat(frames).drop_duplicates("ds").sort_values("ds", ignore_index=True)
    whole.attrs = dict(frames[0].attrs)
    return whole.assign(unique_id=name)


def first_time(frame: pd.DataFrame) -> Time:
    """Return the time of the first row."""
    first = frame["ds"].iloc[0]
    return first.to_pydatetime() if isinstance(first, pd.Timestamp) else int(first)


def log_ratios(before: pd.DataFrame, after: pd.DataFrame) -> pd.Series:
    """Return by time the logarithm of what one series' target is in another's, where both have one.

    It is infinite where there is none.
    """
    column = next(name for name in ("close", "y", *before) if name in before and name in after)
    both = before[["ds", column]].merge(after[["ds", column]], on="ds", suffixes=("", " new"))
    both = both.dropna().set_index("ds").astype(float)
    equal = np.isclose(both[column], both[f"{column} new"])
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.log(both[f"{column} new"].to_numpy() / both[column].to_numpy())
    ratios = np.where(equal, 0.0, np.where(np.isnan(ratios), np.inf, ratios))
    return pd.Series(ratios, both.index)


def _is_of(time: Time | None, frame: pd.DataFrame) -> bool:
    """Return whether a time is of the kind of a series' times: a date, or a whole number."""
    return time is not None and isinstance(time, int) == (frame["ds"].dtype.kind != "M")


def _date(known: Time | None, old: pd.DataFrame | None, new: pd.DataFrame | None) -> Time | None:
    """Return the first row under a new name; None if it is not known.

    One that is known stays, since a source may add earlier rows under the new name later. If the
    ticker was renamed back, rows under the old name fill a gap, and the one after the gap counts.
    """
    if new is None or new.empty or _is_of(known, new):
        return known
    if old is not None and len(old) and _is_of(first_time(old), new):
        first = first_time(old)
        if not (new["ds"] == first).any():
            new = new[new["ds"] > first]
    return None if new.empty else first_time(new)


def _divided(frame: pd.DataFrame, date: Time | None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows before a date, and those from it on."""
    if not _is_of(date, frame):
        return frame[:0], frame
    before = frame["ds"] < date
    return frame[before].reset_index(drop=True), frame[~before].reset_index(drop=True)


def _parts(
    old: pd.DataFrame, new: pd.DataFrame | None, date: Time | None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the rows under an old name that are of the new one, and those of another series.

    Those that repeat rows under the new name, from its first on, are neither; they may be revised.
    """
    if not _is_of(date, old):
        return old, old[:0]
    before, own = _divided(old, date)
    if new is not None and len(own):
        ratios = log_ratios(own, new).abs()
        repeats = own["ds"].isin(new["ds"]) & ~own["ds"].isin(ratios.index[ratios > SAME])
        own = own[~np.logical_and.accumulate(repeats)]
    return before, own


def _tell_left_out(name: str, old: str, rows: pd.DataFrame, stored: pd.DataFrame) -> None:
    """Say which rows under an old name, that another series has now, are not those stored."""
    ratios = log_ratios(stored, rows) if len(stored) and len(rows) else pd.Series()
    others = ratios.index[ratios != 0]
    if len(others):
        warn(
            f"{name}: {len(others):,} rows under the name {old} are not those of {name} as stored "
            f"({show_time(others[0])} to {show_time(others[-1])}) and are left out; if they are "
            f"its rows, give them the name {name} in the source"
        )
