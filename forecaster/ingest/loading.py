"""Load panels from a source or from the store."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Unpack, cast

import numpy as np
import pandas as pd

from forecaster.errors import (
    DataError,
    Kind,
    Skipped,
    StoreError,
    UsageError,
    check_whole,
    name_reasons,
    warn,
    wrong_argument,
)
from forecaster.ingest.frames import Table, panel_of_frame
from forecaster.ingest.review.quality import (
    FLAGS,
    MASKS,
    WRONG,
    find_flags,
    flags_known,
    flags_of,
    without_flagged,
)
from forecaster.ingest.review.review import review_now
from forecaster.ingest.sources.source import Date
from forecaster.ingest.sources.sources import open_source
from forecaster.ingest.store.series_file import Arrays
from forecaster.ingest.store.store import Store
from forecaster.ingest.tables.roles import ACTIONS, ColumnOptions, Columns
from forecaster.series import Layout, Panel, end_of_day


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
    roles = Columns.of(columns, decimal)
    if not isinstance(source, str):
        if query is not None:
            raise UsageError("query is for a database; leave it out with a frame")
        panel = panel_of_frame(source, tickers, columns=roles)
        return panel.between(start, end)
    opened = open_source(source, seed=seed, columns=roles, query=query)
    series, skipped = {}, {}
    for item in opened.fetch(
        opened.tickers() if tickers is None else list(dict.fromkeys(tickers)), start
    ):
        if item.frame is None:
            skipped[item.unique_id] = Skipped(
                Kind.NOT_LOADED, detail=item.reason or "no reason given"
            )
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
