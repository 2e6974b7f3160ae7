"""Load panels from a source or from the store, and bring the store up to date with a source."""

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, Unpack, cast

import numpy as np
import pandas as pd

from forecaster.errors import (
    DataError,
    SourceError,
    StoreError,
    UsageError,
    check_whole,
    listed,
    name_reasons,
    warn,
    wrong_argument,
)
from forecaster.home import Home
from forecaster.ingest.frames import Table, panel_of_frame
from forecaster.ingest.review.quality import (
    FLAGS,
    MASKS,
    RULES,
    WRONG,
    find_flags,
    flags_known,
    flags_of,
    without_flagged,
)
from forecaster.ingest.review.review import review, review_now
from forecaster.ingest.sources.compared import VANISHED, Whole, is_of_future
from forecaster.ingest.sources.renamed import Renamed, given_names, renamed
from forecaster.ingest.sources.source import Date, Fetched, Known, Source, Stored
from forecaster.ingest.sources.sources import open_source
from forecaster.ingest.store.corrections import Corrections, told
from forecaster.ingest.store.index import Origin
from forecaster.ingest.store.series_file import Arrays, Encoded, encode
from forecaster.ingest.store.store import Store
from forecaster.ingest.tables.roles import ACTIONS, ColumnOptions, Columns
from forecaster.series import Layout, Panel, end_of_day, nearest_time, show_time
from forecaster.skipped import Kind, Skipped
from forecaster.spelling import spelled, spelling_key, spellings

COMMIT_AFTER = 1.0  # seconds between commits, so that an interrupted run loses little
_COMMITTING = 0.05  # maximum share of the time, since a commit writes the whole manifest
_WRITTEN_AHEAD = 8  # series
OnSeries: TypeAlias = Callable[[int, int], None]


class Ingested(NamedTuple):
    """The result of an ingestion.

    - ``ids``: the requested series that are stored
    - ``skipped``: the requested series that are not, with the reason
    - ``stale``: stored series that could not be updated, with the reason
    - ``partly``: stored series of which some rows of the source were left out, with the reason
    - ``changed``: number of series that are new or different
    - ``quarantined``: series whose damaged file was set aside, with the damage
    - ``added``: series that were not stored, or were retired, before; empty for a new store
    - ``retired``: series of the store of which no more rows are to come
    """

    store: Store
    ids: list[str]
    skipped: dict[str, Skipped]
    stale: dict[str, str]
    changed: int
    quarantined: dict[str, str]
    added: Sequence[str] = ()
    retired: Sequence[str] = ()
    partly: Mapping[str, str] = MappingProxyType({})


def load_panel(
    source: str | Table = "simulated",
    tickers: Sequence[str] | None = None,
    *,
    start: Date | None = None,
    end: Date | None = None,
    seed: int = 0,
    decimal: str | None = None,
    mask: Sequence[str] = WRONG,
    query: str | None = None,
    **columns: Unpack[ColumnOptions],
) -> Panel:
    """Load a panel straight from a source, without storing it.

    - ``source``: ``yahoo``, ``simulated``, ``files:PATH``, ``files:URL``, ``sql:URL``, or a frame
      of pandas, polars or pyarrow: with a row per series and time, with a column per series and
      the times in the index or a column, or as ``yfinance.download`` returns it
    - ``tickers``: the series to load; None: all that the source holds
    - ``start``, ``end``: the first and the last day, both included
    - ``seed``: of the simulated market
    - ``decimal``: the decimal sign in numbers that are text; None: inferred for each file
    - ``mask``: flags whose rows are left out of training, see
      :mod:`forecaster.ingest.review.quality`. The panel still holds these rows, with their flags;
      see :meth:`Panel.masked`. A frame is not reviewed
    - ``query``: of a database: one SELECT, or the name of a table
    - ``id_col, time_col, target_col, date_format, wide``: what the columns hold, if their names do
      not show it; see :class:`forecaster.ingest.ColumnOptions`

    Series that cannot be loaded are named in the panel's ``skipped``.

    Raises DataError if no series can be loaded, UsageError if the source is unknown.
    """
    check_flags(mask := _texts("mask", mask))
    tickers = None if tickers is None else _texts("tickers", tickers)
    check_whole("seed", seed)
    roles = Columns.of(columns)
    if not isinstance(source, str):
        if query is not None:
            raise UsageError("query is for a database; leave it out with a frame")
        panel = panel_of_frame(source, tickers, decimal=decimal, columns=roles)
        return panel.between(start, end)
    opened = open_source(source, seed=seed, decimal=decimal, columns=roles, query=query)
    series, skipped = {}, {}
    for item in opened.fetch(_wanted(opened, tickers), start):
        if item.frame is None:
            skipped[item.unique_id] = _not_loaded(_reason(item))
        else:
            series[item.unique_id] = _arrays_of_frame(item.frame)
            if item.reason is not None:
                warn(f"{item.unique_id}: {item.reason}")
    if not series:
        raise DataError(f"{opened.name}: no series could be loaded:\n{name_reasons(skipped)}")
    panel = Panel.from_arrays(series, skipped).between(None, end)
    if mask and panel.times.dtype.kind == "M":
        panel = panel.with_flags(flags_of(find_flags(panel), mask))
    return panel.between(start, None)


