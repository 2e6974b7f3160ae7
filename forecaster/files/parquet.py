"""Read Parquet files of which none takes much more memory than its size suggests.

A file of a few kilobytes can hold any number of equal rows, or one text of any length. How much it
holds is taken from its own list of contents, the footer; SECURITY.md says what a forged one can do.
"""

import contextlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from forecaster.files.paths import open_for_arrow

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_SMALL = 1 << 20  # bytes; a smaller file is read within seconds, whatever it holds
# Maximum numbers of rows and of unpacked bytes in a small file.
_ROWS, _UNPACKED = 2_000_000, 1 << 27
_CELLS = 4  # maximum number of cells for each row that a file may have
# Maximum numbers of rows and of unpacked bytes for each byte of a larger file.
_ROWS_PER_BYTE, _LOOSEST = 100, 1000
_FEW = 100_000  # rows; fewer are read faster than threads start
# Maximum numbers of series, and of cells of series by times, in a small file.
_SERIES, _GRID = 5_000, 40_000_000


def most_rows(size: int) -> int:
    """Return the maximum number of rows in a packed file of ``size`` bytes."""
    return _ROWS if size <= _SMALL else max(_ROWS, _ROWS_PER_BYTE * size)


def most_cells(size: int) -> int:
    """Return the maximum number of cells in a packed file of ``size`` bytes."""
    return _CELLS * most_rows(size)


def most_unpacked(size: int) -> int:
    """Return the maximum number of bytes that a packed file of ``size`` bytes may hold."""
    return _UNPACKED if size <= _SMALL else _LOOSEST * size


def most_series(size: int) -> int | None:
    """Return the maximum number of series in a file of ``size`` bytes; None: any number.

    Each series takes a file of the store and a few milliseconds, however short it is.
    """
    return _SERIES if size <= _SMALL else None


def most_grid(size: int) -> int | None:
    """Return the maximum product of the numbers of series and of times; None: any number."""
    return _GRID if size <= _SMALL else None


@contextlib.contextmanager
def open_parquet(source: Path | bytes) -> "Iterator[pq.ParquetFile]":
    """Open a file, by its path or its bytes, that reads columns of text as dictionaries.

    A dictionary stores a repeated text only once. The checksums of pages are verified.

    Raises OSError, and ValueError for another kind of file or one much larger than it seems.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    raw = isinstance(source, bytes)
    try:
        with pa.BufferReader(source) if raw else open_for_arrow(source) as opened:
            metadata = pq.ParquetFile(opened).metadata
            _check_sizes(metadata, opened.size())
            texts = [field.name for field in schema_of(metadata) if is_text(field.type)]
            yield pq.ParquetFile(
                opened, metadata=metadata, read_dictionary=texts, page_checksum_verification=True
            )
    except pa.ArrowException as error:
        raise ValueError(str(error)) from error


def schema_of(metadata: "pq.FileMetaData") -> "pa.Schema":
    """Return the columns as they were written, without what pandas noted about them.

    The notes add nothing to the types of columns, and pandas fails in many ways at damaged ones.
    """
    schema, notes = metadata.schema.to_arrow_schema(), metadata.metadata or {}
    others = {key: note for key, note in notes.items() if key not in (b"pandas", b"ARROW:schema")}
    return schema.with_metadata(others)


def read_parquet_file(source: Path | bytes, columns: Sequence[str] | None = None) -> "pa.Table":
    """Read a whole file, or some of its columns; see :func:`parquet_groups`."""
    import pyarrow as pa

    groups = list(parquet_groups(source, columns))
    return groups[0] if len(groups) == 1 else pa.concat_tables(groups)


def parquet_groups(
    source: Path | bytes,
    columns: Sequence[str] | None = None,
    groups: Iterable[int] | None = None,
    categories: Collection[str] = (),
) -> "Iterator[pa.Table]":
    """Yield the row groups of a file, or an empty table if it has none.

    - ``columns``, ``groups``: the columns and the row groups to read; None: all
    - ``categories``: the columns of text that stay dictionaries

    Raises what :func:`open_parquet` raises, and ValueError for a column that is missing, nested, or
    of bytes of a fixed size.
    """
    with open_parquet(source) as file:
        schema = schema_of(file.metadata)
        wanted = schema.names if columns is None else list(columns)
        _check_columns(schema, wanted)
        plain = [n for n in wanted if is_text(schema.field(n).type) and n not in categories]
        most = most_unpacked(len(source) if isinstance(source, bytes) else source.stat().st_size)
        if not file.num_row_groups:
            yield schema.empty_table().select(wanted)
        for number in range(file.num_row_groups) if groups is None else groups:
            many = file.metadata.row_group(number).num_rows > _FEW
            table = file.read_row_group(number, wanted, use_threads=many).select(wanted)
            for name in plain:
                at, text = wanted.index(name), _plain_text(table, name, most)
                table = table.set_column(at, name, text.cast(schema.field(name).type))
            yield table.replace_schema_metadata(schema.metadata)


def is_text(kind: "pa.DataType") -> bool:
    """Return whether a column of this type holds text or bytes."""
    import pyarrow.types as types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    checks = types.is_string, types.is_large_string, types.is_binary, types.is_large_binary
    return any(check(kind) for check in checks)


def _check_sizes(metadata: "pq.FileMetaData", size: int) -> None:
    """Raise ValueError for a table that is much larger than its file of ``size`` bytes."""
    rows, groups = metadata.num_rows, map(metadata.row_group, range(metadata.num_row_groups))
    for count, what, most in (
        (rows, "rows", most_rows(size)),
        (rows * metadata.num_columns, "cells", most_cells(size)),
        (sum(group.total_byte_size for group in groups), "unpacked bytes", most_unpacked(size)),
    ):
        if count > most:
            raise ValueError(f"{count:,} {what} in {size:,} bytes; expected {most:,} at most")


def _check_columns(schema: "pa.Schema", wanted: list[str]) -> None:
    """Raise ValueError unless each of these columns is there once, with a type that is read."""
    import pyarrow.types as types

    counts = Counter(schema.names)
    if missing := set(wanted) - set(counts):
        raise ValueError(f"no column {', '.join(sorted(missing))}")
    for name in wanted:
        if counts[name] > 1:
            raise ValueError(f"column {name!r} appears twice; keep one")
        # Bytes of a fixed size are never read as a dictionary, so that each row would repeat them.
        if types.is_nested(kind := schema.field(name).type) or types.is_fixed_size_binary(kind):
            raise ValueError(f"column {name!r}: expected numbers, dates or text; got {kind}")


def _plain_text(table: "pa.Table", name: str, most: int) -> "pa.ChunkedArray":
    """Return a column of dictionaries if its texts take ``most`` bytes when all are written out.

    Raises ValueError if they take more, or are not UTF-8.
    """
    import pyarrow.compute as pc

    column = table.column(name)
    column.validate(full=True)
    size = 0
    for chunk in column.chunks:
        lengths = pc.call_function("binary_length", [chunk.dictionary]).take(chunk.indices)
        size += pc.call_function("sum", [lengths]).as_py() or 0
    if size > most:
        raise ValueError(f"column {name!r}: {size:,} bytes of text; expected {most:,} at most")
    return column
