"""The review of a store: flags of its rows and gaps in its series, kept beside the prices."""

import io
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from forecaster import atomic
from forecaster.ingest.gaps import count_gaps, gaps_in_values
from forecaster.ingest.manifest import Quality
from forecaster.ingest.quality import RULES, find_flags
from forecaster.ingest.review_parts import AT_A_TIME, review_in_parts
from forecaster.ingest.series_file import Arrays, sha256
from forecaster.series import Panel

if TYPE_CHECKING:
    from forecaster.ingest.store import Store


def review(store: "Store") -> None:
    """Find flags and gaps in all series of a store, and keep them beside the prices.

    Flags are of the prices that are learned from, adjusted closes where there are any. All series
    count together, because that tells an error that many have on one day from a day of large moves.
    """
    found = _review_values(store) or _review_prices(store)
    if found is None:
        store.commit_quality(None)
        return
    flags, gaps = found
    raw = _as_bytes(flags)
    digest = sha256(raw)
    file = f"flags.{digest[:12]}.parquet"
    atomic.write_file(store.folder / file, lambda to: to.write_bytes(raw), last=False)
    counts = Quality.count_by_series(_counts(flags), gaps)
    store.commit_quality(Quality(file, digest, store.digest(store.ids), counts))


def _review_prices(store: "Store") -> tuple[pd.DataFrame, dict[str, int]] | None:
    """Flags and gaps of all series together; None where none can be read."""
    if len(store.ids) > AT_A_TIME:
        return review_in_parts(store)
    series, _ = store.read_arrays(store.ids)
    if not series:
        return None
    panel = Panel.from_arrays(series)
    return find_flags(panel), count_gaps(panel)


def _review_values(store: "Store") -> tuple[pd.DataFrame, dict[str, int]] | None:
    """The same of series that are no prices: they have no flags, so their values are not kept.

    None where the first series is one of prices, or cannot be read.
    """
    times: dict[str, np.ndarray] = {}
    shared: dict[tuple[str, bytes], np.ndarray] = {}
    for low in range(0, len(store.ids), AT_A_TIME):
        series, _ = store.read_arrays(store.ids[low : low + AT_A_TIME])
        for name, part in series.items():
            if "y" not in part.channels:
                return None
            own = part.times[np.isfinite(part.values[:, part.channels.index("y")])]
            if len(own):
                times[name] = shared.setdefault((own.dtype.str, own.tobytes()), own)
    kinds = Counter(own.dtype.kind for own in times.values())
    if not times:
        return None
    kind = "M" if 2 * kinds["M"] >= len(times) else "i"
    times = {name: own for name, own in times.items() if own.dtype.kind == kind}
    nothing = find_flags(Panel.from_arrays(_one_row(store, times)))
    return nothing, gaps_in_values(times)


def _one_row(store: "Store", times: dict[str, np.ndarray]) -> dict[str, Arrays]:
    """A panel as small as can be, for a table of flags without any."""
    first = next(iter(times))
    return {first: store.read_arrays([first])[0][first]}


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
