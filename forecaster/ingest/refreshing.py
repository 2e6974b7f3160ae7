"""Bring a store up to date with a source, and say what happened."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, TypeAlias

import pandas as pd

from forecaster.errors import (
    DataError,
    Kind,
    Skipped,
    SourceError,
    StoreError,
    UsageError,
    listed,
    name_reasons,
    spelled,
    spelling_key,
    spellings,
    warn,
)
from forecaster.files import Home
from forecaster.ingest.review.review import review
from forecaster.ingest.sources.source import (
    VANISHED,
    Date,
    Fetched,
    Source,
    Stored,
    Whole,
    is_of_future,
)
from forecaster.ingest.store.corrections import NONE, Time, told
from forecaster.ingest.store.index import Index, Origin
from forecaster.ingest.store.series_file import Encoded, encode
from forecaster.ingest.store.store import Store
from forecaster.series import nearest_time, show_time

COMMIT_AFTER = 1.0  # seconds between commits, so that an interrupted run loses little
_COMMITTING = 0.05  # maximum share of the time, since a commit writes the whole manifest
_WRITTEN_AHEAD = 8  # series
OnSeries: TypeAlias = Callable[[int, int], None]


class Ingested(NamedTuple):
    """The result of an ingestion.

    - ``ids``: the requested series that are stored
    - ``skipped``: the requested series that are not, with the reason
    - ``stale``: stored series that could not be updated, with the reason
    - ``changed``: number of series that are new or different
    - ``quarantined``: series whose damaged file was set aside, with the damage
    - ``added``: series that were not stored, or were retired, before; empty for a new store
    """

    store: Store
    ids: list[str]
    skipped: dict[str, Skipped]
    stale: dict[str, str]
    changed: int
    quarantined: dict[str, str]
    added: Sequence[str] = ()


def ingest(home: Home, source: Source, tickers: Sequence[str] | None, **options: Any) -> Ingested:
    """Bring the store under ``home`` up to date with a source, as :func:`ingested` does.

    No lock is kept: another process may update the store right after.
    """
    with ingested(home, source, tickers, **options) as arrived:
        return arrived


@contextlib.contextmanager
def ingested(
    home: Home,
    source: Source,
    tickers: Sequence[str] | None,
    *,
    start: Date | None = None,
    refresh: bool = False,
    on_series: OnSeries | None = None,
    on_wait: Callable[[str], None] | None = None,
) -> Iterator[Ingested]:
    """Bring the store under ``home`` up to date with a source, and keep it locked for the block.

    A series that fails keeps what is stored of it. Damaged files are set aside, and their series
    fetched again. Series are stored as they arrive, so an interrupted run can simply be repeated.

    - ``tickers``: the series to fetch; None: all that the source holds, and those stored ones that
      it held before, which are named in ``stale`` if they have vanished, unless they are retired
    - ``start``: the first day to request, for sources that can be asked for a span
    - ``refresh``: whether to read the source again even if it seems unchanged
    - ``on_series(done, total)``: called after each series
    - ``on_wait(message)``: called if another process is updating the same store

    Raises DataError if none of the series is stored in the end, SourceError if the source as a
    whole does not work and some series are not stored.
    """
    store = Store(home.store(source.name), Index(source.name))
    with store.locked(on_wait):
        store.index.frequency = source.frequency if isinstance(source, Whole) else None
        update = _Update(store, source, start, on_series, source.fingerprint())
        yield update.run(tickers, refresh=refresh)


class _Written(NamedTuple):
    """A series that arrived: its file, if it was written, and how its rows were adjusted."""

    item: Fetched
    encoded: Encoded | None = None
    how: str = ""


@dataclasses.dataclass
class _Update:
    """An update of a locked store; the other arguments are those of :func:`ingested`.

    - ``fingerprint``: that of the source
    - ``names``: the former names of series, with dates, where the source has rows under them
    - ``given``: the rows of other series by the former name that each was given
    - ``changed``: number of series that are new or different
    """

    store: Store
    source: Source
    start: Date | None
    on_series: OnSeries | None
    fingerprint: str | None
    names: Mapping[str, Mapping[str, Time | None]] | None = None
    given: Mapping[str, pd.DataFrame] = dataclasses.field(default_factory=dict[str, pd.DataFrame])
    changed: int = 0

    def run(self, tickers: Sequence[str] | None, *, refresh: bool) -> Ingested:
        """Update the store. Raises DataError if none of the series is stored in the end."""
        store, origin = self.store, self.store.index.origin
        active = store.index.latest
        held = [] if origin is None else [*origin.tickers, *origin.failed]
        if refresh or (origin and origin.fingerprint != self.fingerprint):
            origin = None  # the source must be read again
        renames, asked = self._rename(tickers, origin), tickers
        if asked is None:
            asked = origin.tickers if origin else self.source.tickers()
        wanted, vanished = list(dict.fromkeys(renames.get(name, name) for name in asked)), []
        if tickers is None:
            known = spellings(wanted)
            held = [name for name in dict.fromkeys(held) if name in active]
            vanished = [name for name in held if spelled(known, name) is None]
            wanted += vanished
        if quarantined := store.damages([name for name in wanted if name in store]):
            store.quarantine(quarantined)
        store.sweep()
        failed = self._bring_up_to_date(wanted, vanished, origin)
        _review_if_changed(store)
        ids, going = [name for name in wanted if name in store], store.index.latest
        skipped = {
            name: Skipped(Kind.NOT_LOADED, detail=failed.get(name, "not fetched"))
            for name in wanted
            if name not in store
        }
        if not ids:
            raise DataError(
                f"{self.source.name}: no series could be loaded:\n{name_reasons(skipped)}"
            )
        stale = {name: why for name, why in failed.items() if name in going}
        added = [name for name in ids if name in going and name not in active] if active else ()
        return Ingested(store, ids, skipped, stale, self.changed, quarantined, added)

    def _bring_up_to_date(
        self, wanted: Sequence[str], vanished: Sequence[str], origin: Origin | None
    ) -> dict[str, str]:
        """Fetch series unless the source's present content is stored; return why some failed.

        - ``vanished``: those that the source no longer has
        - ``origin``: the source when its present content was read; None: it must be read again
        """
        if origin is not None and self._is_read(origin, wanted):
            return {name: origin.failed[name] for name in wanted if name in origin.failed}
        read: dict[str, Origin] = {}
        try:
            failed = self._fetch(wanted)
            if self.fingerprint is not None:
                failed |= {name: VANISHED for name in vanished if name in failed}
                others = dict(origin.failed) if origin else {}
                for name in wanted:
                    others.pop(name, None)
                read["origin"] = Origin(self.fingerprint, self.source.tickers(), others | failed)
            return failed
        finally:
            self.store.commit(**read)

    def _rename(self, tickers: Sequence[str] | None, origin: Origin | None) -> dict[str, str]:
        """Return the new names of renamed series by the old ones that no other series has."""
        renames, store = self.store.index.renames, self.store
        if not renames:
            return renames
        asked: Sequence[str] = tickers or ()
        if isinstance(self.source, Whole) and self.source.lost:  # others have all by the new name
            from forecaster.ingest.sources.renamed import Renamed

            names = {n: its.names for n, its in store.index.corrections.items() if its.names}
            self.source = renamed = Renamed(self.source, names, store)
            self.names, asked = renamed.names, ()
            if origin is None:
                renamed.tickers()  # reads them
                self.given = renamed.given
        renames = {o: n for o, n in renames.items() if o not in self.given and o not in store}
        for old in asked:
            if new := renames.get(old):
                warn(
                    f"{old}: was renamed, and {new} is fetched in its place. Ask for {new} "
                    f"instead; another series that is called {old} now needs another --home"
                )
        return renames

    def _is_read(self, origin: Origin, wanted: Sequence[str]) -> bool:
        """Return whether the source's present content has been read for all wanted series.

        It must be read again if a series was refused for rows in the future: by now they may be of
        the past.
        """
        series = self.store.index.series
        read = {name for name, one in series.items() if one.fingerprint == self.fingerprint}
        is_early = any(map(is_of_future, origin.failed.values()))
        return not is_early and all(name in read or name in origin.failed for name in wanted)

    def _fetch(self, wanted: Sequence[str]) -> dict[str, str]:
        """Fetch and store series; return why some failed."""
        store, failed = self.store, dict[str, str]()
        for name in wanted:
            if name in self.given and name not in store:
                since = show_time(self.given[name]["ds"].iloc[0])
                warn(
                    f"{name}: was renamed; since {since} the source has another series of this "
                    f"name, which is now stored as {name}"
                )
        arrived: set[str] = set()
        again: dict[str, list[str]] = {}  # series by what is to be said of their adjustments
        committed, pause = time.monotonic(), COMMIT_AFTER
        try:
            for item, encoded, how in self._written(wanted):
                arrived.add(name := item.unique_id)
                if how:
                    again.setdefault(how, []).append(name)
                old = store.index.series.get(name)
                if encoded is not None:
                    self.changed += old is None or old.sha256 != encoded.entry.sha256
                    store.note_written(encoded, self.fingerprint)
                elif not item.unchanged:
                    failed[name] = item.reason or "no reason given"
                    if item.suspect and old is not None and not old.retired:
                        store.mark(name, "suspect", failed[name])
                if (now := time.monotonic()) - committed > pause:
                    store.commit()
                    committed = time.monotonic()
                    pause = max(COMMIT_AFTER, (committed - now) / _COMMITTING)
                if self.on_series:
                    self.on_series(len(arrived), len(wanted))
        except SourceError as error:
            if any(name not in store for name in wanted):
                raise
            failed |= {name: str(error) for name in wanted if name not in arrived}
        for how, names in again.items():
            warn(f"{listed(names)}: {how}")
        return failed

    def _written(self, wanted: Sequence[str]) -> Iterator[_Written]:
        """Yield series as they arrive, each in a file of the store; threads write some ahead.

        Most of the time of small files is that of the disk, so that threads help. Those from the
        network are yielded at once.
        """
        most, ahead = 0 if self.fingerprint is None else _WRITTEN_AHEAD, list[Future[_Written]]()
        with ThreadPoolExecutor() as pool:
            for item in self.source.fetch(wanted, self.start, self._known):
                ahead.append(pool.submit(self._write, item))
                if len(ahead) > most:
                    yield ahead.pop(0).result()
            for job in ahead:
                yield job.result()

    def _write(self, item: Fetched) -> _Written:
        """Write a series that arrived to a file."""
        name, frame, store = item.unique_id, item.frame, self.store
        if frame is None:
            return _Written(item)
        known, asked = store.index.known(name), None
        if self.start is not None and self.fingerprint is None:
            asked = str(nearest_time(self.start).date())
            if known is not None:  # an update keeps the earlier start
                asked = None if known.asked_from is None else min(asked, known.asked_from)
        its, how = NONE if known is None else known.corrections, ""
        if its.adjustments:
            stored = None
            with contextlib.suppress(StoreError, KeyError):  # nothing to compare with
                stored = store.read_one(name)
            came = ~frame["ds"].isin(() if item.kept is None else item.kept).to_numpy()
            its = its.of_rows(frame, stored, came)
            how = told(its, frame, came)
        if self.names is not None:
            its = dataclasses.replace(its, names=dict(self.names.get(name, {})))
        encoded = encode(name, frame, asked_from=asked, corrections=its)
        store.write_file_of(encoded)
        return _Written(item, encoded, how)

    def _known(self, name: str) -> Stored | None:
        """Return the stored series of a ticker, as delivered."""
        entry = self.store.index.known(name)
        with contextlib.suppress(StoreError):
            if entry is not None:
                stored = name in self.store
                frame = self.store.read_delivered(name) if stored else pd.DataFrame()
                return Stored(frame, entry.asked_from)
        return None


def _review_if_changed(store: Store) -> None:
    """Review the store if its prices or the rules have changed since the last review."""
    try:
        store.flags()
    except StoreError:
        review(store)


def refuse_alike(source: Source, tickers: Sequence[str]) -> None:
    """Raise UsageError if a ticker may be any of several series of the source.

    Letter case, and the sign before a share class, do not matter in a list of tickers.
    """
    if source.fingerprint() is None:  # its names are tickers in capitals
        return
    alike: dict[str, list[str]] = {}
    for name in source.tickers():
        alike.setdefault(spelling_key(name), []).append(name)
    for ticker in tickers:
        if len(names := alike.get(spelling_key(ticker), [])) > 1:
            raise UsageError(
                f"--tickers: {ticker!r} may be any of {listed(map(repr, names))} in {source.name}, "
                "whose names differ only in letter case or the sign before a share class; rename "
                "them, or leave out --tickers to take all series"
            )