def _arrays_of_frame(frame: pd.DataFrame) -> Arrays:
    channels = tuple(str(name) for name in frame if name not in ("unique_id", "ds", *ACTIONS))
    values = [frame[name].to_numpy(float) for name in channels]  # ten times as fast as all at once
    return Arrays(frame["ds"].to_numpy(), np.stack(values, axis=1), channels)


def ingest(
    home: Home,
    source: Source,
    tickers: Sequence[str] | None,
    *,
    start: Date | None = None,
    refresh: bool = False,
    on_series: OnSeries | None = None,
    on_wait: Callable[[str], None] | None = None,
) -> Ingested:
    """Bring the store under ``home`` up to date with a source; return the result.

    Has the arguments of :func:`ingested`, but keeps no lock: another process may update the store
    right after.
    """
    with ingested(
        home, source, tickers,
        start=start, refresh=refresh, on_series=on_series, on_wait=on_wait,
    ) as arrived:  # fmt: skip
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
    store = Store.open_or_recover(home, source.name)
    with store.locked(on_wait):
        before, active = store.index.origin, _active(store)
        origin = before if not refresh and _is_as_read(source, before) else None
        given: Mapping[str, pd.DataFrame] = {}
        if renames := store.index.renames:
            names = {n: its.names for n, its in store.index.corrections.items() if its.names}
            if isinstance(source, Whole):
                source = Renamed(source, names, store)
                given = source.given if origin is None else {}
                renames = {o: n for o, n in renames.items() if o not in given and o not in store}
            else:
                asked = [name for name in tickers or () if name not in store]
                given = given_names(source, names, asked)
                renames = {o: n for o, n in renames.items() if o not in given and o not in store}
                _tell_renamed({n: renames[n] for n in tickers or () if n in renames})
            tickers = None if tickers is None else renamed(tickers, renames)
        wanted = origin.tickers if origin and tickers is None else _wanted(source, tickers)
        wanted = renamed(wanted, renames)
        vanished = [] if tickers is not None else _vanished(store, before, wanted)
        wanted = [*wanted, *vanished]
        quarantined = store.damages([name for name in wanted if name in store])
        store.quarantine(quarantined)
        store.sweep()
        failed, changed = _known_failures(store, origin, wanted), 0
        if failed is None:
            _tell_given(store, {name: given[name] for name in wanted if name in given})
            failed, changed = _update(store, source, wanted, start, on_series)
            failed = _with_origin(store, source, origin, failed, wanted, vanished)
        _review_if_changed(store)
        arrived = _arrived(store, source, wanted, failed, active)
        yield arrived._replace(changed=changed, quarantined=quarantined)


def _tell_given(store: Store, given: Mapping[str, pd.DataFrame]) -> None:
    """Say which old names of renamed series are those of other series from now on."""
    for name, rows in given.items():
        if name not in store:
            since = show_time(rows["ds"].iloc[0])
            warn(
                f"{name}: was renamed, and its rows from {since} on are of another series, which "
                "is stored under this name"
            )


