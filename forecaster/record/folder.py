"""Read and write the files of the record, and join many small files into a large one.

Ten years of daily predictions would be 2,500 files, which take minutes to open. So the small files
are joined once there are many. If some small files cannot be removed afterwards, their rows are in
two files, and are counted once.
"""

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from forecaster.errors import WriteError
from forecaster.files import Home, atomic, open_for_arrow, read_parquet_file

_TEXTS = ("run", "source", "target", "unique_id")
_NEEDED = (*_TEXTS, "made", "origin", "ds", "step", "value", "forecast")
_MANY = 64  # number of small files that are joined; joining them takes a second or two
_JOINED = "-joined"
_MONTH = 6  # letters at the start of a file's name


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
