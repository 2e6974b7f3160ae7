"""What happened to a stock at the same place of earlier quarters: companies report by a calendar.

A day of earnings, with its volume and its jump, comes back 13, 26, 39 and 52 weeks later, mostly on
the same weekday; the market knows the day, and a history of prices alone can tell it.
"""

import warnings
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from forecaster.series.causal import Rows

WEEKS = (13, 26, 39, 52)
_FARTHEST = 20  # rows ahead that are looked at


def active_days(
    activity: Rows, times: np.ndarray, positions: Int[np.ndarray, "series step"], horizon: int
) -> list[Rows]:
    """How active the anniversaries of the rows ahead were, in the mean over :data:`WEEKS`.

    - ``activity``: how much happened at each step, such as the surprise in its volume; NaN where
      unknown
    - ``times``: the time axis; other than dates have no anniversaries
    - ``positions``: where the steps stand on it; -1 in the padding
    - ``horizon``: how many rows ahead are looked at

    Returns for each step the next row's, its two neighbours counting half, and if there is more
    than one row ahead the highest of the others'; NaN where no anniversary is known.
    """
    offsets = range(max(3, min(horizon, _FARTHEST) + 1))
    if times.dtype.kind != "M":
        nothing = np.full(activity.shape, np.nan)
        return [nothing] * min(2, horizon)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of means of nothing
        ahead = np.nanmean(_at_anniversaries(activity, times, positions, offsets), axis=0)
        following = [np.nanmax(ahead[2:], axis=0)] if horizon > 1 else []
    return [ahead[0] / 2 + ahead[1] + ahead[2] / 2, *following]


def _at_anniversaries(
    values: Rows, times: np.ndarray, positions: np.ndarray, offsets: Sequence[int]
) -> Float[np.ndarray, "week offset series step"]:
    """Values so many rows after the latest row that is so many weeks old; NaN where unknown."""
    found = np.full((len(WEEKS), len(offsets), *values.shape), np.nan)
    for series, place in enumerate(positions):
        begin = int((place < 0).sum())
        own, known = times[place[begin:]], values[series, begin:]
        for number, weeks in enumerate(WEEKS):
            before = own - np.timedelta64(weeks, "W")
            latest = np.searchsorted(own, before, side="right") - 1
            for offset in offsets:
                row = latest + offset
                seen = np.flatnonzero((latest >= 0) & (row <= np.arange(len(own))))
                found[number, offset, series, begin + seen] = known[row[seen]]
    return found