def _tell_renamed(renames: Mapping[str, str]) -> None:
    """Say which new names are fetched in place of old ones that were asked for."""
    for old, new in renames.items():
        warn(f"{old}: was renamed, and {new} is fetched in its place. Ask for {new} instead")


def _is_as_read(source: Source, origin: Origin | None) -> bool:
    """Return whether the source's present content has been read before."""
    return origin is not None and origin.fingerprint == source.fingerprint()


def _known_failures(
    store: Store, origin: Origin | None, wanted: Sequence[str]
) -> dict[str, str] | None:
    """Return why some wanted series failed before; None if the source must be read again.

    It must be read again, too, if rows were left out because they were dated in the future: by now
    they may be of the past.

    ``origin``: of the source's present content; None: it has not been read yet
    """
    if origin is None or any(map(is_of_future, origin.failed.values())):
        return None
    for name in wanted:
        if not (_is_current(store, name, origin.fingerprint) or name in origin.failed):
            return None
    asked = set(wanted)  # may be many, and so may the failures
    return {name: why for name, why in origin.failed.items() if name in asked}


def _with_origin(
    store: Store,
    source: Source,
    origin: Origin | None,
    failed: dict[str, str],
    wanted: Sequence[str],
    vanished: Sequence[str],
) -> dict[str, str]:
    """Commit what the source held when it was read; return the failures, vanished series named."""
    if (fingerprint := source.fingerprint()) is None:
        return failed
    failed = failed | {name: VANISHED for name in vanished if name in failed}
    asked = set(wanted)
    before = origin.failed if origin else {}
    others = {name: why for name, why in before.items() if name not in asked}
    store.commit_origin(Origin(fingerprint, source.tickers(), others | failed))
    return failed


def _arrived(
    store: Store,
    source: Source,
    wanted: Sequence[str],
    failed: Mapping[str, str],
    active: set[str],
) -> Ingested:
    """Return the result of an update. Raises DataError if none of the series is stored.

    ``active``: the stored series before it that were not retired
    """
    retired = store.index.retired
    ids = [name for name in wanted if name in store]
    missing = [name for name in wanted if name not in store]
    skipped = {name: _not_loaded(failed.get(name, "not fetched")) for name in missing}
    if not ids:
        raise DataError(f"{source.name}: no series could be loaded:\n{name_reasons(skipped)}")
    gone = set(retired)
    there = {name: why for name, why in failed.items() if name in store and name not in gone}
    fingerprint = source.fingerprint()
    read = {n for n in there if fingerprint and _is_current(store, n, fingerprint)}
    stale = {name: why for name, why in there.items() if name not in read}
    partly = {name: why for name, why in there.items() if name in read}
    added = [name for name in ids if name not in active and name not in gone]
    return Ingested(store, ids, skipped, stale, 0, {}, added if active else (), retired, partly)


def _active(store: Store) -> set[str]:
    """Return the stored series that are not retired."""
    return set(store.ids) - set(store.index.retired)


def _vanished(store: Store, before: Origin | None, names: Sequence[str]) -> list[str]:
    """Return the active stored series that the source held before, but that ``names`` lack."""
    if before is None:
        return []
    known, active = spellings(names), _active(store)
    held = dict.fromkeys([*before.tickers, *before.failed])
    return [name for name in held if name in active and spelled(known, name) is None]


def _review_if_changed(store: Store) -> None:
    """Review the store if its prices or the rules have changed since the last review.

    An interrupted update counts as a change.
    """
    try:
        outdated = store.flags().attrs["rules"] != RULES
    except StoreError:
        outdated = True
    if outdated:
        review(store)


def _is_current(store: Store, name: str, fingerprint: str | None) -> bool:
    """Return whether a series was read from the source in its present state."""
    return name in store and store.index.series[name].fingerprint == fingerprint


