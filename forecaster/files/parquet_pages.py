"""Find out what the pages of a Parquet file unpack to, before one is unpacked.

The footer's sizes may be made up, but a page is unpacked into the number of bytes that its own
header states. Headers are in Thrift's compact protocol, see
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md.
"""

import itertools
from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_WINDOW, _LARGEST = 512, 1 << 24  # bytes of a header that are read at first, and at most
_DEEPEST = 8  # structs within structs
_UNPACKED, _PACKED = 2, 3  # fields of a page's header: its bytes after and before unpacking


def unpacked_bytes(
    opened: "pa.NativeFile",
    metadata: "pq.FileMetaData",
    most: int,
    columns: Collection[str] | None = None,
) -> int:
    """Return the bytes that the pages of a file unpack to, or a part of them above ``most``.

    ``columns``: those to be read; None: all

    Raises ValueError if a header is damaged, or if columns lie over each other.
    """
    total = packed = 0
    for group in range(metadata.num_row_groups):
        chunks = metadata.row_group(group)
        for number in range(chunks.num_columns):
            chunk = chunks.column(number)
            if chunk.num_values <= 0 or not _is_of(chunk.path_in_schema, columns):
                continue  # none of its pages is read
            offset = chunk.data_page_offset
            if chunk.dictionary_page_offset:
                offset = min(offset, chunk.dictionary_page_offset)
            end = min(offset + chunk.total_compressed_size, opened.size())
            packed += max(0, end - offset)
            if packed > opened.size():  # or a few bytes would be walked again and again
                raise ValueError(f"its columns take {packed:,} bytes, more than it has")
            while offset < end:
                fields, length = _header(opened, offset)
                if min(fields.get(_UNPACKED, -1), fields.get(_PACKED, -1)) < 0:
                    raise ValueError(f"the page at byte {offset:,} has no size")
                total += fields[_UNPACKED]
                if total > most:
                    return total
                offset += length + fields[_PACKED]
    return total


def _is_of(path: str, columns: Collection[str] | None) -> bool:
    """Return whether a path in a schema is that of one of these columns, or of a part of it."""
    parts = itertools.accumulate(path.split("."), lambda whole, part: f"{whole}.{part}")
    return columns is None or any(part in columns for part in parts)


def _header(opened: "pa.NativeFile", offset: int) -> tuple[dict[int, int], int]:
    """Return the whole numbers of the page's header at an offset, by field, and its length."""
    window = _WINDOW
    while True:
        raw = opened.read_at(window, offset)
        try:
            return _struct(raw, 0, _DEEPEST)
        except IndexError:
            if len(raw) < window or window >= _LARGEST:
                raise ValueError(f"the header of a page at byte {offset:,} is damaged") from None
            window *= 32


def _struct(raw: bytes, at: int, depth: int) -> tuple[dict[int, int], int]:
    """Return the whole numbers of a struct by field, and the position after it.

    Raises IndexError where the bytes end too early.
    """
    fields: dict[int, int] = {}
    field = 0
    while kind := raw[at] & 15:
        delta, at = raw[at] >> 4, at + 1
        if delta:
            field += delta
        else:
            field, at = _number(raw, at)
        if kind in (4, 5, 6):
            fields[field], at = _number(raw, at)
        elif kind not in (1, 2):  # yes and no are in the kind itself
            at = _after(raw, at, kind, depth)
    return fields, at + 1


def _after(raw: bytes, at: int, kind: int, depth: int) -> int:
    """Return the position after a value of this kind."""
    if kind in (3, 7, 13):  # a byte, a double, a UUID
        return at + {3: 1, 7: 8, 13: 16}[kind]
    if kind in (4, 5, 6):
        return _number(raw, at)[1]
    if kind == 8:
        length, at = _varint(raw, at)
        return at + length
    if kind == 12 and depth:
        return _struct(raw, at, depth - 1)[1]
    raise ValueError(f"a page's header holds a value of kind {kind}, which none has")


def _number(raw: bytes, at: int) -> tuple[int, int]:
    number, at = _varint(raw, at)
    return (number >> 1) ^ -(number & 1), at


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte, at = raw[at], at + 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        if (shift := shift + 7) > 63:
            raise ValueError("a number in a page's header has too many bytes")
