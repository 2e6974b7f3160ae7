"""Flags of rows that look wrong, and when each flag was known."""

from typing import Any

import pandas as pd

UNCONFIRMED = "unconfirmed"
"""The flag of a latest row that only the next row can confirm; forecasts use such a row."""


def flags_within(flags: pd.DataFrame, first: Any, last: Any) -> pd.DataFrame | None:
    """Return the flags of rows since a time as they were known at another; None for none."""
    if flags.empty:  # its times may be dates while those of the panel are whole numbers
        return None
    some = flags[(flags["ds"] >= first) & (flags["known"] <= last)]
    return some.assign(until=some["until"].where(some["until"] <= last))


def flags_at(flags: pd.DataFrame, cutoff: Any, *, forecasting: bool) -> pd.DataFrame:
    """Return the flags that hold at a cutoff; without unconfirmed ones when ``forecasting``."""
    standing = (flags["known"] <= cutoff) & ~(flags["until"] <= cutoff)
    return flags[standing & ~(forecasting & (flags["flag"] == UNCONFIRMED))]