def _update(
    store: Store,
    source: Source,
    wanted: list[str],
    start: Date | None,
    on_series: OnSeries | None,
) -> tuple[dict[str, str], int]:
    """Fetch and store series; return why some failed, and how many changed."""
    failed: dict[str, str] = {}
    arrived: set[str] = set()
    again: dict[str, list[str]] = {}  # series by what is to be said of their adjustments
    before = dict(store.index.series)
    fingerprint = source.fingerprint()
    committed, pause = time.monotonic(), COMMIT_AFTER
    try:
        for item, encoded, how in _written(store, source, wanted, start):
            arrived.add(item.unique_id)
            if how:
                again.setdefault(how, []).append(item.unique_id)
            if encoded is not None:
                store.note_written(encoded, fingerprint)
            if item.reason is not None or (encoded is None and not item.unchanged):
                failed[item.unique_id] = _reason(item)
                if item.suspect or encoded is not None:
                    store.suspect(item.unique_id, _reason(item))
            if (now := time.monotonic()) - committed > pause:
                store.commit()
                committed = time.monotonic()
                pause = max(COMMIT_AFTER, (committed - now) / _COMMITTING)
            if on_series:
                on_series(len(arrived), len(wanted))
    except SourceError as error:
        store.commit()
        if any(name not in store for name in wanted):
            raise
        failed |= {name: str(error) for name in wanted if name not in arrived}
    except BaseException:
        store.commit()
        raise
    store.commit()
    for how, names in again.items():
        warn(f"{listed(names)}: {how}")
    return failed, sum(_differs(store, name, before) for name in wanted)


def _differs(store: Store, name: str, before: Mapping[str, Any]) -> bool:
    """Return whether a stored series is new or has other content than before."""
    return name in store and (
        name not in before or before[name].sha256 != store.index.series[name].sha256
    )


def _written(
    store: Store, source: Source, wanted: list[str], start: Date | None
) -> Iterator[tuple[Fetched, Encoded | None, str]]:
    """Yield series as they arrive, each in a file of the store; threads write some ahead.

    The text says which of its rows are adjusted, if any are.

    Most of the time of small files is that of the disk, so that threads help.
    """
    from_network = source.fingerprint() is None
    asked = str(nearest_time(start).date()) if start is not None and from_network else None

    def work(item: Fetched) -> tuple[Fetched, Encoded | None, str]:
        if item.frame is None:
            return item, None, ""
        known = store.index.known(item.unique_id)
        asked_from = asked
        if asked is not None and known is not None:  # an update keeps the earlier start
            asked_from = None if known.asked_from is None else min(asked, known.asked_from)
        zone = item.timezone or (None if known is None else known.timezone)
        corrections, how = _corrected(store, item)
        if isinstance(source, Renamed):
            corrections = corrections._replace(names=source.names.get(item.unique_id, {}))
        encoded = encode(
            item.unique_id, item.frame,
            asked_from=asked_from, timezone=zone, corrections=corrections,
        )  # fmt: skip
        store.write_file_of(encoded)
        return item, encoded, how

    items = source.fetch(wanted, start, _known(store))
    if from_network:  # write each as it arrives
        yield from map(work, items)
        return
    with ThreadPoolExecutor() as pool:
        ahead: list[Future[tuple[Fetched, Encoded | None, str]]] = []
        for item in items:
            ahead.append(pool.submit(work, item))
            if len(ahead) > _WRITTEN_AHEAD:
                yield ahead.pop(0).result()
        for job in ahead:
            yield job.result()


def _corrected(store: Store, item: Fetched) -> tuple[Corrections, str]:
    """Return the corrections of a series that came, and what is to be said of them."""
    its, frame = store.corrections_of(item.unique_id), item.frame
    if frame is None or not its.adjustments:
        return its, ""
    stored = None
    with contextlib.suppress(StoreError, KeyError):  # otherwise there are no rows to compare with
        stored = store.read_one(item.unique_id)
    came = np.ones(len(frame), bool)
    if item.kept is not None:
        came = ~frame["ds"].isin(item.kept).to_numpy()
    its = its.of_rows(frame, stored, came)
    return its, told(its, frame, came)


def _known(store: Store) -> Known:
    """Return a function that gives a source the stored series of a ticker, as delivered."""

    def known(name: str) -> Stored | None:
        entry = store.index.known(name)
        if entry is None:
            return None
        if name not in store:
            return Stored(pd.DataFrame(), entry.asked_from)
        try:
            return Stored(store.read_delivered(name), entry.asked_from)
        except StoreError:
            return None

    return known


