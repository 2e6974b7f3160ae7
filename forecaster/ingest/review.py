"""The review of a store: flags of its rows and gaps in its series, kept beside the prices."""

import io
from typing import TYPE_CHECKING

import pandas as pd

from forecaster import atomic
from forecaster.ingest.gaps import count_gaps
from forecaster.ingest.manifest import Quality
from forecaster.ingest.quality import RULES, find_flags
from forecaster.ingest.series_file import sha256
from forecaster.series import Panel

if TYPE_CHECKING:
    from forecaster.ingest.store import Store


def review(store: "Store") -> None:
    """Find flags and gaps in all series of a store, and keep them beside the prices.

    Flags are of the prices as they are stored: closes before adjustment. All series are reviewed
    together, because that tells an error that many have on one day from a day of large moves.
    """
    series, _ = store.read_arrays(store.ids)
    if not series:
        store.commit_quality(None)
        return
    panel = Panel.from_arrays(series)
    flags = find_flags(panel)
    raw = _as_bytes(flags)
    digest = sha256(raw)
    file = f"flags.{digest[:12]}.parquet"
    atomic.write_file(store.folder / file, lambda to: to.write_bytes(raw), last=False)
    counts = Quality.count_by_series(_counts(flags), count_gaps(panel))
    store.commit_quality(Quality(file, digest, store.digest(store.ids), counts))


def _counts(flags: pd.DataFrame) -> dict[str, dict[str, int]]:
    """By series and flag, how many rows have it."""
    counts: dict[str, dict[str, int]] = {}
    sizes = flags.groupby(["unique_id", "flag"]).size()
    for (name, flag), count in sizes.items():  # pyright: ignore[reportGeneralTypeIssues]
        counts.setdefault(name, {})[flag] = int(count)
    return counts


def _as_bytes(flags: pd.DataFrame) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pandas(flags, preserve_index=False)
    metadata = {**(table.schema.metadata or {}), b"rules": str(RULES).encode()}
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(metadata), sink, write_page_checksum=True)
    return sink.getvalue()
