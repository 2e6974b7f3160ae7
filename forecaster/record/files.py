"""Read and write the files of the record, and join many small files into a large one.

Ten years of daily predictions would be 2,500 files, which take minutes to open. So the small files
of a source are joined once there are many. The large file holds all of their rows in order. If some
small files cannot be removed afterwards, their rows are in two files, and are counted once.
"""

import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from forecaster.errors import WriteError
from forecaster.files import atomic, open_for_arrow, read_parquet_file
from forecaster.home import Home

if TYPE_CHECKING:
    import pyarrow as pa

NEEDED = (
    "made", "run", "source", "target", "unique_id", "origin", "ds", "step", "value", "forecast",
)  # fmt: skip
_TEXTS = ("run", "source", "target", "unique_id")
_MANY = 64  # number of small files that are joined; joining them takes a second or two
_JOINED = "-joined"
_META = b"forecaster"  # metadata key of a joined file, for the hashes of its predictions


def read_table(path: Path) -> "pa.Table":
    """Read one file. Raises OSError, or ValueError if it is not a file of the record."""
    table = read_parquet_file(path)
    if missing := [name for name in NEEDED if name not in table.column_names]:
        raise ValueError(f"no column {', '.join(missing)}")
    if not len(table):
        raise ValueError("no rows")
    _check_types(table)
    return table


def _check_types(table: "pa.Table") -> None:
    """Raise ValueError unless each column has its type in the record and no value is missing."""
    import pyarrow.types as types

    def is_text(kind: "pa.DataType") -> bool:
        kind = kind.value_type if types.is_dictionary(kind) else kind
        return types.is_string(kind) or types.is_large_string(kind)

    def is_time(kind: "pa.DataType") -> bool:
        return types.is_timestamp(kind) or types.is_integer(kind)

    expected = {
        **dict.fromkeys(_TEXTS, is_text), **dict.fromkeys(("origin", "ds"), is_time),
        "made": types.is_timestamp, "step": types.is_integer,
    }  # fmt: skip
    for field in table.schema:
        other = is_time if field.name.startswith("time_") else types.is_floating
        if not expected.get(field.name, other)(field.type):
            raise ValueError(f"column {field.name!r}: a {field.type} is not of the record")
        if field.name in expected and table.column(field.name).null_count:
            raise ValueError(f"column {field.name!r}: a value is missing")
    both = (types.is_timestamp(table.schema.field(name).type) for name in ("origin", "ds"))
    if next(both) != next(both):
        raise ValueError("columns 'ds' and 'origin' differ in type")


def kind_of(table: "pa.Table") -> tuple[str, bool]:
    """Return the source of a file's rows, and whether their times are dates."""
    import pyarrow.types as types

    return str(table.column("source")[0].as_py()), types.is_timestamp(table.schema.field("ds").type)


def joined(tables: Sequence["pa.Table"]) -> "pa.Table":
    """Concatenate tables of the same kind; fill columns that some of them lack with nulls."""
    import pyarrow as pa

    plain = []
    for table in tables:
        for name in _TEXTS:  # the dictionaries of text columns differ between files
            at = table.column_names.index(name)
            table = table.set_column(at, name, table.column(name).cast(pa.string()))
        plain.append(table)
    table = pa.concat_tables(plain, promote_options="permissive")
    for name in _TEXTS:
        at = table.column_names.index(name)
        table = table.set_column(at, name, table.column(name).combine_chunks().dictionary_encode())
    return table.unify_dictionaries()


def digests_of(path: Path) -> set[str]:
    """Return the hashes of the predictions in a file; none if the file is damaged."""
    import pyarrow.parquet as pq

    if not path.stem.endswith(_JOINED):
        return {path.stem.rpartition("-")[2]}
    try:
        with open_for_arrow(path) as file:
            metadata = pq.read_schema(file).metadata or {}
        return set(map(str, json.loads(metadata.get(_META, b"[]"))))
    except (OSError, ValueError, TypeError):
        return set()


def write_table(table: "pa.Table", path: Path, digests: Iterable[str] = ()) -> None:
    """Write a file of the record; ``digests``: the hashes of its predictions, if it has several."""
    import pyarrow.parquet as pq

    if digests:
        table = table.replace_schema_metadata({_META: json.dumps(sorted(digests)).encode()})
    with open_for_arrow(path, "wb") as file:
        pq.write_table(table, file, compression="zstd")


