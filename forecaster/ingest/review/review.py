"""Review a store: find flags and gaps in its series, and keep them beside the prices."""

import dataclasses
import io
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from forecaster.errors import NoSeries
from forecaster.files import atomic
from forecaster.ingest.review.copies import Copies, when_known
from forecaster.ingest.review.gaps import common_times, count_gaps, gaps_in_values, listed_at
from forecaster.ingest.review.quality import (
    COLUMNS,
    RULES,
    Together,
    copies_in,
    day_scale_of,
    find_flags,
    first_rows,
    has_flags,
    one_table,
    relative_moves,
)
from forecaster.ingest.store.index import Quality, count_by_series
from forecaster.ingest.store.series_file import Arrays, sha256
from forecaster.series import (
    Frequency,
    Layout,
    Panel,
    infer_frequency,
    most_common,
    on_axis,
    tells_frequency,
    union_of,
)

if TYPE_CHECKING:
    from forecaster.ingest.store.store import Store

AT_A_TIME = 1_000
"""Number of series in memory at once."""
_BLOCK_BYTES = 64 * 2**20  # bytes in a block of moves, which has all series at some times


class _Axis(NamedTuple):
    """The layout, frequency and times of a panel of all series."""

    layout: Layout
    frequency: Frequency
    times: np.ndarray


class _Part(NamedTuple):
    """Counts of series by time, and repeated sessions, in one part of the series.

    - ``begun``, ``observed``, ``listed`` (time,): number of series that begin, have a row, are
      listed
    - ``copies``: sessions that are repeated later
    """

    begun: np.ndarray
    observed: np.ndarray
    listed: np.ndarray
    copies: Copies


