"""A source in which some tickers were renamed: rows under either name belong to the new one."""

import contextlib
import functools
import warnings
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from forecaster.errors import ForecasterWarning, SourceError, UsageError
from forecaster.ingest.sources.lost import VANISHED
from forecaster.ingest.sources.source import Date, Fetched, Known, Source, Stored
from forecaster.ingest.store.corrections import Time
from forecaster.series import show_time

SAME = 0.02  # maximum spread of the log ratio of two closes that belong to one series


class Renamed:
    """A source and the former names of its series.

    A rename is dated by the first row that the source ever had under the new name. Rows under the
    old name belong to the new one before that date, and to another series from then on, unless they
    repeat rows under the new name. Once another series has the old name, nothing under it belongs
    to the new one any more. Rows before the date that the source has no longer are taken from the
    store.

    - ``names``: by new name, the former names and their dates; None: there was no row under the new
      name yet. Fetching completes the dates
    - ``stored``: the series of the store
    - ``asked``: the names that a caller asks for. Only for these is it looked whether another
      series has an old name now, where the source cannot list its series
    """

    def __init__(
        self,
        source: Source,
        names: Mapping[str, Mapping[str, Time | None]],
        stored: Container[str],
        asked: Sequence[str] = (),
    ):
        self._source, self._stored, self._asked = source, stored, asked
        self.name = source.name
        self.names = {new: dict(olds) for new, olds in names.items()}
        self._new = {old: new for new, olds in names.items() for old in olds}

    def fingerprint(self) -> str | None:
        """Return the source's own."""
        return self._source.fingerprint()

    def tickers(self) -> list[str]:
        """Return all series of the source, under their new names, and those given an old name."""
        given = self.given
        there = (n if n in given else self._new.get(n, n) for n in self._source.tickers())
        return list(dict.fromkeys(there))

    @property
    def given(self) -> dict[str, pd.DataFrame]:
        """The rows of other series by the old name that each was given."""
        return {old: own for old, (_, own) in self._parted.items() if len(own)}

    @functools.cached_property
    def _held(self) -> set[str]:
        """The names that the source has rows under, or may have if only fetching shows them."""
        if self.fingerprint() is None:
            olds = [old for old in self._asked if old in self._new and old not in self._stored]
            return {*olds, *(self._new[old] for old in olds)}
        with contextlib.suppress(UsageError):
            return set(self._source.tickers())
        return set()

    @functools.cached_property
    def _parted(self) -> dict[str, tuple[pd.DataFrame, pd.DataFrame]]:
        """The rows under each old name: those of the new one, and those of another series."""
        names = [name for name in dict.fromkeys([*self._new, *self.names]) if name in self._held]
        frames: dict[str, pd.DataFrame] = {}
        with contextlib.suppress(SourceError):  # it will be raised when series are fetched
            fetched = self._source.fetch(names) if names else ()
            frames = {one.unique_id: one.frame for one in fetched if one.frame is not None}
        found: dict[str, tuple[pd.DataFrame, pd.DataFrame]] = {}
        for old, new in self._new.items():
            date = _date(self.names[new][old], frames.get(old), frames.get(new))
            self.names[new][old] = date
            if old in frames:
                found[old] = _parts(frames[old], frames.get(new), date)
        return found

    def fetch(
        self, tickers: Sequence[str], start: Date | None = None, known: Known | None = None
    ) -> Iterator[Fetched]:
        """Yield each series with the rows of its earlier names; see :class:`Source`."""
        if self.fingerprint() is None:  # such sources have all rows under the new name
            yield from self._source.fetch(tickers, start, known)
            return
        plain, given = (
            [n for n in tickers if n not in self.names and n not in self._parted],
            self.given,
        )
        if plain:
            yield from self._source.fetch(plain, start, known)
        for name in tickers:
            if name in self._parted and name not in given:
                yield Fetched(name, None, VANISHED)
        if reused := [name for name in tickers if name in given]:
            for item in self._source.fetch(reused, start, known):
                yield self._without_first(item)
        asked = {self._present(name): name for name in tickers if name in self.names}
        if asked:
            for item in self._source.fetch(list(asked), start, self._known_now(asked, known)):
                yield self._with_earlier(item, asked[item.unique_id], known)

    def _present(self, name: str) -> str:
        """Return the name under which the source has the rows of a series now."""
        olds = self.names[name]
        if name in self._held or any(time is not None for time in olds.values()):
            return name
        return next((old for old in olds if old in self._parted), name)

    def _known_now(self, asked: Mapping[str, str], known: Known | None) -> Known | None:
        """Return the stored rows that the source should still have under the present name."""

        def known_now(present: str) -> Stored | None:
            stored = None if known is None else known(asked[present])
            if stored is None or stored.frame.empty:
                return stored
            _, later = self._divided(stored.frame, asked[present])
            for rows in self._earlier(asked[present], present).values():
                later = later[~later["ds"].isin(rows["ds"])]
            return stored._replace(frame=later.reset_index(drop=True))

        return None if known is None else known_now

    def _divided(self, frame: pd.DataFrame, name: str) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the rows of a series that came under old names, and those after."""
        dates: list[Any] = [time for time in self.names[name].values() if _is_of(time, frame)]
        return _divided(frame, max(dates, default=None))

    def _is_reused(self, old: str) -> bool:
        """Return whether another series has an old name."""
        return old in self.given or old in self._stored

    def _earlier(self, name: str, present: str) -> dict[str, pd.DataFrame]:
        """Return the rows that the source has under other names of a series, by old name."""
        return {
            old: self._parted[old][0]
            for old in self.names[name]
            if old in self._parted and old != present and not self._is_reused(old)
        }

    def _with_earlier(self, item: Fetched, name: str, known: Known | None) -> Fetched:
        """Return a series with the rows of its old names, or else the stored ones."""
        if item.frame is None:
            return item._replace(unique_id=name)
        stored = None if known is None else known(name)
        early = item.frame[:0]
        if stored is not None and len(stored.frame):
            early, _ = self._divided(stored.frame, name)
        for old in self.names[name]:
            if old in self._parted and self._is_reused(old):
                _tell_left_out(name, old, self._parted[old][0], early)
        came = [item.frame, *self._earlier(name, item.unique_id).values()]
        whole = pd.concat([*came, early]).drop_duplicates("ds").sort_values("ds", ignore_index=True)
        whole.attrs = dict(item.frame.attrs)
        times = [each["ds"] for each in came]
        kept = whole["ds"][~whole["ds"].isin(pd.concat(times))]
        kept = kept if item.kept is None else pd.concat([kept, item.kept])
        return item._replace(unique_id=name, frame=whole.assign(unique_id=name), kept=kept)

    def _without_first(self, item: Fetched) -> Fetched:
        """Return a series without the rows of the one that had its name before."""
        if item.frame is None:
            return item
        times = self.given[item.unique_id]["ds"]
        times = times if item.kept is None else pd.concat([times, item.kept])
        frame = item.frame[item.frame["ds"].isin(times)]
        return item._replace(frame=frame.reset_index(drop=True))


def renamed(names: Sequence[str], renames: Mapping[str, str]) -> list[str]:
    """Return names with the new ones in place of the old ones, each once."""
    return list(dict.fromkeys(renames.get(name, name) for name in names))


def first_time(frame: pd.DataFrame) -> Time:
    """Return the time of the first row."""
    first = frame["ds"].iloc[0]
    return first if isinstance(first, pd.Timestamp) else int(first)


def joined_rows(earlier: pd.DataFrame, later: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of one series before the first row of another, and those of the other."""
    before = earlier[earlier["ds"] < later["ds"].iloc[0]]
    name = later["unique_id"].iloc[0]
    return pd.concat([before.assign(unique_id=name), later], ignore_index=True)


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
        warnings.warn(
            f"{name}: {len(others):,} rows under the name {old} are not those of {name} as stored "
            f"({show_time(others[0])} to {show_time(others[-1])}) and are left out; if they are "
            f"its rows, give them the name {name} in the source",
            ForecasterWarning,
            stacklevel=2,
        )