def join_small(home: Home) -> None:
    """Join the small files of each source into a large one, if there are many.

    An interruption loses nothing: the large file is complete before small ones are removed. Files
    that cannot be read are left alone. If the large file cannot be written, all files stay.
    """
    small = [path for path in home.recorded() if not path.stem.endswith(_JOINED)]
    if not small or len(small) % _MANY:
        return
    for files in _by_kind(small):
        if len(files) < 2:
            continue
        names = [path.name for path in files]
        digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:12]
        stamp = names[-1].rpartition("-")[0]
        to = home.record / f"{stamp}-{digest}{_JOINED}.parquet"
        table, known = _together(files)
        try:
            atomic.write_file(to, lambda at, table=table, all=known: write_table(table, at, all))
            for path in files:
                path.unlink(missing_ok=True)
        except (WriteError, OSError):
            return


def _by_kind(paths: Iterable[Path]) -> list[dict[Path, "pa.Table"]]:
    """Return the readable files of each kind, see :func:`kind_of`, with their tables."""
    groups: dict[tuple[str, bool], dict[Path, pa.Table]] = {}
    for path, table in readable(paths):
        groups.setdefault(kind_of(table), {})[path] = table
    return list(groups.values())


def readable(paths: Iterable[Path]) -> Iterator[tuple[Path, "pa.Table"]]:
    """Yield the files that can be read, with their tables."""
    for path in paths:
        with contextlib.suppress(OSError, ValueError):
            yield path, read_table(path)


def _together(files: Mapping[Path, "pa.Table"]) -> tuple["pa.Table", set[str]]:
    """Return one table with the rows of all files of a kind, and the hashes of its predictions."""
    return joined(list(files.values())), set().union(*map(digests_of, files))


def to_compact(home: Home) -> list[Path]:
    """Return the files that :func:`compact` would replace by one for each month and source.

    These are files that hold several months, or share a month. Unreadable files are left out.
    """
    held = {
        path: [(month, kind_of(table)) for month in _months(table)]
        for path, table in readable(home.recorded())
    }
    count = Counter(key for keys in held.values() for key in keys)
    return [
        path for path, keys in held.items() if len(keys) > 1 or any(count[key] > 1 for key in keys)
    ]


def compact(home: Home, paths: Sequence[Path]) -> None:
    """Replace files by one file for each month and source, with the same forecasts.

    An interruption loses nothing: the new files are complete before the old ones are removed, and
    rows in two files count once. Raises WriteError.
    """
    for files in _by_kind(paths):
        table, known = _together(files)
        written = {_write_month(home, month, part, known) for month, part in _months(table).items()}
        for path in files:
            if path not in written:
                atomic.remove_file(path)


def _write_month(home: Home, month: str, table: "pa.Table", digests: set[str]) -> Path:
    """Write the forecasts of a month; return its file, named after first time and content."""
    import pyarrow.compute as pc

    first = pc.min(table.column("made")).as_py()  # pyright: ignore[reportAttributeAccessIssue]
    text = "\n".join([month, str(kind_of(table)), *sorted(digests)])
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    named = home.new_recorded(digest, first)
    path = named.with_name(f"{named.stem}{_JOINED}.parquet")
    atomic.write_file(path, lambda to: write_table(table, to, digests))
    return path


def _months(table: "pa.Table") -> dict[str, "pa.Table"]:
    """Return the rows of each month in which forecasts were made (UTC)."""
    import pyarrow as pa

    made = table.column("made").to_pandas().dt.strftime("%Y-%m")
    return {
        month: table.filter(pa.array((made == month).to_numpy())) for month in sorted(made.unique())
    }


def rename_in_record(home: Home, source: str, old: str, new: str) -> int:
    """Give the forecasts of a series another name; return the number of changed files.

    Each file is replaced whole; after an interruption the same call finishes the work. Raises
    WriteError.
    """
    import pyarrow as pa

    changed = 0
    for path, table in readable(home.recorded()):
        names = table.column("unique_id").cast(pa.string()).to_pylist()
        if kind_of(table)[0] != source or old not in names:
            continue
        at = table.column_names.index("unique_id")
        column = pa.array([new if name == old else name for name in names], pa.string())
        table = table.set_column(at, "unique_id", column)
        known = digests_of(path) if path.stem.endswith(_JOINED) else ()
        atomic.write_file(path, lambda to, table=table, all=known: write_table(table, to, all))
        changed += 1
    return changed
