"""Read files that anything may have written, and refuse what is not what it seems.

No pipe or device is waited for, and JSON is strict. A Parquet file of a few kilobytes can hold any
number of equal rows, or one text of any length. How much it holds is read from the footer, its list
of contents; SECURITY.md says what a forged one can do.
"""

import contextlib
import errno
import json
import math
import os
import re
import reprlib
import stat
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

SEPARATOR_LINE = re.compile(r"\s*\"?sep=(?P<separator>.)\"?\s*", re.IGNORECASE)
"""The first line of a CSV file, with which spreadsheets name the sign between cells."""
_SMALL = 1 << 20  # bytes; a smaller file is read within seconds, whatever it holds
# Maximum numbers of cells and of unpacked bytes in a small file, and for each byte of a larger one.
_CELLS, _CELLS_PER_BYTE = 8_000_000, 400
_UNPACKED, _LOOSEST = 1 << 27, 1000
_FEW = 100_000  # rows; fewer are read faster than threads start


def read_plain(path: Path) -> bytes:
    """Return the content of a plain file. Raises OSError for any other.

    Reading from a pipe or a device may never end.
    """
    check_plain(path)
    return path.read_bytes()


def check_plain(path: Path) -> None:
    """Raise OSError if a path exists and is neither a plain file nor a link to one."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):  # the latter of a NUL in the name
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "not a plain file", str(path))


def open_for_arrow(path: Path, mode: Literal["rb", "wb"] = "rb") -> "pa.NativeFile":
    """Open a file for Arrow, which by itself opens only names in UTF-8.

    Raises OSError with the name if the file does not exist, or is to be read and is not plain.
    """
    import pyarrow as pa

    if mode == "rb":
        path.stat()  # the error of Arrow does not name the file
        check_plain(path)
    return pa.OSFile(os.fsencode(path), mode)


def parse_json(raw: bytes) -> dict[str, Any]:
    """Parse an object in strict JSON: no NaN, no infinity, no number beyond a float.

    Raises ValueError for anything else.
    """
    try:
        content = json.loads(raw, parse_constant=_refuse, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(content, dict):
        raise ValueError(f"expected an object; got {reprlib.repr(content)}")
    return content


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(digits: str) -> float:
    if not math.isfinite(number := float(digits)):
        raise ValueError(f"{reprlib.repr(digits)} is beyond any number")
    return number


def most_cells(size: int) -> int:
    """Return the maximum number of cells in a packed file of ``size`` bytes."""
    return _CELLS if size <= _SMALL else max(_CELLS, _CELLS_PER_BYTE * size)


def most_unpacked(size: int) -> int:
    """Return the maximum number of bytes that a packed file of ``size`` bytes may hold."""
    return _UNPACKED if size <= _SMALL else _LOOSEST * size


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
            metadata, size = pq.read_metadata(opened), opened.size()
            groups = map(metadata.row_group, range(metadata.num_row_groups))
            for count, what, most in (
                (metadata.num_rows * metadata.num_columns, "cells", most_cells(size)),
                (sum(group.total_byte_size for group in groups), "unpacked bytes",
                 most_unpacked(size)),
            ):  # fmt: skip
                if count > most:
                    raise ValueError(
                        f"{count:,} {what} in {size:,} bytes; expected {most:,} at most"
                    )
            schema = metadata.schema.to_arrow_schema()
            texts = [field.name for field in schema if _is_text(field.type)]
            yield pq.ParquetFile(
                opened, metadata=metadata, read_dictionary=texts, page_checksum_verification=True
            )
    except pa.ArrowException as error:
        raise ValueError(str(error)) from error


def read_parquet_file(
    source: Path | bytes, columns: Sequence[str] | None = None, categories: Collection[str] = ()
) -> "pa.Table":
    """Read a whole file, or some of its columns; see :func:`parquet_groups`."""
    import pyarrow as pa

    return pa.concat_tables(parquet_groups(source, columns, categories))


def parquet_groups(
    source: Path | bytes, columns: Sequence[str] | None = None, categories: Collection[str] = ()
) -> "Iterator[pa.Table]":
    """Yield the row groups of a file, or an empty table if it has none; bytes become text.

    What pandas noted about the columns is left out, since pandas fails in many ways at damaged
    notes.

    - ``columns``: those to read; None: all
    - ``categories``: columns of text that are to be dictionaries, as those written as such are

    Raises what :func:`open_parquet` raises, and ValueError for a column that is missing, twice
    there, nested, or of bytes of a fixed size, and for text that is no UTF-8, or much longer than
    the file.
    """
    import pyarrow as pa
    import pyarrow.types as types

    most = most_unpacked(len(source) if isinstance(source, bytes) else source.stat().st_size)
    with open_parquet(source) as file:
        schema, notes = file.metadata.schema.to_arrow_schema(), file.metadata.metadata or {}
        notes = {
            key: note for key, note in notes.items() if key not in (b"pandas", b"ARROW:schema")
        }
        wanted, texts = schema.names if columns is None else list(columns), dict[str, pa.DataType]()
        for name in wanted:
            kinds = [field.type for field in schema if field.name == name]
            # Bytes of a fixed size are never read as a dictionary, so each row would repeat them.
            odd = any(types.is_nested(kind) or types.is_fixed_size_binary(kind) for kind in kinds)
            if len(kinds) != 1 or odd:
                got = " and ".join(map(str, kinds)) or "no such column"
                raise ValueError(f"column {name!r}: expected numbers, dates or text; got {got}")
            if _is_text(kinds[0]):
                repeats = name in categories or types.is_dictionary(kinds[0])
                texts[name] = pa.dictionary(pa.int32(), pa.string()) if repeats else pa.string()
        if not file.num_row_groups:
            yield schema.empty_table().select(wanted).replace_schema_metadata(notes)
        for number in range(file.num_row_groups):
            threads = file.metadata.row_group(number).num_rows > _FEW
            table = file.read_row_group(number, wanted, use_threads=threads)
            table = table.select(wanted).replace_schema_metadata(notes)
            for name, kind in texts.items():
                column = table.column(name)
                column.validate(full=True)
                if name not in categories:
                    _check_length(column, name, most)
                table = table.set_column(wanted.index(name), name, column.cast(kind))
            yield table


def _is_text(kind: "pa.DataType") -> bool:
    """Return whether a column of this type holds text or bytes."""
    import pyarrow.types as types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    checks = types.is_string, types.is_large_string, types.is_binary, types.is_large_binary
    return any(check(kind) for check in checks)


def _check_length(column: "pa.ChunkedArray", name: str, most: int) -> None:
    """Raise ValueError if the texts of dictionaries take more bytes when all are written out."""
    import pyarrow.compute as pc

    size = 0
    for chunk in column.chunks:
        lengths = pc.call_function("binary_length", [chunk.dictionary]).take(chunk.indices)
        size += pc.call_function("sum", [lengths]).as_py() or 0
    if size > most:
        raise ValueError(f"column {name!r}: {size:,} bytes of text; expected {most:,} at most")
