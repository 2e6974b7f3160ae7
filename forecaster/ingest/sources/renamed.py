"""A source in which some tickers were renamed: rows under either name belong to the new one."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from forecaster.errors import UsageError
from forecaster.ingest.sources.future import is_of_future
from forecaster.ingest.sources.lost import lost_from, why_suspect
from forecaster.ingest.sources.source import Date, Fetched, Known, Source


class Renamed:
    """A source and the new names of its tickers, by the old ones.

    The source may have all rows under the new name, only those since the renaming, or still those
    before it under the old name. Rows that it has no longer are taken from the store, up to the
    first row that it has under the new name; a series that now begins after the time in ``since``
    lacks rows that the source had.

    ``began``: by new name, the first row that was fetched under it
    """

    def __init__(
        self,
        source: Source,
        renames: Mapping[str, str],
        since: Mapping[str, pd.Timestamp] | None = None,
    ):
        self._source, self._renames, self._since = source, renames, since or {}
        self.name = source.name
        self.began: dict[str, pd.DataFrame] = {}

    def fingerprint(self) -> str | None:
        """Return the source's own."""
        return self._source.fingerprint()

    def tickers(self) -> list[str]:
        """Return all series of the source, under their new names."""
        return renamed(self._source.tickers(), self._renames)

    def fetch(
        self, tickers: Sequence[str], start: Date | None = None, known: Known | None = None
    ) -> Iterator[Fetched]:
        """Yield each series with the rows of its earlier names; see :class:`Source`."""
        new = set(self._renames.values())
        plain = [name for name in tickers if name not in new]
        if plain:
            yield from self._source.fetch(plain, start, known)
        if not (asked := [name for name in tickers if name in new]):
            return
        if self._source.fingerprint() is None:  # such sources have all rows under the new name
            yield from self._source.fetch(asked, start, known)
            return
        held: set[str] = set()
        with contextlib.suppress(UsageError):
            held = set(self._source.tickers())
        olds = [old for old, to in self._renames.items() if to in asked and old in held]
        earlier = {one.unique_id: one.frame for one in self._source.fetch(olds, start)}
        for item in self._source.fetch(asked, start):
            if item.frame is not None and not item.frame.empty:
                self.began[item.unique_id] = item.frame.iloc[:1]
            parts = [earlier[old] for old in olds if self._renames[old] == item.unique_id]
            since = self._since.get(item.unique_id)
            yield _joined(item, [part for part in parts if part is not None], known, since)


def renamed(names: Sequence[str], renames: Mapping[str, str]) -> list[str]:
    """Return names with the new ones in place of the old ones, each once."""
    return list(dict.fromkeys(renames.get(name, name) for name in names))


def joined_rows(earlier: pd.DataFrame, later: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of one series before the first row of another, and those of the other."""
    before = earlier[earlier["ds"] < later["ds"].iloc[0]]
    name = later["unique_id"].iloc[0]
    return pd.concat([before.assign(unique_id=name), later], ignore_index=True)


def _joined(
    item: Fetched,
    earlier: Sequence[pd.DataFrame],
    known: Known | None,
    since: pd.Timestamp | None,
) -> Fetched:
    """Return a series with the rows of its earlier names, and stored ones before all of these."""
    frame = item.frame
    for part in sorted(earlier, key=lambda part: part["ds"].iloc[-1], reverse=True):
        frame = part.assign(unique_id=item.unique_id) if frame is None else joined_rows(part, frame)
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
