"""A source in which some tickers were renamed: rows under either name belong to the new one."""

import contextlib
import functools
import warnings
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from forecaster.errors import ForecasterWarning, UsageError
from forecaster.ingest.sources.future import is_of_future
from forecaster.ingest.sources.lost import VANISHED, lost_from, why_suspect, with_lost
from forecaster.ingest.sources.source import Date, Fetched, Known, Source
from forecaster.series import show_time

SAME = 0.02  # maximum spread of the log ratio of two closes that belong to one series
_OTHER = 0.25  # minimum median move of the log ratio of two series, in median moves of one


class Renamed:
    """A source and the new names of its tickers, by the old ones.

    The source may have all rows under the new name, only those since the renaming, or still those
    before it under the old name. Rows that it has no longer are taken from the store, up to the
    first row that it has under the new name; a series that now begins after the time in ``since``
    lacks rows that the source had.

    Rows under an old name that are not before the first one under the new name are those of another
    series, to which the symbol was given; except where they repeat the rows under the new name.
    Earlier ones that contradict the stored rows are left out, and this is said.

    - ``since``: by new name, the first row that the source had under it; a refresh moves it
    - ``until``: by old name, the first row that the source ever had under the new name; fetching
      completes it
    - ``began``: by new name, the first row that was fetched under it
    """

    def __init__(
        self,
        source: Source,
        renames: Mapping[str, str],
        since: Mapping[str, pd.Timestamp] | None = None,
        until: Mapping[str, pd.Timestamp | int] | None = None,
    ):
        self._source, self._renames, self._since = source, renames, since or {}
        self.name = source.name
        self.began: dict[str, pd.DataFrame] = {}
        self.until = {old: time for old, time in (until or {}).items() if old in renames}

    def fingerprint(self) -> str | None:
        """Return the source's own."""
        return self._source.fingerprint()

    def tickers(self) -> list[str]:
        """Return all series of the source, under their new names, and those given an old name."""
        names: list[str] = []
        for name in self._source.tickers():
            names += [name] if name in self.given else []
            if name not in self.given or len(self._earlier[name]):
                names.append(self._renames.get(name, name))
        return list(dict.fromkeys(names))

    @property
    def given(self) -> dict[str, pd.DataFrame]:
        """The rows of other series by the old name that each was given."""
        return self._parted[1]

    @property
    def _earlier(self) -> dict[str, pd.DataFrame]:
        """The rows under each old name that belong to the new one."""
        return self._parted[0]

    @functools.cached_property
    def _parted(self) -> tuple[dict[str, pd.DataFrame], dict[str, pd.DataFrame]]:
        """Return the rows under old names that belong to the new ones, and those that do not."""
        earlier: dict[str, pd.DataFrame] = {}
        given: dict[str, pd.DataFrame] = {}
        held: set[str] = set()
        if self.fingerprint() is not None:  # others have all rows under the new name
            with contextlib.suppress(UsageError):
                held = set(self._source.tickers())
        pairs = {old: new for old, new in self._renames.items() if old in held or new in held}
        names = [name for name in dict.fromkeys([*pairs, *pairs.values()]) if name in held]
        fetched = self._source.fetch(names) if names else ()
        frames = {one.unique_id: one.frame for one in fetched}
        for old, new in pairs.items():
            before, after = frames.get(old), frames.get(new)
            if after is not None and not after.empty:
                self.began[new] = after.iloc[:1]
                if (time := _boundary(self.until.get(old), before, after)) is not None:
                    self.until[old] = time
            if before is None:
                continue
            own = _given(before, after, self.until.get(old))
            earlier[old] = before if own is None else before[before["ds"] < self.until[old]]
            if own is not None and len(own):
                given[old] = own
        return earlier, given

    def fetch(
        self, tickers: Sequence[str], start: Date | None = None, known: Known | None = None
    ) -> Iterator[Fetched]:
        """Yield each series with the rows of its earlier names; see :class:`Source`."""
        new = set(self._renames.values())
        plain = [name for name in tickers if name not in new and name not in self._earlier]
        if plain:
            yield from self._source.fetch(plain, start, known)
        for name in tickers:
            if name in self._earlier and name not in self.given:
                yield Fetched(name, None, VANISHED)
        if given := [name for name in tickers if name in self.given]:
            for item in self._source.fetch(given, start, known):
                yield self._without_first(item)
        if not (asked := [name for name in tickers if name in new]):
            return
        if self._source.fingerprint() is None:  # such sources have all rows under the new name
            yield from self._source.fetch(asked, start, known)
            return
        for item in self._source.fetch(asked, start):
            olds = [old for old, to in self._renames.items() if to == item.unique_id]
            parts = [
                self._earlier[old]
                for old in olds
                if len(self._earlier.get(old, ())) and not self._contradicts(old, known)
            ]
            since = self._since.get(item.unique_id)
            yield _joined(item, parts, known, since)

    def _contradicts(self, old: str, known: Known | None) -> bool:
        """Return whether the rows under an old name contradict the stored ones, and say so.

        Most of their changes from row to row are other ones then. Those of one series are the same
        if it is restated, whole or in part, and except for a few if rows are revised.
        """
        new = self._renames[old]
        stored = None if known is None else known(new)
        if stored is None or stored.frame.empty:
            return False
        ratios = log_ratios(stored.frame, self._earlier[old])
        there = stored.frame[stored.frame["ds"].isin(ratios.index)]
        moves = log_ratios(there.assign(ds=there["ds"].shift(-1)), there)
        if not ratios.diff().abs().median() > _OTHER * moves.abs().median():
            return False
        warnings.warn(
            f"{new}: {len(ratios):,} rows under the name {old} are not those of {new} as stored "
            f"({show_time(ratios.index[0])} to {show_time(ratios.index[-1])}) and are left out; if "
            f"they are its rows, give them the name {new} in the source",
            ForecasterWarning,
            stacklevel=2,
        )
        return True

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


