"""Frequencies in a model's file, which is whatever somebody made of it."""

import reprlib
from typing import Any

import pandas as pd

from forecaster.series import EXCHANGES, Frequency, Hours
from forecaster.storage.fields import check_count, is_a

_MOST_STEP, _SECONDS = 2**63 - 1, 86_400


def frequency_of(fields: dict[str, Any]) -> Frequency:
    """The frequency that a file tells, checked with pandas, which knows the aliases.

    Raises ValueError or TypeError where it is none.
    """
    hours = fields.get("hours")
    frequency = Frequency(**{**fields, "hours": None if hours is None else _hours(hours)})
    alias = is_a(str, frequency.alias, "frequency: alias")
    check_count(frequency.step, "frequency: step", _MOST_STEP)
    is_a(bool, frequency.nyse, "frequency: nyse")
    if not 0 <= is_a(int, frequency.day, "frequency: day") <= 31:
        raise ValueError("frequency: day: expected one of a month, or 0")
    if alias not in ("step", "months"):
        pd.tseries.frequencies.to_offset(alias)
    return frequency


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
