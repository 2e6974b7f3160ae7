"""Find out what a Parquet file holds, and the unpacked size of its pages, before unpacking any.

The sizes in the footer may be false, but a page is unpacked into the number of bytes that its own
header states. The footer is not read by pyarrow, since some damaged footers make pyarrow end the
process: its ``RowGroupMetaData.column`` lets an exception of C++ pass.
"""

import itertools
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple

from forecaster.files.thrift import Struct, read_struct

if TYPE_CHECKING:
    import pyarrow as pa

_WINDOW, _LARGEST = 512, 1 << 24  # bytes of a header that are read at first, and at most
_TAIL = 8  # bytes after the footer: its length, and a word
_UNPACKED, _PACKED = 2, 3  # fields of a page's header: its bytes after and before unpacking
_ROWS, _GROUPS = 3, 4  # fields of the footer: number of rows, and row groups
_CHUNKS, _ROWS_OF_GROUP = 1, 3  # fields of a row group: its columns, and its number of rows
_CHUNK = 3  # field of a column of a row group: its metadata, whose fields are in the next line
_PATH, _VALUES, _UNPACKED_SIZE, _PACKED_SIZE, _DATA, _DICTIONARY = 3, 5, 6, 7, 9, 11


class Chunk(NamedTuple):
    """One column of one row group, as the footer describes it.

    - ``path``: the path of the column in the schema, with points
    - ``values``: the number of values
    - ``unpacked, packed``: the size of its pages in bytes, unpacked and packed
    - ``begin``: the position of its first page
    - ``group``: the number of the row group
    """

    path: str
    values: int
    unpacked: int
    packed: int
    begin: int
    group: int


class Footer(NamedTuple):
    """The contents of a file as it states them; ``rows``: the largest number of rows it states."""

    rows: int
    chunks: list[Chunk]


def read_footer(opened: "pa.NativeFile") -> Footer:
    """Read the footer of a file. Raises ValueError if it is damaged."""
    size = opened.size()
    length = int.from_bytes(opened.read_at(4, max(0, size - _TAIL)), "little")
    if length > size - _TAIL:
        raise ValueError("Parquet: its footer is longer than the file")
    try:
        footer, _ = read_struct(opened.read_at(length, size - _TAIL - length))
        groups = _list_of(footer, _GROUPS)
        chunks = [
            _chunk_of(chunk, number)
            for number, group in enumerate(groups)
            for chunk in _list_of(group, _CHUNKS)
        ]
        rows = [_number_of(footer, _ROWS), *(_number_of(group, _ROWS_OF_GROUP) for group in groups)]
        return Footer(max([*rows, *(chunk.values for chunk in chunks)]), chunks)
    except (IndexError, ValueError) as error:
        raise ValueError(f"Parquet: its footer is damaged ({error})") from error


def unpacked_bytes(
    opened: "pa.NativeFile",
    chunks: Collection[Chunk],
    most: int,
    columns: Collection[str] | None = None,
) -> int:
    """Return the bytes that the pages of a file unpack to, or a part of them above ``most``.

    - ``chunks``: from :func:`read_footer`
    - ``columns``: the columns to be read; None: all

    Raises ValueError if a header is damaged, or if columns overlap.
    """
    total = packed = 0
    for chunk in chunks:
        if chunk.values <= 0 or not _is_of(chunk.path, columns):
            continue  # no page of this column is read
        offset, end = chunk.begin, min(chunk.begin + chunk.packed, opened.size())
        if offset < 0:
            raise ValueError(f"column {chunk.path} begins before the file")
        packed += max(0, end - offset)
        if packed > opened.size():  # otherwise a few bytes would be read again and again
            raise ValueError(f"its columns take {packed:,} bytes, more than it has")
        while offset < end:
            fields, length = _header(opened, offset)
            unpacked, size = (_number_of(fields, field, -1) for field in (_UNPACKED, _PACKED))
            if min(unpacked, size) < 0:
                raise ValueError(f"the page at byte {offset:,} has no size")
            total += unpacked
            if total > most:
                return total
            offset += length + size
    return total


def _chunk_of(chunk: object, group: int) -> Chunk:
    fields = chunk.get(_CHUNK) if isinstance(chunk, dict) else None
    if not isinstance(fields, dict):
        raise ValueError("a column without metadata")
    begin = _number_of(fields, _DATA)
    if dictionary := _number_of(fields, _DICTIONARY):
        begin = min(begin, dictionary)
    parts = [part for part in _list_of(fields, _PATH) if isinstance(part, bytes)]
    path = b".".join(parts).decode("utf-8", "replace")
    numbers = (_number_of(fields, field) for field in (_VALUES, _UNPACKED_SIZE, _PACKED_SIZE))
    values, unpacked, packed = numbers
    return Chunk(path, values, unpacked, packed, begin, group)


def _list_of(fields: object, field: int) -> list[Any]:
    values = fields.get(field, []) if isinstance(fields, dict) else None
    if not isinstance(values, list):
        raise ValueError(f"field {field} is no list")
    return values


def _number_of(fields: object, field: int, default: int = 0) -> int:
    value = fields.get(field, default) if isinstance(fields, dict) else None
    if type(value) is not int:
        raise ValueError(f"field {field} is no number")
    return value


def _is_of(path: str, columns: Collection[str] | None) -> bool:
    """Return whether a path in a schema is one of these columns, or a part of one."""
    parts = itertools.accumulate(path.split("."), lambda whole, part: f"{whole}.{part}")
    return columns is None or any(part in columns for part in parts)


def _header(opened: "pa.NativeFile", offset: int) -> tuple[Struct, int]:
    """Return the fields of the page header at an offset, and its length."""
    window = _WINDOW
    while True:
        raw = opened.read_at(window, offset)
        try:
            return read_struct(raw)
        except IndexError:
            if len(raw) < window or window >= _LARGEST:
                raise ValueError(f"the header of a page at byte {offset:,} is damaged") from None
            window *= 32
