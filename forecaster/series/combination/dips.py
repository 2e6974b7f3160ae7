"""A dip: one stretch of a season or more at less than half of the usual values, now over.

A hall that was closed for a year, or flights in a pandemic, say little about the season of sound
years and much too much about the size of errors. Such rows are replaced by those of the season
before, for what is learned and for what is forecast from (as outliers are by ``tsclean``: Hyndman
& Athanasopoulos 2021, Forecasting: Principles and Practice, section 13.9).
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

_LOW = 0.5  # of the median of the same phase
_FEWEST = 4  # cycles, one of which may be low


def dip_of(
    values: Float[np.ndarray, " row"], seasons: Sequence[int]
) -> Int[np.ndarray, " row"] | None:
    """Return the rows of a dip; None where there is none, or more than one.

    Before it lie as many sound rows as it has, and after it those of a season.

    - ``values``: without gaps
    - ``seasons``: steps in each season; without one there is no usual value
    """
    season, rows = max(seasons, default=1), len(values)
    if season < 2 or rows < _FEWEST * season or not (values >= 0).all():
        return None
    cycles = np.full((-(-rows // season), season), np.nan)
    cycles.ravel()[:rows] = values
    usual = np.nanmedian(cycles, axis=0)
    low: Bool[np.ndarray, " row"] = (cycles < _LOW * usual).ravel()[:rows]
    edges = np.flatnonzero(np.diff(low, prepend=False, append=False)).reshape(-1, 2)
    long = edges[np.diff(edges)[:, 0] >= season]
    if len(long) != 1:
        return None
    begin, end = long[0].tolist()
    others = int(low.sum()) - (end - begin)
    sound = begin >= end - begin and rows - end >= season and others < season
    return np.arange(begin, end, dtype=np.int64) if sound else None


def in_seconds(times: Shaped[np.ndarray, " row"]) -> Int[np.ndarray, " row"]:
    """Return times as whole numbers: dates as seconds."""
    return (times.astype("datetime64[s]") if times.dtype.kind == "M" else times).astype(np.int64)
