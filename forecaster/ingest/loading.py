"""From a source to the store, and from either to a panel."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from forecaster.errors import DataError, SourceError, StoreError, UsageError, name_reasons
from forecaster.ingest.quality import KINDS, WRONG, find_flags, without_flagged
from forecaster.ingest.review import review
from forecaster.ingest.series_file import Arrays, Encoded, encode
from forecaster.ingest.source import Fetched, Known, Source, Stored
from forecaster.ingest.sources import open_source
from forecaster.ingest.store import Store
from forecaster.series import Panel

COMMIT_AFTER = 1.0  # seconds; so that an interrupted run loses little
_ACTIONS = ("dividends", "splits")


class Ingested(NamedTuple):
    """The series that are there, those that are not, and those that could not be updated."""

    store: Store
    ids: list[str]
    skipped: dict[str, str]
    stale: dict[str, str]
    changed: int
    quarantined: dict[str, str]


def load_panel(
    source: str | pd.DataFrame = "simulated",
    tickers: Sequence[str] | None = None,
    *,
    start=None,
    end=None,
    seed: int = 0,
    mask: Sequence[str] = WRONG,
) -> Panel:
    """Load a panel straight from a source: ``yahoo``, ``simulated``, ``files:PATH``, or a frame.

    ``tickers``: which series, by default all that the source holds. ``start`` and ``end``: dates,
    both included. ``seed``: of the simulated market. ``mask``: rows with these flags are left out,
    see :mod:`forecaster.ingest.quality`; a frame is taken as it is. Series that cannot be had are
    named in the panel's ``skipped``.

    Raises DataError when none can, UsageError when the source is unknown.
    """
    check_kinds(mask)
    if isinstance(source, pd.DataFrame):
        panel = Panel.from_frame(source)
        if tickers is not None:
            missing = {name: "not in the frame" for name in tickers if name not in panel.ids}
            panel = panel.only([name for name in tickers if name not in missing], missing)
        return panel.between(start, end)
    opened = open_source(source, seed=seed)
    parts, skipped = {}, {}
    for item in opened.fetch(_wanted(opened, tickers), start):
        if item.frame is None:
            skipped[item.unique_id] = item.reason or "no reason given"
        else:
            channels = tuple(c for c in item.frame if c not in ("unique_id", "ds", *_ACTIONS))
            values = item.frame[list(channels)].to_numpy(float)
            parts[item.unique_id] = (item.frame["ds"].to_numpy(), values, channels)
    if not parts:
        raise DataError(f"{opened.name}: no series could be had:\n{name_reasons(skipped)}")
    panel = Panel.from_arrays(parts, skipped).between(None, end)
    if mask:  # by what is known at the end
        panel = without_flagged(panel, find_flags(panel), tuple(mask))
    return panel.between(start, None)


def ingest(home: Path, source: Source, tickers: Sequence[str] | None, **options: Any) -> Ingested:
    """Bring the store under ``home`` up to date with a source; as :func:`ingested`, whose
    ``options`` these are, where nobody minds that another process updates the store right after."""
    with ingested(home, source, tickers, **options) as arrived:
        return arrived


@contextlib.contextmanager
def ingested(
    home: Path,
    source: Source,
    tickers: Sequence[str] | None,
    *,
    start=None,
    refresh: bool = False,
    on_series: Callable[[int, int], None] | None = None,
    on_wait: Callable[[str], None] | None = None,
) -> Iterator[Ingested]:
    """Bring the store under ``home`` up to date with a source, and keep it locked for the block.

    A series that fails leaves what was there. Damaged files are set aside, and fetched again.
    Series count as soon as they arrive, so that an interrupted run has only to be started again.
    ``refresh``: read the source again, though it seems not to have changed.
    ``on_series(done, total)`` is called after each; ``on_wait(message)`` when another process
    updates the same store.

    Raises DataError when no series is there in the end, SourceError when the source as a whole
    does not work and some series are not stored either.
    """
    store = Store.open_or_recover(home, source.name)
    with store.locked(on_wait):
        print_, origin = source.fingerprint(), store.manifest["origin"]
        seen = print_ is not None and not refresh and origin and origin["fingerprint"] == print_
        # What it holds is known without reading it again.
        all_known = tickers is None and seen
        wanted = list(origin["tickers"]) if all_known else _wanted(source, tickers)
        damaged = store.damages([name for name in wanted if name in store.manifest["series"]])
        store.quarantine(damaged)
        store.sweep()
        known_to_fail = origin["failed"] if seen else {}
        if seen and all(_current(store, name, print_) or name in known_to_fail for name in wanted):
            failed = {name: why for name, why in known_to_fail.items() if name in wanted}
            changed = 0
        else:
            failed, changed = _update(store, source, wanted, start, print_, on_series)
            if print_ is not None:
                others = {n: why for n, why in known_to_fail.items() if n not in wanted}
                failures = others | failed
                origin = {"fingerprint": print_, "tickers": source.tickers(), "failed": failures}
                store.commit(origin=origin)
        try:
            store.flags()
        except StoreError:  # prices have changed, also if by a run that was interrupted
            review(store)
        stored = set(store.ids)
        ids = [name for name in wanted if name in stored]
        skipped = {name: failed.get(name, "not fetched") for name in wanted if name not in stored}
        if not ids:
            raise DataError(f"{source.name}: no series could be had:\n{name_reasons(skipped)}")
        stale = {name: why for name, why in failed.items() if name in stored}
        yield Ingested(store, ids, skipped, stale, changed, damaged)


def _current(store: Store, name: str, fingerprint: str | None) -> bool:
    """Whether a series was read from the source as it is now."""
    entry = store.manifest["series"].get(name)
    return entry is not None and entry["fingerprint"] == fingerprint


def _update(
    store: Store, source: Source, wanted: list[str], start, print_: str | None, on_series
) -> tuple[dict[str, str], int]:
    """Fetch and commit; returns what failed and how many series changed."""
    failed: dict[str, str] = {}
    before = {n: e["sha256"] for n, e in store.manifest["series"].items()}
    asked = None if start is None or print_ is not None else str(pd.Timestamp(start).date())
    saved, came = time.monotonic(), set()
    try:
        for item, encoded in _encoded(store, source, wanted, start, asked):
            came.add(item.unique_id)
            if encoded is not None:
                store.write_encoded(encoded, print_)
            elif not item.unchanged:
                failed[item.unique_id] = item.reason or "no reason given"
                if item.suspect:
                    store.suspect(item.unique_id, failed[item.unique_id])
            if time.monotonic() - saved > COMMIT_AFTER:
                store.commit()
                saved = time.monotonic()
            if on_series:
                on_series(len(came), len(wanted))
    except SourceError as error:
        store.commit()
        if any(name not in store.manifest["series"] for name in wanted):
            raise
        failed |= {name: str(error) for name in wanted if name not in came}
    except BaseException:
        store.commit()
        raise
    store.commit()
    now = store.manifest["series"]
    return failed, sum(before.get(name) != now[name]["sha256"] for name in wanted if name in now)


def _encoded(
    store: Store, source: Source, wanted: list[str], start, asked: str | None
) -> Iterator[tuple[Fetched, Encoded | None]]:
    """Series as they arrive, in the format of the store, some ahead of those that are written."""
    items = source.fetch(wanted, start, _known(store))

    def work(item: Fetched) -> tuple[Fetched, Encoded | None]:
        if item.frame is None:
            return item, None
        entry = store.manifest["series"].get(item.unique_id) or store.lost(item.unique_id) or {}
        earliest = asked
        if asked is not None and entry:  # an update keeps what was asked for before
            earliest = None if entry["asked_from"] is None else min(asked, entry["asked_from"])
        zone = item.timezone or entry.get("timezone")
        return item, encode(item.unique_id, item.frame, asked_from=earliest, timezone=zone)

    if source.fingerprint() is None:  # from a network: each is written as it arrives
        yield from map(work, items)
        return
    with ThreadPoolExecutor() as pool:
        ahead = []
        for item in items:
            ahead.append(pool.submit(work, item))
            if len(ahead) > 8:
                yield ahead.pop(0).result()
        for job in ahead:
            yield job.result()


def _known(store: Store) -> Known:
    def known(name: str) -> Stored | None:
        if (lost := store.lost(name)) is not None:
            return Stored(pd.DataFrame(), lost["asked_from"])
        entry = store.manifest["series"].get(name)
        if entry is None:
            return None
        try:
            return Stored(store.read_one(name), entry["asked_from"])
        except StoreError:
            return None

    return known


def panel_from_store(
    store: Store,
    ids: Sequence[str],
    skipped: Mapping[str, str] | None = None,
    *,
    start=None,
    end=None,
    mask: Sequence[str] = (),
    known_by=None,
) -> Panel:
    """The panel of series that are in the store; one whose file is damaged is named in ``skipped``.

    ``start`` and ``end``: dates, both included. Rows with a flag in ``mask`` are left out; with
    ``known_by``, only those whose flag could be told at that time. Prices are as they were on the
    day (but for splits); what is forecast is ``adj_close``, where there is one.

    Raises StoreError when all are damaged.
    """
    parts, damaged = store.read_arrays(ids)
    if not parts:
        raise StoreError(name_reasons(damaged))
    panel = Panel.from_arrays(
        {name: _without_actions(part) for name, part in parts.items()},
        {**(skipped or {}), **damaged},
    )
    if mask:
        check_kinds(mask)
        panel = without_flagged(panel, masked_rows(store, ids, mask, known_by), tuple(mask))
    return panel.between(start, end)


def masked_rows(store: Store, ids: Sequence[str], mask: Sequence[str], known_by=None):
    """The flagged rows of some series that a mask leaves out, ``unique_id, ds, flag, known``; with
    ``known_by``, a date, only those whose flag could be told by the end of it."""
    flags = store.flags()
    flags = flags[flags["flag"].isin(list(mask)) & flags["unique_id"].isin(list(ids))]
    if known_by is None or not len(flags):
        return flags
    return flags[flags["known"] < pd.Timestamp(known_by).normalize() + pd.Timedelta(days=1)]


def _without_actions(part: Arrays) -> Arrays:
    """Without dividends and splits, which are in ``adj_close`` already."""
    if not set(_ACTIONS) & set(part.channels):
        return part
    keep = [at for at, name in enumerate(part.channels) if name not in _ACTIONS]
    return Arrays(part.times, part.values[:, keep], tuple(part.channels[at] for at in keep))


def check_kinds(kinds: Sequence[str]) -> None:
    """Raise UsageError when a flag is none."""
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise UsageError(f"flag {unknown[0]!r}: expected some of {', '.join(KINDS)}")


def _wanted(source: Source, tickers: Sequence[str] | None) -> list[str]:
    return list(dict.fromkeys(tickers)) if tickers is not None else source.tickers()
