"""Review a store: find flags and gaps in its series, and keep them beside the prices."""

import contextlib
import io
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from forecaster.errors import NoSeries, StoreError
from forecaster.files import atomic
from forecaster.ingest.review.quality import (
    days_of,
    find_flags,
    flags_known,
    keeps_calendar,
    one_table,
    sessions_of,
)
from forecaster.ingest.store.index import GAPS, Quality
from forecaster.ingest.store.series_file import sha256
from forecaster.ingest.store.store import Store
from forecaster.ingest.tables.times import stated_frequency
from forecaster.series import Date, Frequency, Panel, end_of_day, own_frequency

AT_A_TIME = 1_000
"""Number of series that are in memory at once, of more than twice as many."""


def in_parts(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the names of series in parts that are in memory at once.

    Series that are stored later change only the last part. It takes the remainder as well, since
    the series of a small part could not be compared.
    """
    starts = [AT_A_TIME * part for part in range(max(1, len(ids) // AT_A_TIME))]
    for low, high in zip(starts, [*starts[1:], len(ids)], strict=True):
        yield ids[low:high]


def review(store: Store) -> None:
    """Find flags and gaps in all series of a store, and keep them beside the prices.

    Flags are for the prices that models learn from: adjusted closes, if there are any. The series
    of a part are looked at together, to distinguish an error that many share on one day from a day
    of large moves.
    """
    flags, gaps = review_now(store)
    if not gaps:  # no series can be used
        store.commit(quality=None, counts={})
        return
    sink = io.BytesIO()
    flags.to_parquet(sink, index=False, write_page_checksum=True)
    digest = sha256(raw := sink.getvalue())
    file = f"flags.{digest[:12]}.parquet"
    atomic.write_file(store.folder / file, lambda to: to.write_bytes(raw), last=False)
    quality = Quality(file, digest, store.index.reviewed)
    counts = {name: {GAPS: number} if number else {} for name, number in gaps.items()}
    sizes = flags.groupby(["unique_id", "flag"]).size()
    for (name, flag), count in sizes.items():  # pyright: ignore[reportGeneralTypeIssues]
        counts[name][flag] = int(count)
    store.commit(quality=quality, counts=counts)


def review_now(store: Store) -> tuple[pd.DataFrame, dict[str, int]]:
    """Return flags and gaps of all series of a store, without keeping them.

    Of series that are not prices, nothing is flagged.
    """
    tables, gaps = list[pd.DataFrame](), dict[str, int]()
    stated = store.index.frequency
    usual = Frequency("B") if stated is None else stated_frequency(stated)
    for names in in_parts(store.ids):
        series, _ = store.read_arrays(names)
        for name in [name for name, part in series.items() if "y" in part.channels]:
            times, values, channels = series.pop(name)
            times = times[np.isfinite(values[:, channels.index("y")])]
            if len(times):
                gaps[name] = count_gaps(times, own_frequency(times, usual))
        if not series:
            continue
        with contextlib.suppress(NoSeries):
            panel = Panel.from_arrays(series)
            tables.append(find_flags(panel))
            for name, times in panel.times_of_rows().items():
                gaps[name] = count_gaps(times, panel.frequency, name)
    return one_table(tables), gaps


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


def count_gaps(times: np.ndarray, frequency: Frequency, symbol: str | None = None) -> int:
    """Return how many times a series lacks between its first row and its last one.

    - ``times``: of the rows, sorted
    - ``frequency``: of the series
    - ``symbol``: of daily prices, whose gaps are counted by the sessions of their exchange
    """
    if frequency.alias == "step":
        return max(0, int(times[-1] - times[0]) // max(1, frequency.step) + 1 - len(times))
    if symbol is not None and keeps_calendar(frequency, symbol):
        known = sessions_of(symbol, times)
        if known is not None:
            return len(np.setdiff1d(known, days_of(times)))
    return max(0, frequency.elapsed(times[0], times[-1]) + 1 - len(times))
