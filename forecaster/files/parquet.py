"""Read Parquet files that may be malicious: none takes much more memory than its size suggests.

A file of a few kilobytes can hold any number of equal rows, or one text of any length.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from forecaster.files.parquet_pages import Footer, read_footer, unpacked_bytes
from forecaster.files.paths import open_for_arrow

if TYPE_CHECKING:
    import pyarrow as pa

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


def check_parquet(opened: "pa.NativeFile", columns: Sequence[str] | None = None) -> Footer:
    """Return what a file says that it holds.

    Only the file's own list of contents is read, and the headers of the pages of ``columns``, the
    columns that are to be read (None: all).

    Raises ValueError for a table that is much larger than its file.
    """
    size = opened.size()
    footer = read_footer(opened)
    rows, chunks = footer.rows, footer.chunks
    if rows > (most := most_rows(size)):
        raise ValueError(f"{rows:,} rows in {size:,} bytes; expected {most:,} at most")
    cells = sum(max(0, chunk.values) for chunk in chunks)
    if cells > (most := most_cells(size)):
        raise ValueError(f"{cells:,} cells in {size:,} bytes; expected {most:,} at most")
    most = most_unpacked(size)
    unpacked = sum(max(0, chunk.unpacked) for chunk in chunks)
    unpacked = max(unpacked, unpacked_bytes(opened, chunks, most, columns and set(columns)))
    if unpacked > most:
        raise ValueError(f"{unpacked:,} bytes when unpacked; expected {most:,} at most")
    return footer


def read_parquet_file(
    source: Path | bytes, columns: Sequence[str] | None = None, *, checksums: bool = False
) -> "pa.Table":
    """Read a whole file, or some of its columns, from a path or from its bytes.

    ``checksums``: whether to verify the checksums of the pages.

    Raises OSError, and ValueError for another kind of file or one much larger than it seems.
    """
    import pyarrow as pa

    groups = list(parquet_groups(source, columns, checksums=checksums))
    return groups[0] if len(groups) == 1 else pa.concat_tables(groups)


def parquet_groups(
    source: Path | bytes, columns: Sequence[str] | None = None, *, checksums: bool = False
) -> Iterator["pa.Table"]:
    """Yield the row groups of a file, or an empty table; see :func:`read_parquet_file`.

    What pandas noted in the file is left out: it adds nothing to the types of the columns, and
    pandas fails in many ways if it is damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with (
            pa.BufferReader(source)
            if isinstance(source, bytes)
            else open_for_arrow(source) as opened
        ):
            size = opened.size()
            file = pq.ParquetFile(opened, page_checksum_verification=checksums)
            schema = _without_notes_of_pandas(file.schema_arrow)
            wanted = schema.names if columns is None else list(columns)
            check_parquet(opened, wanted)
            if len(set(schema.names)) < len(schema.names):
                raise ValueError("two columns of the same name")
            if missing := set(wanted) - set(schema.names):
                raise ValueError(f"no column {', '.join(sorted(missing))}")
            texts = [name for name in wanted if _is_text(schema.field(name).type)]
            if texts:  # a dictionary stores a repeated text only once
                options = {"read_dictionary": texts, "page_checksum_verification": checksums}
                file = pq.ParquetFile(opened, **options)
            if not file.num_row_groups:
                yield schema.empty_table().select(wanted)
            for number in range(file.num_row_groups):
                many = file.metadata.row_group(number).num_rows > _FEW
                table = file.read_row_group(number, wanted, use_threads=many).select(wanted)
                table = table.replace_schema_metadata(schema.metadata)
                yield _with_plain_texts(table, schema, texts, most_unpacked(size))
    except pa.ArrowException as error:
        raise ValueError(str(error)) from error


def _without_notes_of_pandas(schema: "pa.Schema") -> "pa.Schema":
    notes = schema.metadata or {}
    return schema.with_metadata({key: note for key, note in notes.items() if key != b"pandas"})


def _is_text(kind: "pa.DataType") -> bool:
    import pyarrow.types as types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    checks = types.is_string, types.is_large_string, types.is_binary, types.is_large_binary
    return any(check(kind) for check in checks)


def _with_plain_texts(
    table: "pa.Table", schema: "pa.Schema", texts: Sequence[str], most: int
) -> "pa.Table":
    """Return the table with texts in dictionaries only where the file's schema has them.

    Raises ValueError if the plain texts would take more than ``most`` bytes.
    """
    for name in texts:
        column = table.column(name)
        # Bytes that are not UTF-8 fail here, not later where they are read.
        column.validate(full=True)
        if (size := _size_of(column)) > most:
            raise ValueError(f"column {name!r}: {size:,} bytes of text; expected {most:,} at most")
        at = table.column_names.index(name)
        table = table.set_column(at, schema.field(name), column.cast(schema.field(name).type))
    return table


def _size_of(column: "pa.ChunkedArray") -> int:
    """Return the bytes that the texts in a column of dictionaries take when all are written out."""
    import pyarrow.compute as pc

    size = 0
    for chunk in column.chunks:
        if len(chunk.dictionary):
            lengths = pc.call_function("binary_length", [chunk.dictionary])
            of_rows = lengths.take(chunk.indices).cast("int64")
            size += pc.call_function("sum", [of_rows]).as_py() or 0
    return size