def in_parts(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the names of series in parts that are in memory at once."""
    for low in range(0, len(ids), AT_A_TIME):
        yield ids[low : low + AT_A_TIME]


def review_in_parts(store: "Store") -> tuple[pd.DataFrame, dict[str, int]] | None:
    """Return flags and gaps of a store's prices, read in parts; None if none can be read."""
    parts = list(in_parts(store.ids))
    axis = _axis(store, parts)
    if axis is None:
        return None
    with tempfile.TemporaryDirectory(prefix=".tmp-review-", dir=store.folder) as folder:
        files = [Path(folder) / f"{number}.npy" for number in range(len(parts))]
        seen = [
            _look(panel, file)
            for panel, file in zip(_panels(store, parts, axis), files, strict=True)
            if panel is not None
        ]
        begun = np.sum([part.begun for part in seen], axis=0).cumsum()
        count = np.sum([part.observed for part in seen], axis=0)
        listed = np.sum([part.listed for part in seen], axis=0)
        scale = _day_scale([file for file in files if file.exists()], begun)
    copies = [part.copies for part in seen]
    known = when_known(Copies(*(np.concatenate(each) for each in zip(*copies, strict=True))), count)
    ends = np.cumsum([len(part.series) for part in copies])[:-1]
    common = common_times(count, listed)
    tables: list[pd.DataFrame] = []
    gaps: dict[str, int] = {}
    panels = (panel for panel in _panels(store, parts, axis) if panel is not None)
    for panel, its, when in zip(panels, copies, np.split(known, ends), strict=True):
        tables.append(find_flags(panel, together=Together(scale, its, when)))
        gaps |= count_gaps(panel, common)
    return one_table(tables), gaps


def _axis(store: "Store", parts: Sequence[Sequence[str]]) -> _Axis | None:
    """Read all series for the axis that they share; return None if none can be used."""
    kinds: Counter[str] = Counter()
    channels: dict[str, None] = {}
    for schema in store.schemas(store.ids):
        kinds[schema.kind] += 1
        channels |= dict.fromkeys(schema.channels)
    layout = Layout("M" if 2 * kinds["M"] >= kinds.total() else "i", tuple(channels))
    frequencies: Counter[Frequency] = Counter()
    unclear: Counter[Frequency] = Counter()
    times: np.ndarray | None = None
    for names in parts:
        panel = _panel(store, names, layout)
        if panel is None:
            continue
        for own in (panel.times[row] for row in panel.mask):
            (frequencies if tells_frequency(own) else unclear)[infer_frequency(own)] += 1
        times = panel.times if times is None else union_of([times, panel.times])
    return None if times is None else _Axis(layout, most_common(frequencies or unclear), times)


def _panel(store: "Store", names: Sequence[str], layout: Layout) -> Panel | None:
    """Return a panel of some series; None if none of them can be used."""
    series, _ = store.read_arrays(names)
    try:
        return Panel.from_arrays(series, layout=layout)
    except NoSeries:
        return None


def _panels(store: "Store", parts: Sequence[Sequence[str]], axis: _Axis) -> Iterator[Panel | None]:
    """Yield a panel of each part of the series, on the axis of all."""
    for names in parts:
        panel = _panel(store, names, axis.layout)
        if panel is not None:
            panel = dataclasses.replace(on_axis(panel, axis.times), frequency=axis.frequency)
        yield panel


def _look(panel: Panel, file: Path) -> _Part:
    """Return the counts and copies of some series; write the sizes of their moves to a file."""
    copies = Copies(*(np.zeros(0, int) for _ in Copies._fields))
    if has_flags(panel):
        np.save(file, relative_moves(panel))
        copies = copies_in(panel)
    return _Part(first_rows(panel), panel.mask.sum(0), listed_at(panel), copies)


def _day_scale(files: Sequence[Path], begun: np.ndarray) -> np.ndarray:
    """Return :func:`day_scale_of` all series, a block of times at once."""
    sizes = [np.load(file, mmap_mode="r") for file in files]
    series = sum(len(part) for part in sizes)
    width = max(1, _BLOCK_BYTES // max(1, 4 * series))
    scale = np.ones(len(begun))
    for low in range(0, len(begun), width) if sizes else ():
        at = slice(low, low + width)
        scale[at] = day_scale_of(np.concatenate([part[:, at] for part in sizes]), begun[at])
    return scale


def review(store: "Store") -> None:
    """Find flags and gaps in all series of a store, and keep them beside the prices.

    Flags are for the prices that models learn from: adjusted closes, if there are any. All series
    are looked at together, to distinguish an error that many share on one day from a day of large
    moves.
    """
    found = _found(store)
    if found is None:
        store.commit_quality(None)
        return
    flags, gaps = found
    raw = _as_bytes(flags)
    digest = sha256(raw)
    file = f"flags.{digest[:12]}.parquet"
    atomic.write_file(store.folder / file, lambda to: to.write_bytes(raw), last=False)
    counts = count_by_series(_counts(flags), gaps)
    store.commit_quality(Quality(file, digest, store.index.digest()), counts)


def review_now(store: "Store") -> pd.DataFrame:
    """Return the flags of all series of a store as they are stored now, without keeping them."""
    found = _found(store)
    return pd.DataFrame(columns=list(COLUMNS)) if found is None else found[0]


def _found(store: "Store") -> tuple[pd.DataFrame, dict[str, int]] | None:
    """Return flags and gaps of all series; None if none can be read."""
    return _review_values(store) or _review_prices(store)


def _review_prices(store: "Store") -> tuple[pd.DataFrame, dict[str, int]] | None:
    """Return flags and gaps of all series; None if none can be read."""
    if len(store.ids) > AT_A_TIME:
        return review_in_parts(store)
    series, _ = store.read_arrays(store.ids)
    if not series:
        return None
    panel = Panel.from_arrays(series)
    return find_flags(panel), count_gaps(panel)


def _review_values(store: "Store") -> tuple[pd.DataFrame, dict[str, int]] | None:
    """Return the gaps of series that are not prices, with an empty table of flags.

    None if a series holds prices, or if none can be used. Only the times are kept in memory.
    """
    times: dict[str, np.ndarray] = {}
    shared: dict[tuple[str, bytes], np.ndarray] = {}
    starts = [0, *range(1, len(store.ids), AT_A_TIME)]  # the first series decides in most stores
    for low, high in zip(starts, [*starts[1:], len(store.ids)], strict=True):
        series, _ = store.read_arrays(store.ids[low:high])
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
    """Return one of the series, to make a table without flags from it."""
    first = next(iter(times))
    return {first: store.read_arrays([first])[0][first]}


def _counts(flags: pd.DataFrame) -> dict[str, dict[str, int]]:
    """Return the number of rows by series and flag."""
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
