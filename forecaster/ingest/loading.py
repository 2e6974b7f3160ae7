"""From a source to a panel, by way of the store or straight."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from forecaster.errors import DataError, StoreError, name_reasons
from forecaster.ingest.source import Source, open_source
from forecaster.ingest.store import Store
from forecaster.panel import Panel

COMMIT_EVERY = 200  # series; so that an interrupted run loses little


class Ingested(NamedTuple):
    """What arrived and what did not."""

    store: Store
    ids: list[str]
    skipped: dict[str, str]


def load_panel(
    source: str | pd.DataFrame = "simulated",
    tickers: Sequence[str] | None = None,
    *,
    start=None,
    end=None,
    seed: int = 0,
) -> Panel:
    """Load a panel straight from a source: ``yahoo``, ``simulated``, ``files:PATH``, or a frame.

    ``tickers``: which series, by default all that the source holds. ``start`` and ``end``: dates,
    both included. ``seed``: of the simulated market. Series that cannot be had are named in the
    panel's ``skipped``.

    Raises DataError when none can, UsageError when the source is unknown.
    """
    if isinstance(source, pd.DataFrame):
        panel = Panel.from_frame(source)
        if tickers is None:
            return panel
        missing = {name: "not in the frame" for name in tickers if name not in panel.ids}
        return panel.only([name for name in tickers if name not in missing], missing)
    opened = open_source(source, seed=seed)
    frames, skipped = [], {}
    for item in _fetch(opened, tickers, start, end):
        if item.frame is None:
            skipped[item.unique_id] = item.reason or "no reason given"
        else:
            frames.append(item.frame)
    return Panel.from_frame(_concatenate(frames, skipped, opened.name), skipped)


def ingest(
    home: Path,
    source: Source,
    tickers: Sequence[str] | None,
    *,
    start=None,
    end=None,
    on_series: Callable[[int, int], None] | None = None,
) -> Ingested:
    """Fetch series into the store under ``home``; a series that fails leaves what was there.

    ``on_series(done, total)`` is called after each. Raises DataError when none arrived.
    """
    store = Store.open(home, source.name)
    wanted = _wanted(source, tickers)
    arrived, skipped = [], {}
    try:
        for done, item in enumerate(_fetch(source, wanted, start, end), 1):
            if item.frame is None:
                skipped[item.unique_id] = item.reason or "no reason given"
            else:
                store.write(item.unique_id, item.frame)
                arrived.append(item.unique_id)
            if done % COMMIT_EVERY == 0:
                store.commit()
            if on_series:
                on_series(done, len(wanted))
    finally:
        if arrived:
            store.commit()
    if not arrived:
        raise DataError(f"{source.name}: no series could be had:\n{name_reasons(skipped)}")
    order = {name: place for place, name in enumerate(wanted)}
    return Ingested(store, sorted(arrived, key=order.__getitem__), skipped)


def panel_from_store(
    store: Store, ids: Sequence[str], skipped: Mapping[str, str] | None = None
) -> Panel:
    """The panel of series that are in the store; one whose file is damaged is named in ``skipped``.

    Raises StoreError when all are.
    """
    frames, damaged = [], {}
    for name in ids:
        try:
            frames.append(store.read_one(name))
        except StoreError as error:
            damaged[name] = str(error)
    if not frames:
        raise StoreError(name_reasons(damaged))
    return Panel.from_frame(pd.concat(frames, ignore_index=True), {**(skipped or {}), **damaged})


def _fetch(source: Source, tickers, start, end):
    yield from source.fetch(_wanted(source, tickers), start, end)


def _wanted(source: Source, tickers: Sequence[str] | None) -> list[str]:
    return list(tickers) if tickers is not None else source.tickers()


def _concatenate(frames: list[pd.DataFrame], skipped: dict[str, str], name: str) -> pd.DataFrame:
    if not frames:
        raise DataError(f"{name}: no series could be had:\n{name_reasons(skipped)}")
    return pd.concat(frames, ignore_index=True)
