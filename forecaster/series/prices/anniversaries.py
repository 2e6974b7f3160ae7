"""How active a stock was at the same time of earlier quarters, as companies report by a calendar.

A day of earnings, with its volume and its jump, recurs 13, 26, 39 and 52 weeks later, mostly on the
same weekday. The market knows the day in advance; a network learns it from past prices.
"""

import warnings
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from forecaster.series.causal import Rows

WEEKS = (13, 26, 39, 52)
_FARTHEST = 20  # rows ahead, at most


def active_days(
    activity: Rows, times: np.ndarray, positions: Int[np.ndarray, "series step"], horizon: int
) -> list[Rows]:
    """Return the activity on the anniversaries of the rows ahead, averaged over :data:`WEEKS`.

    - ``activity``: how much happened at each step, such as the surprise in its volume; NaN where
      unknown
    - ``times``: the time axis; whole numbers have no anniversaries
    - ``positions``: positions of the steps on the time axis; -1 in the padding
    - ``horizon``: the number of rows ahead

    The first feature is the activity of the next row, averaged with its neighbours at half the
    weight. Where the horizon is longer than one row, the second is the highest activity of the
    later rows. NaN where no anniversary is known.
    """
    offsets = range(max(3, min(horizon, _FARTHEST) + 1))
    if times.dtype.kind != "M":
        nothing = np.full(activity.shape, np.nan)
        return [nothing] * min(2, horizon)
    features = [np.full(activity.shape, np.nan) for _ in range(min(2, horizon))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # nanmean of NaN alone
        for series, own in enumerate(positions):  # one at a time, to save memory
            begin = int((own < 0).sum())
            known = activity[series, begin:]
            ahead = np.nanmean(_at_anniversaries(known, times[own[begin:]], offsets), axis=0)
            features[0][series, begin:] = ahead[0] / 2 + ahead[1] + ahead[2] / 2
            if horizon > 1:
                features[1][series, begin:] = np.nanmax(ahead[2:], axis=0)
    return features


def _at_anniversaries(
    values: Float[np.ndarray, " step"], times: np.ndarray, offsets: Sequence[int]
) -> Float[np.ndarray, "week offset step"]:
    """Return the values ``offset`` rows after the latest row at least ``week`` weeks old.

    NaN where unknown.
    """
    found = np.full((len(WEEKS), len(offsets), len(values)), np.nan)
    for number, weeks in enumerate(WEEKS):
        before = times - np.timedelta64(weeks, "W")
        latest = np.searchsorted(times, before, side="right") - 1
        for offset in offsets:
            row = latest + offset
            seen = np.flatnonzero((latest >= 0) & (row <= np.arange(len(times))))
            found[number, offset, seen] = values[row[seen]]
    return found
