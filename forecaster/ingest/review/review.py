"""Review a store: find flags and gaps in its series, and keep them beside the prices."""

import contextlib
import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from forecaster.errors import NoSeries
from forecaster.files import atomic
from forecaster.ingest.review.missing import count_gaps
from forecaster.ingest.review.quality import COLUMNS, RULES, find_flags, one_table
from forecaster.ingest.store.index import GAPS, Quality
from forecaster.ingest.store.series_file import sha256
from forecaster.series import Panel, infer_frequency

if TYPE_CHECKING:
    from forecaster.ingest.store.store import Store

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


def review(store: "Store") -> None:
    """Find flags and gaps in all series of a store, and keep them beside the prices.

    Flags are for the prices that models learn from: adjusted closes, if there are any. The series
    of a part are looked at together, to distinguish an error that many share on one day from a day
    of large moves.
    """
    found = _found(store)
    if found is None:
        store.commit(quality=None, counts={})
        return
    flags, gaps = found
    raw = _as_bytes(flags)
    digest = sha256(raw)
    file = f"flags.{digest[:12]}.parquet"
    atomic.write_file(store.folder / file, lambda to: to.write_bytes(raw), last=False)
    quality = Quality(file, digest, store.index.digest())
    store.commit(quality=quality, counts=_counts(flags, gaps))


def review_now(store: "Store") -> pd.DataFrame:
    """Return the flags of all series of a store as they are stored now, without keeping them."""
    found = _found(store)
    return pd.DataFrame(columns=list(COLUMNS)) if found is None else found[0]


def _found(store: "Store") -> tuple[pd.DataFrame, dict[str, int]] | None:
    """Return flags and gaps of all series; None if none can be used.

    Of series that are not prices, nothing is flagged.
    """
    nothing = pd.DataFrame({name: pd.Series(dtype=kind) for name, kind in COLUMNS.items()})
    tables, gaps = [nothing], dict[str, int]()
    for names in in_parts(store.ids):
        series, _ = store.read_arrays(names)
        for name in [name for name, part in series.items() if "y" in part.channels]:
            times, values, channels = series.pop(name)
            times = times[np.isfinite(values[:, channels.index("y")])]
            if len(times):
                gaps[name] = count_gaps(times, infer_frequency(times))
        with contextlib.suppress(NoSeries):
            panel = Panel.from_arrays(series)
            tables.append(find_flags(panel))
            for name, times in panel.times_of_rows().items():
                gaps[name] = count_gaps(times, panel.frequency, name)
    if not gaps:
        return None
    return one_table([table for table in tables if len(table)] or [nothing]), gaps


def _counts(flags: pd.DataFrame, gaps: dict[str, int]) -> dict[str, dict[str, int]]:
    """Return the number of rows with each flag, and of gaps, by series; without zeros."""
    counts = {name: {GAPS: number} if number else {} for name, number in gaps.items()}
    sizes = flags.groupby(["unique_id", "flag"]).size()
    for (name, flag), count in sizes.items():  # pyright: ignore[reportGeneralTypeIssues]
        counts[name][flag] = int(count)
    return counts


def _as_bytes(flags: pd.DataFrame) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pandas(flags, preserve_index=False)
    metadata = {**(table.schema.metadata or {}), b"rules": str(RULES).encode()}
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(metadata), sink, write_page_checksum=True)
    return sink.getvalue()
