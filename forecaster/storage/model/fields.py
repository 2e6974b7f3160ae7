"""Read fields of a JSON file from anywhere; msgspec checks their types.

All functions raise ValueError that names the field.
"""

import reprlib
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import numpy as np

from forecaster.series import EXCHANGES, Frequency

_MOST_STEP, _DAY, _WEEK = 2**63 - 1, 86_400, 604_800  # the latter in seconds
_WIDEST = 1e6  # spread of scores; no outcome lies further from its forecast


def field(kind: Any, fields: Mapping[str, Any], name: str) -> Any:
    """Return a field of an object as a value of this type; raise unless it is there and is one."""
    if name not in fields:
        raise ValueError(f"{name}: missing")
    return as_type(kind, fields[name], name)


def as_type(kind: Any, value: object, what: str) -> Any:
    """Return plain values as a value of this type."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"{what}: {error}") from error


def names(fields: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return a field that is a list of names, each once."""
    found = field(tuple[str, ...], fields, name)
    if not found or len(set(found)) < len(found):
        raise ValueError(f"{name}: expected names, each once; got {reprlib.repr(found)}")
    return found


def frequency_of(fields: Mapping[str, Any]) -> Frequency:
    """Return the field ``frequency``, its alias checked by pandas."""
    made = field(Frequency, fields, "frequency")
    slots = _WEEK // made.seconds if made.open and made.seconds else 0
    increasing = tuple(sorted({*made.open})) == made.open
    for name, sound, expected in (
        ("step", 1 <= made.step <= _MOST_STEP, f"1 to {_MOST_STEP}"),
        ("day", 0 <= made.day <= 31, "0 to 31"),
        ("open", increasing and all(0 <= slot < slots for slot in made.open), "slots of a week"),
    ):
        if not sound:
            got = reprlib.repr(getattr(made, name))
            raise ValueError(f"frequency: {name}: expected {expected}; got {got}")
    if (hours := made.hours) is not None:
        if hours.exchange not in EXCHANGES:
            raise ValueError(f"frequency: exchange {reprlib.repr(hours.exchange)} is not known")
        if not (1 <= hours.step <= _DAY and 0 <= hours.first <= _DAY):
            raise ValueError("frequency: hours: expected step and first in seconds of a day")
    if made.alias not in ("step", "months"):
        _ = made.offset
    return made


def above_zero(
    fields: Mapping[str, Any], name: str, count: int, *, below: float = _WIDEST
) -> np.ndarray:
    """Return a field that is a list of ``count`` numbers above 0."""
    values = field(list[Annotated[float, msgspec.Meta(gt=0)]], fields, name)
    if len(values) != count or max(values) >= below:
        raise ValueError(f"{name}: expected {count} numbers above 0, below {below:g}")
    return np.array(values, float)