def _boundary(
    known: pd.Timestamp | int | None, before: pd.DataFrame | None, after: pd.DataFrame
) -> pd.Timestamp | int | None:
    """Return the first row under a new name; None if it is not known.

    One that is known stays, since a source may add earlier rows under the new name later. If the
    ticker was renamed back, rows under the old name fill a gap, and the one after the gap counts.
    """
    times = after["ds"]
    if known is not None and isinstance(known, int) == (times.dtype.kind != "M"):
        return known
    if before is not None and len(before) and before["ds"].dtype.kind == times.dtype.kind:
        first = before["ds"].iloc[0]
        times = times if (times == first).any() else times[times > first]
    if times.empty:
        return None
    first = times.iloc[0]
    return first if isinstance(first, pd.Timestamp) else int(first)


def _given(
    old: pd.DataFrame, new: pd.DataFrame | None, until: pd.Timestamp | int | None
) -> pd.DataFrame | None:
    """Return the rows under an old name that are of another series; None if that is not known.

    Those that repeat rows under the new name, from the first on, are not; they may be revised.
    """
    if until is None or isinstance(until, int) == (old["ds"].dtype.kind == "M"):
        return None
    own = old[old["ds"] >= until].reset_index(drop=True)
    if new is None or own.empty:
        return own
    ratios = log_ratios(own, new).abs()
    repeats = own["ds"].isin(new["ds"]) & ~own["ds"].isin(ratios.index[ratios > SAME])
    return own[~np.logical_and.accumulate(repeats)]


def _joined(
    item: Fetched,
    earlier: Sequence[pd.DataFrame],
    known: Known | None,
    since: pd.Timestamp | None,
) -> Fetched:
    """Return a series with the rows of its earlier names, and stored ones before all of these."""
    frame = item.frame
    for part in sorted(earlier, key=lambda part: part["ds"].iloc[-1], reverse=True):
        part = part.assign(unique_id=item.unique_id)
        frame = part if frame is None else with_lost(part[~part["ds"].isin(frame["ds"])], frame)
    if frame is None:
        return item
    stored, kept = None if known is None else known(item.unique_id), None
    if stored is not None and len(stored.frame):
        if since is not None and not frame.empty and frame["ds"].iloc[0] > since:
            before = stored.frame[stored.frame["ds"] < since]
        else:
            before = stored.frame
        kept = before["ds"][before["ds"] < frame["ds"].iloc[0]]
        frame = joined_rows(before, frame)
        if not (lost := lost_from(stored.frame, frame)).empty:
            why = why_suspect(lost, stored.frame)
            if item.reason is not None and is_of_future(item.reason):
                why = item.reason  # the rows are there, and are lost only by the clock
            return Fetched(item.unique_id, None, why, suspect=True)
    reason = None if item.frame is None else item.reason
    return item._replace(frame=frame, reason=reason, kept=kept)
