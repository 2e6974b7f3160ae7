"""Read series of a store as a panel, without rows that have flags."""

from collections.abc import Collection, Mapping, Sequence

import pandas as pd

from forecaster.errors import Kind, Skipped, StoreError, name_reasons
from forecaster.ingest.review.quality import flags_known, without_flagged
from forecaster.ingest.review.review import review_now
from forecaster.ingest.store.store import Store
from forecaster.ingest.tables.steps import with_frequency
from forecaster.series import Date, Layout, Panel, end_of_day


def panel_from_store(
    store: Store,
    ids: Sequence[str],
    skipped: Mapping[str, Skipped] | None = None,
    *,
    start: Date | None = None,
    end: Date | None = None,
    layout: Layout | None = None,
    flagged: pd.DataFrame | None = None,
    channels: Collection[str] | None = None,
) -> Panel:
    """Read series from the store as a panel.

    Prices are those of their day, adjusted for splits only. The target is ``adj_close`` if there is
    one.

    - ``skipped``: other series to name as skipped, with the reason; damaged ones are added
    - ``start``, ``end``: the first and the last day, both included
    - ``layout``: of the panel that these series are a part of
    - ``flagged``: the rows to leave out, from :func:`masked_rows`
    - ``channels``: those that are wanted; all by default. The target must be among them

    Raises StoreError if the files of all series are damaged.
    """
    series, damaged = store.read_arrays(ids, channels)
    if not series:
        raise StoreError(name_reasons(damaged))
    unreadable = {name: Skipped(Kind.UNREADABLE, detail=why) for name, why in damaged.items()}
    panel = Panel.from_arrays(series, {**(skipped or {}), **unreadable}, layout)
    if flagged is not None:
        panel = without_flagged(panel, flagged)
    return with_frequency(panel.between(start, end), store.index.frequency)


def flags_now(store: Store) -> pd.DataFrame:
    """Return the flags of stored prices, found now where no review is kept.

    An update that was killed leaves prices that have not been reviewed; the next one reviews them.
    """
    try:
        return store.flags()
    except StoreError:
        return review_now(store)[0]


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
    return flags_known(flags, mask, None if known_by is None else end_of_day(known_by))
