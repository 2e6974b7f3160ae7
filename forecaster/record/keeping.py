"""Add predictions to the record. Its files are only joined, once there are many.

    record/<time>-<hash>.parquet          one prediction: a row per series and forecast time; the
                                          hash begins with that of its source and run
    record/<time>-<hash>-joined.parquet   the predictions of a month and source

Columns:

- ``made`` (UTC), ``run``, ``source``, ``target`` (the channel that was forecast), ``unique_id``
- ``origin`` (the time of the series' latest row), ``ds``, ``step``, ``value`` (at the origin)
- the median and the bounds of bands, named as in any frame of a model called ``forecast``
- ``probability_of_rise``
- ``value_5, time_5`` and ``value_20, time_20``: values and times of the rows 5 and 20 steps before
  the origin. With ``value`` they show later whether prices were adjusted

All values are in the units of the forecast. Ten years of daily predictions would be 2,500 files,
which take minutes to open, so small ones are joined. If some cannot be removed afterwards, their
rows are in two files, and are counted once.
"""

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from forecaster.errors import WriteError
from forecaster.files import Home, atomic, open_for_arrow, read_parquet_file
from forecaster.forecasting import FORECAST_BY, price_factor, renamed_columns
from forecaster.series import Panel

COLUMN = "forecast"
"""The name of every model in the record."""
STAMP = 19
"""Length of the time at the start of a run folder's name, which stays when the run is renamed."""
BEFORE = (5, 20)
"""Steps before the origin at which further values are recorded, to detect adjustments."""
_TEXTS = ("run", "source", "target", "unique_id")
_NEEDED = (*_TEXTS, "made", "origin", "ds", "step", "value", "forecast")
_MANY = 64  # number of small files that are joined; joining them takes a second or two
_JOINED = "-joined"
_MONTH = 6  # letters at the start of a file's name


class Made(NamedTuple):
    """A prediction to record.

    - ``panel``: the series up to the origin
    - ``frame``: from :func:`forecaster.predict`
    - ``model``: the name of the column of medians in ``frame``
    - ``run``, ``source``: the name of the saved model, and the source of its series
    """

    panel: Panel
    frame: pd.DataFrame
    model: str
    run: str
    source: str


def keep(home: Home, made: Made) -> Path:
    """Add a prediction to the record, whole or not at all; return its file.

    A prediction that equals the latest one of the same run and source is not added again, unless a
    wrong clock dated that later than now, which would count as made after its outcome. Raises
    WriteError if the file cannot be written.
    """
    table, now = _table(made), datetime.now(UTC)
    of = hashlib.sha256(f"{made.source}\n{made.run[:STAMP]}".encode("utf-8", "replace"))
    ours, content = of.hexdigest()[:6], pa.BufferOutputStream()
    with pa.ipc.new_stream(content, table.schema) as writer:
        writer.write_table(table)
    path = home.new_recorded(ours + hashlib.sha256(content.getvalue()).hexdigest()[:12], now)
    stamp, _, digest = path.stem.rpartition("-")
    past = [
        there
        for there in home.recorded()
        if there.stem[: len(stamp)] <= stamp and there.stem.rpartition("-")[2].startswith(ours)
    ]
    if past and past[-1].stem.endswith(digest) and list(readable(past[-1:])):
        return past[-1]
    stamps = pa.array([now] * len(table), pa.timestamp("ms", tz="UTC"))
    atomic.write_file(path, lambda to: write_table(table.add_column(0, "made", stamps), to))
    join_small(home)
    return path


def _table(made: Made) -> pa.Table:
    """Return the prediction with all columns except ``made``."""
    names = renamed_columns(made.frame, made.model, COLUMN)
    frame = made.frame.drop(columns=FORECAST_BY, errors="ignore").rename(columns=names)
    latest = _latest(made.panel, [str(name) for name in frame["unique_id"].unique()])
    step = frame.groupby("unique_id", sort=False).cumcount() + 1
    of_all = {"run": made.run, "source": made.source, "target": made.panel.target}
    rows = frame.join(latest, on="unique_id").assign(step=step.astype(np.int16), **of_all)
    first = [*of_all, "unique_id", "origin", "ds", "step", "value"]
    rows = rows[[*first, *rows.columns.drop(first)]]
    table = pa.Table.from_pandas(rows, preserve_index=False)
    return table.replace_schema_metadata().combine_chunks()  # so that equal rows have equal bytes


