"""Read Thrift's compact protocol, in which Parquet writes its footer and the headers of its pages.

See https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md. No value is
larger than the bytes that it is read from. Fields of a struct are known by number. A struct with
the same field twice is refused, since readers differ in which of the two they take.
"""

from typing import Any, TypeAlias

Struct: TypeAlias = dict[int, Any]
"""The values of a struct by field: numbers, bytes, lists, and nested structs."""

_DEEPEST = 16  # maximum depth of nested structs and lists
_YES, _NO, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT, _UUID = 1, 2, 3, 7, 8, 9, 10, 12, 13
_NUMBERS = (4, 5, 6)
_FIXED = {_BYTE: 1, _DOUBLE: 8, _UUID: 16}  # sizes in bytes


def read_struct(raw: bytes, at: int = 0, depth: int = _DEEPEST) -> tuple[Struct, int]:
    """Return a struct that begins at a position, and the position after it.

    Raises IndexError if the bytes end too early, ValueError for content that no struct can hold.
    """
    fields: Struct = {}
    field = 0
    while kind := raw[at] & 15:
        delta, at = raw[at] >> 4, at + 1
        if delta:
            field += delta
        else:
            field, at = _number(raw, at)
        if field in fields:
            raise ValueError(f"field {field} is there twice")
        if kind in (_YES, _NO):  # their value is in the kind itself
            fields[field] = kind == _YES
        else:
            fields[field], at = _value(raw, at, kind, depth)
    return fields, at + 1


def _value(raw: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    """Return a value of a kind, and the position after it."""
    if kind in _NUMBERS:
        return _number(raw, at)
    if kind == _BINARY:
        length, at = _varint(raw, at)
        return _bytes(raw, at, length)
    if kind in _FIXED:
        return _bytes(raw, at, _FIXED[kind])
    if kind == _STRUCT and depth:
        return read_struct(raw, at, depth - 1)
    if kind in (_LIST, _SET) and depth:
        return _values(raw, at, depth - 1)
    raise ValueError(f"a value of kind {kind}, which is unknown or lies too deep")


def _values(raw: bytes, at: int, depth: int) -> tuple[list[Any], int]:
    """Return the values of a list, and the position after it."""
    count, kind, at = raw[at] >> 4, raw[at] & 15, at + 1
    if count == 15:
        count, at = _varint(raw, at)
    if count > len(raw) - at:  # each value takes at least a byte
        raise IndexError
    values: list[Any] = []
    for _ in range(count):
        value, at = _value(raw, at, _BYTE if kind in (_YES, _NO) else kind, depth)
        values.append(value)
    return values, at


def _bytes(raw: bytes, at: int, length: int) -> tuple[bytes, int]:
    if length > len(raw) - at:
        raise IndexError
    return raw[at : at + length], at + length


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
            raise ValueError("a number has too many bytes")
