"""Read fields of a JSON file from anywhere, checking their types.

All functions raise ValueError or TypeError that name the field.
"""

import math
import reprlib
from collections.abc import Mapping
from typing import Any, NoReturn, TypeVar

import numpy as np

from forecaster.series import EXCHANGES, Frequency, Hours

_T = TypeVar("_T")

_MISSING = object()
_WIDEST = 1e6  # spread of scores; no outcome lies further from its forecast


def field(kind: type[_T], fields: Mapping[str, Any], name: str) -> _T:
    """Return a field of an object; raise unless it is there and of this type."""
    return is_a(kind, fields.get(name, _MISSING), name)


def is_a(kind: type[_T], value: object, what: str) -> _T:
    """Return the value; raise unless it is of this type. A bool is not an int."""
    if value is _MISSING:
        raise ValueError(f"{what}: missing")
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise TypeError(f"{what}: expected {_WORDS[kind]}; got {reprlib.repr(value)}")
    return value


_WORDS: dict[type, str] = {
    dict: "an object", list: "a list", str: "text", int: "a whole number", bool: "true or false",
}  # fmt: skip


def check_count(value: object, what: str, most: int) -> None:
    """Raise ValueError unless it is a whole number from 1 to ``most``."""
    if not 1 <= is_a(int, value, what) <= most:
        raise ValueError(f"{what}: expected 1 to {most}; got {reprlib.repr(value)}")


def texts(fields: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return a field that is a list of text."""
    return tuple(is_a(str, value, name) for value in field(list, fields, name))


def unique(names: tuple[str, ...], what: str) -> tuple[str, ...]:
    """Return the names; raise unless there are some, each once."""
    if not names or len(set(names)) < len(names):
        raise ValueError(f"{what}: expected names, each once; got {reprlib.repr(names)}")
    return names


def no_number(constant: str) -> NoReturn:
    """Refuse NaN and infinities, for ``json``."""
    raise ValueError(f"{constant} is not JSON")


def finite(digits: str) -> float:
    """Parse a number for ``json``; raise unless it is finite."""
    if not math.isfinite(number := float(digits)):
        raise ValueError(f"{reprlib.repr(digits)} is beyond any number")
    return number


_MOST_STEP, _SECONDS, _WEEK = 2**63 - 1, 86_400, 604_800


def frequency_of(fields: dict[str, Any]) -> Frequency:
    """Return the frequency in a file, its alias checked by pandas.

    Raises ValueError or TypeError where it is not one.
    """
    hours, slots = fields.get("hours"), is_a(list, fields.get("open", []), "frequency: open")
    frequency = Frequency(
        **{**fields, "hours": None if hours is None else _hours(hours), "open": tuple(slots)}
    )
    alias = is_a(str, frequency.alias, "frequency: alias")
    check_count(frequency.step, "frequency: step", _MOST_STEP)
    is_a(bool, frequency.nyse, "frequency: nyse")
    day = is_a(int, frequency.day, "frequency: day")
    least, most = (1, 91) if alias == "4-4-5" else (0, 31)
    if not least <= day <= most:
        raise ValueError(f"frequency: day: expected {least} to {most}")
    if alias == "dekads" and day not in (1, 10):
        raise ValueError("frequency: day: expected 1 or 10")
    if slots and not (frequency.seconds and _are_slots(slots, _WEEK // frequency.seconds)):
        raise ValueError("frequency: open: expected increasing slots of a week")
    if alias not in ("step", "months", "4-4-5", "dekads"):
        _ = frequency.offset
    return frequency


def _are_slots(slots: list[Any], count: int) -> bool:
    """Return whether these are increasing whole numbers from 0 to below ``count``."""
    whole = all(type(slot) is int and 0 <= slot < count for slot in slots)
    return whole and slots == sorted(set(slots))


def _hours(fields: object) -> Hours:
    hours = Hours(**is_a(dict, fields, "frequency: hours"))
    if hours.exchange not in EXCHANGES:
        raise ValueError(f"frequency: hours: exchange {reprlib.repr(hours.exchange)} is not known")
    for name in ("utc", "closing"):
        is_a(bool, getattr(hours, name), f"frequency: hours: {name}")
    check_count(hours.step, "frequency: hours: step", _SECONDS)
    if not 0 <= is_a(int, hours.first, "frequency: hours: first") <= _SECONDS:
        raise ValueError("frequency: hours: first: expected the seconds of a day")
    return hours


def above_zero(values: list[Any], what: str, count: int, *, below: float = _WIDEST) -> np.ndarray:
    """Return the values as an array; raise ValueError unless they are ``count`` numbers above 0."""
    if len(values) != count or not all(
        type(value) in (int, float) and 0 < value < below for value in values
    ):
        raise ValueError(f"{what}: expected {count} numbers above 0")
    return np.array(values, float)