def _latest(panel: Panel, ids: Sequence[str]) -> pd.DataFrame:
    """Return ``origin`` and ``value`` of each series, and those ``BEFORE`` it, a row per series.

    If a series is too short, its first row is used.
    """
    row_of = {name: row for row, name in enumerate(panel.ids)}
    rows = np.array([row_of[name] for name in ids])
    positions = [np.flatnonzero(panel.mask[row]) for row in rows]
    values = panel.channel(panel.target) * price_factor(panel)[:, None]
    columns = {}
    for back in (0, *BEFORE):
        at = np.array([p[max(0, len(p) - 1 - back)] for p in positions])
        value, time = (f"value_{back}", f"time_{back}") if back else ("value", "origin")
        columns |= {value: values[rows, at].astype(float), time: panel.times[at]}
    return pd.DataFrame(columns, index=list(ids))


def read_table(path: Path) -> pa.Table:
    """Read one file. Raises OSError, or ValueError if it is not a file of the record."""
    table = read_parquet_file(path)
    if missing := [name for name in _NEEDED if name not in table.column_names]:
        raise ValueError(f"no column {', '.join(missing)}")
    if not len(table):
        raise ValueError("no rows")
    time = pa.int64() if pa.types.is_integer(table.schema.field("ds").type) else pa.timestamp("ns")
    kinds: dict[str, object] = {
        **dict.fromkeys(_TEXTS, pa.string()), "made": pa.timestamp("ms", "UTC"), "step": pa.int16(),
    }  # fmt: skip
    fields = []
    for name in table.column_names:
        is_time = name in ("origin", "ds") or name.startswith("time_")
        kind = kinds.get(name, time if is_time else pa.float64())
        fields.append(pa.field(name, kind, nullable=name not in _NEEDED[:-2]))
    return table.replace_schema_metadata().cast(pa.schema(fields))


def kind_of(table: pa.Table) -> tuple[str, bool]:
    """Return the source of a file's rows, and whether their times are dates."""
    return str(table.column("source")[0].as_py()), types.is_timestamp(table.schema.field("ds").type)


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Concatenate tables of the same kind; fill columns that some of them lack with nulls."""
    table = pa.concat_tables(tables, promote_options="default").combine_chunks()
    for name in _TEXTS:
        at = table.column_names.index(name)
        table = table.set_column(at, name, table.column(name).dictionary_encode())
    return table


def write_table(table: pa.Table, path: Path) -> None:
    """Write a file of the record."""
    with open_for_arrow(path, "wb") as file:
        pq.write_table(table, file, compression="zstd")


def join_small(home: Home) -> None:
    """Join the small files into one for each month and source, if there are many; the latest stays.

    Files that cannot be read are left alone. If a large file cannot be written, all files stay.
    """
    files = home.recorded()[:-1]
    small = [path for path in files if not path.stem.endswith(_JOINED)]
    if len(small) >= _MANY:
        months = {path.name[:_MONTH] for path in small}
        with contextlib.suppress(WriteError):
            compact(home, [path for path in files if path.name[:_MONTH] in months])


def readable(paths: Iterable[Path]) -> Iterator[tuple[Path, pa.Table]]:
    """Yield the files that can be read, with their tables."""
    for path in paths:
        with contextlib.suppress(OSError, ValueError):
            yield path, read_table(path)


def compact(home: Home, paths: Sequence[Path]) -> None:
    """Replace files by one file for each month and source, with the same forecasts.

    An interruption loses nothing: the new files are complete before the old ones are removed, and
    rows in two files count once. Raises WriteError.
    """
    groups: dict[tuple[str, bool, str], dict[Path, pa.Table]] = {}
    for path, table in readable(paths):
        groups.setdefault((*kind_of(table), path.name[:_MONTH]), {})[path] = table
    for of, files in groups.items():
        table = joined(list(files.values()))
        made = table.column("made").to_pandas()
        # Named after its first time and what it holds, so that it is written again as itself.
        text = "\n".join([str(of), str(made.max()), str(len(made))])
        path = home.new_recorded(hashlib.sha256(text.encode()).hexdigest()[:12], made.min())
        path = path.with_name(f"{path.stem}{_JOINED}.parquet")
        atomic.write_file(path, lambda to, table=table: write_table(table, to))
        for old in files.keys() - {path}:
            atomic.remove_file(old)


def rename_in_record(home: Home, source: str, old: str, new: str) -> int:
    """Give the forecasts of a series another name; return the number of changed files.

    Each file is replaced whole; after an interruption the same call finishes the work. Raises
    WriteError.
    """
    changed = 0
    for path, table in readable(home.recorded()):
        names = table.column("unique_id").to_pylist()
        if kind_of(table)[0] != source or old not in names:
            continue
        at = table.column_names.index("unique_id")
        column = pa.array([new if name == old else name for name in names], pa.string())
        table = table.set_column(at, "unique_id", column)
        atomic.write_file(path, lambda to, table=table: write_table(table, to))
        changed += 1
    return changed
