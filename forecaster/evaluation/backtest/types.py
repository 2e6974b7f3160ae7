"""Check values that a file may hold against the types that the code declares."""

import dataclasses
import math
import reprlib
from collections.abc import Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin


def check_type(kind: Any, value: Any, what: str) -> None:
    """Raise TypeError unless a value is of a type: of a plain one, a mapping, a tuple or a union.

    A whole number is a float, but a bool is no number, and neither is NaN or an infinity.
    """
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        if not any(_is(each, value) for each in args):
            raise _wrong(kind, value, what)
    elif origin is not None and issubclass(origin, Mapping):
        check_type(dict, value, what)
        for name, entry in value.items():
            check_type(args[0], name, what)
            check_type(args[1], entry, f"{what}: {reprlib.repr(name)}")
    elif origin is tuple:
        check_type(tuple, value, what)
        for entry in value:
            check_type(args[0], entry, what)
    elif kind is float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not _finite(value):
            raise _wrong(kind, value, what)
    elif not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _wrong(kind, value, what)


def _is(kind: Any, value: Any) -> bool:
    try:
        check_type(kind, value, "")
    except TypeError:
        return False
    return True


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond any float
        return False


def _wrong(kind: Any, value: Any, what: str) -> TypeError:
    names = {type(None): "null", dict: "an object", list: "a list", str: "text",
             int: "a whole number", float: "a number", bool: "true or false"}  # fmt: skip
    kinds = get_args(kind) or (kind,)
    said = " or ".join(names.get(get_origin(each) or each, _name(each)) for each in kinds)
    return TypeError(f"{what}: expected {said}; got {reprlib.repr(value)}")


def _name(kind: Any) -> str:
    return "an object" if dataclasses.is_dataclass(kind) or get_origin(kind) else str(kind)
