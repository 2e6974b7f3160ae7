"""Encode a series as a file of the store and read it: Parquet, named after its content."""

import hashlib
import json
import re
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from forecaster.files import file_name, read_parquet_file
from forecaster.ingest.store.corrections import NONE, Corrections
from forecaster.ingest.store.index import SeriesEntry
from forecaster.series import show_time

# A file of flags has only a hash in its name; the file of a series "flags.x" is
# flags.x~12345678....
FLAGS_FILE = re.compile(r"flags\.[0-9a-f]{12}\.parquet")
_META = b"forecaster"
_ACTIONS = ("dividends", "splits")  # adj_close accounts for them
UNITS = "units"
"""Key of a frame's ``attrs``: the stated currency and unit of a series."""


class Arrays(NamedTuple):
    """One series: ``times`` (row,), ``values`` (row, channel) and the names of the channels."""

    times: np.ndarray
    values: np.ndarray
    channels: tuple[str, ...]

    @staticmethod
    def from_frame(frame: pd.DataFrame) -> "Arrays":
        """Return the rows of one series, without dividends and splits."""
        channels = tuple(str(name) for name in frame if name not in ("unique_id", "ds", *_ACTIONS))
        values = [frame[name].to_numpy(float) for name in channels]  # faster than all at once
        return Arrays(frame["ds"].to_numpy(), np.stack(values, axis=1), channels)


class Encoded(NamedTuple):
    """A series as the bytes of its file, and its entry in the index."""

    name: str
    raw: bytes
    entry: SeriesEntry


def encode(
    name: str,
    frame: pd.DataFrame,
    *,
    asked_from: str | None = None,
    corrections: Corrections = NONE,
) -> Encoded:
    """Encode a series as a file of the store; the same content gives the same bytes.

    The file also holds the rest of the index entry, so that a lost index can be rebuilt from files,
    and the frame's ``attrs["units"]``.

    - ``frame``: the rows as they were delivered
    - ``corrections``: what is applied to them when they are read
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    described: dict[str, Any] = {"name": name, "asked_from": asked_from, "timezone": None}
    if units := frame.attrs.get(UNITS):
        described[UNITS] = units
    if corrections:
        described["corrections"] = corrections.text()
    columns = {column: pa.array(frame[column]) for column in frame if column != "unique_id"}
    ids = pa.DictionaryArray.from_arrays(np.zeros(len(frame), np.int32), [name]).cast(pa.string())
    table = pa.table({"unique_id": ids, **columns})
    table = table.replace_schema_metadata({_META: json.dumps(described).encode()})
    sink = pa.BufferOutputStream()
    options: Any = {"compression": "zstd", "use_dictionary": ["unique_id"]}
    pq.write_table(table, sink, write_page_checksum=True, **options)
    raw = sink.getvalue().to_pybytes()
    file = f"{file_name(name)}.{sha256(raw)[:12]}.parquet"
    return Encoded(name, raw, _entry(raw, file, asked_from, frame["ds"], corrections))


def described_by(raw: bytes, file: str) -> tuple[str, SeriesEntry]:
    """Return the name and entry of a series from the content and the name of its file.

    Raises ValueError if it is not the content that the file is named after.
    """
    if sha256(raw)[:12] != file.split(".")[-2]:
        raise ValueError("its content is not what was written")
    table = read_parquet_file(raw)
    metadata = table.schema.metadata or {}
    if _META in metadata:
        described = json.loads(metadata[_META])
    else:  # this file was written by version 1
        name = table.column("unique_id")[0].as_py()
        described = {"name": name, "asked_from": None}
    times, corrections = table.column("ds").to_pandas(), described.get("corrections")
    entry = _entry(raw, file, described["asked_from"], times, Corrections.read(corrections))
    return described["name"], entry


def decode(raw: bytes) -> pd.DataFrame:
    """Return the delivered rows from the content of a file, as :func:`encode` takes them."""
    table = read_parquet_file(raw)
    frame = table.to_pandas()
    described = json.loads((table.schema.metadata or {}).get(_META, b"{}"))
    if units := described.get(UNITS):
        frame.attrs[UNITS] = units
    return frame


def _entry(
    raw: bytes, file: str, asked_from: str | None, times: pd.Series, corrections: Corrections
) -> SeriesEntry:
    return SeriesEntry(
        file=file,
        rows=len(times),
        first=show_time(times.iloc[0]),
        last=show_time(times.iloc[-1]),
        sha256=sha256(raw),
        asked_from=asked_from,
        corrections=corrections,
    )


def sha256(raw: bytes) -> str:
    """Return the SHA-256 in hexadecimal, in the form that entries hold."""
    return hashlib.sha256(raw).hexdigest()


def arrays(raw: bytes, corrections: Corrections, wanted: Collection[str] | None = None) -> Arrays:
    """Return a series' file as arrays, corrected, without dividends and splits.

    The caller has checked the hash of the bytes. So the checksums and sizes of pages are not
    verified again, as :func:`read_parquet_file` does: this would take twice as long as reading.

    ``wanted``: the channels to read; None: all

    Raises OSError or ValueError for another kind of file.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(pa.BufferReader(raw))
        others = {"unique_id", "ds", *_ACTIONS}
        names = [name for name in file.schema_arrow.names if name not in others]
        channels = tuple(name for name in names if wanted is None or name in wanted)
        table = file.read(["ds", *channels], use_threads=False)
        if not channels:
            raise ValueError("no column but ds")
        values = np.empty((len(table), len(channels)))
        times = table.column("ds").to_numpy()
        for number, channel in enumerate(channels):
            values[:, number] = table.column(channel).to_numpy()
            if (factor := corrections.factor(channel, times)) is not None:
                values[:, number] *= factor
    except (pa.ArrowException, KeyError) as error:
        raise ValueError(str(error)) from error
    if times.dtype.kind == "M":
        times = times.astype("datetime64[ns]")
    return Arrays(times, values, channels)
