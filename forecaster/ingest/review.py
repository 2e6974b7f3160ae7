"""The review of a store: flags of its rows and gaps of its series, kept beside the prices."""

import io
from typing import TYPE_CHECKING

import pandas as pd

from forecaster import atomic
from forecaster.ingest.quality import count_gaps, find_flags
from forecaster.ingest.series_file import sha256
from forecaster.series import Panel

if TYPE_CHECKING:
    from forecaster.ingest.store import Store


def review(store: "Store") -> None:
    """Look through all series of a store, and keep what was found.

    Flags on the prices as they are stored, closes before adjustment; one look at all series
    together, because an error that many have on one day is told from a day of large moves.
    """
    parts, _ = store.read_arrays(store.ids)
    if not parts:
        store.commit(quality=None)
        return
    panel = Panel.from_arrays(parts)
    flags = find_flags(panel)
    raw = _as_bytes(flags)
    file = f"flags.{sha256(raw)[:12]}.parquet"
    atomic.write_file(store.folder / file, lambda to: to.write_bytes(raw), last=False)
    counts = flags.groupby(["unique_id", "flag"]).size()
    found: dict[str, dict[str, int]] = {
        name: {"gaps": gaps} for name, gaps in count_gaps(panel).items()
    }
    for (name, flag), count in counts.items():  # pyright: ignore[reportGeneralTypeIssues]
        found[name][flag] = int(count)
    store.commit(
        quality={
            "file": file,
            "sha256": sha256(raw),
            "of": store.digest(store.ids),
            "series": {name: {k: v for k, v in c.items() if v} for name, c in found.items()},
        }
    )


def _as_bytes(flags: pd.DataFrame) -> bytes:
    sink = io.BytesIO()
    flags.to_parquet(sink, index=False, write_page_checksum=True)
    return sink.getvalue()