def panel_from_store(
    store: Store,
    ids: Sequence[str],
    skipped: Mapping[str, Skipped] | None = None,
    *,
    start: Date | None = None,
    end: Date | None = None,
    mask: Sequence[str] = (),
    known_by: Date | None = None,
    layout: Layout | None = None,
    flagged: pd.DataFrame | None = None,
    channels: Collection[str] | None = None,
) -> Panel:
    """Read series from the store as a panel.

    Prices are those of their day, adjusted for splits only. The target is ``adj_close`` if there is
    one.

    - ``skipped``: other series to name as skipped, with the reason; damaged ones are added
    - ``start``, ``end``: the first and the last day, both included
    - ``mask``: flags whose rows are left out
    - ``known_by``: leave out only rows whose flag was known by the end of that day
    - ``layout``: of the panel that these series are a part of
    - ``flagged``: the rows to leave out, if :func:`masked_rows` has already found them
    - ``channels``: those that are wanted; all by default. The target must be among them

    Raises StoreError if the files of all series are damaged.
    """
    series, damaged = store.read_arrays(ids)
    if not series:
        raise StoreError(name_reasons(damaged))
    unreadable = {name: Skipped(Kind.UNREADABLE, detail=why) for name, why in damaged.items()}
    panel = Panel.from_arrays(
        {name: _of_channels(part, channels) for name, part in series.items()},
        {**(skipped or {}), **unreadable},
        layout,
    )
    if mask:
        check_flags(mask)
        flagged = masked_rows(store, ids, mask, known_by) if flagged is None else flagged
        panel = without_flagged(panel, flagged, mask)
    return panel.between(start, end)


def flags_now(store: Store) -> pd.DataFrame:
    """Return the flags of stored prices, found now where no review is kept.

    An update that was killed leaves prices that have not been reviewed; the next one reviews them.
    """
    try:
        return store.flags()
    except StoreError:
        return review_now(store)


def masked_rows(
    store: Store,
    ids: Sequence[str],
    mask: Sequence[str],
    known_by: Date | None = None,
    *,
    flags: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Return the rows of some series that a mask leaves out: ``unique_id, ds, flag, known``.

    - ``known_by``: only rows whose flag was known by the end of that day
    - ``flags``: the store's flags, if they have already been read
    """
    flags = flags_now(store) if flags is None else flags
    flags = flags[flags["unique_id"].isin(list(ids))]
    if known_by is None:
        return flags_known(flags, mask)
    return flags_known(flags, mask, end_of_day(known_by))


def _of_channels(series: Arrays, channels: Collection[str] | None) -> Arrays:
    """Return the wanted channels of a series; ``adj_close`` accounts for dividends and splits."""
    names = series.channels if channels is None else channels
    kept = [
        index for index, name in enumerate(series.channels) if name in names and name not in ACTIONS
    ]
    if len(kept) == len(series.channels):
        return series
    return Arrays(series.times, series.values[:, kept], tuple(series.channels[k] for k in kept))


def _texts(what: str, given: object) -> list[str]:
    """Return several texts as a list. Raises UsageError for anything else."""
    several = isinstance(given, Iterable) and not isinstance(given, str | bytes)
    several = several and getattr(given, "ndim", 1) == 1  # of arrays and frames
    texts = list(cast(Iterable[object], given)) if several else []
    if not several or not all(isinstance(text, str) for text in texts):
        raise wrong_argument(what, given, "a list of texts")
    return cast(list[str], texts)


def check_flags(flags: Sequence[str]) -> None:
    """Raise UsageError for an unknown flag, or for one whose rows cannot be left out."""
    flags = _texts("mask", flags)
    unknown = [flag for flag in flags if flag not in MASKS]
    if unknown:
        why = "rows that have it are shown, not left out; " if unknown[0] in FLAGS else ""
        raise UsageError(f"flag {unknown[0]!r}: {why}expected some of {', '.join(MASKS)}")


def _not_loaded(reason: str) -> Skipped:
    return Skipped(Kind.NOT_LOADED, detail=reason)


def _reason(item: Fetched) -> str:
    return item.reason or "no reason given"


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


def _wanted(source: Source, tickers: Sequence[str] | None) -> list[str]:
    return list(dict.fromkeys(tickers)) if tickers is not None else source.tickers()
