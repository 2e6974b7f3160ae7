"""Flags of rows that look wrong, and when each flag was known."""

from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool

UNCONFIRMED = "unconfirmed"
"""The flag of a latest row that only the next row can confirm; forecasts use such a row."""


def flags_within(flags: pd.DataFrame, first: Any, last: Any) -> pd.DataFrame | None:
    """Return the flags of rows since a time as they were known at another; None for none."""
    if flags.empty:  # its times may be dates while those of the panel are whole numbers
        return None
    times, known = flags["ds"].to_numpy(), flags["known"].to_numpy()
    inside: Bool[np.ndarray, " flag"] = (times >= first) & (known <= last)
    some = flags[inside]
    return some.assign(until=some["until"].where(some["until"].to_numpy() <= last))


def flags_at(flags: pd.DataFrame, cutoff: Any, *, forecasting: bool) -> pd.DataFrame:
    """Return the flags that hold at a cutoff; without unconfirmed ones when ``forecasting``."""
    known, until = flags["known"].to_numpy(), flags["until"].to_numpy()
    standing: Bool[np.ndarray, " flag"] = (known <= cutoff) & ~(until <= cutoff)
    if forecasting:
        standing &= flags["flag"].to_numpy() != UNCONFIRMED
    return flags[standing]
